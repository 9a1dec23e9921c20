"""Connections that end at a known moment: idle, in a call, in a transaction, while waiters sleep."""

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import own_cluster
import psycopg
import pytest
from clusters import Cluster
from own_cluster import PATIENCE, ask, eventually, ours, sleepers, succeeds

from eventkit import Disconnected, Unavailable

cluster, url, nothing_is_left = own_cluster.cluster, own_cluster.url, own_cluster.nothing_is_left

Connect = Callable[..., Any]
WAITING: dict[str, Callable[[Any], Any]] = {
    "event": lambda kit: next(iter(kit.stream("event").subscribe(start="earliest"))),
    "task": lambda kit: kit.queue("task").claim("w", wait=PATIENCE)[0],
    "work": lambda kit: next(iter(kit.queue("work").work("w"))),
    "notification": lambda kit: next(iter(kit.channel("notification").listen())),
}


def test_idle_connections_that_ended_cost_no_call(cluster: Cluster, url: str, connect: Connect) -> None:
    """Every later call succeeds, and is done once."""
    kit = connect(url)
    for number in range(10):
        end_ours(cluster)
        kit.stream("t").publish(number)
        end_ours(cluster)
        assert len(kit.stream("t").read()) == number + 1
        end_ours(cluster)
        kit.queue("q").enqueue(number)
        end_ours(cluster)
        [task] = kit.queue("q").claim("w")
        end_ours(cluster)
        assert kit.queue("q").ack(task)
        end_ours(cluster)
        with kit.transaction() as tx:
            kit.channel("c").notify(number, tx=tx)
    cluster.restart("immediate")  # An idle connection gets no message but its end.
    kit.stream("t").publish(10)
    assert [event.payload for event in kit.stream("t").read()] == [*range(11)]


def test_a_call_whose_connection_is_ended_is_repeated(cluster: Cluster, url: str, connect: Connect) -> None:
    """The server reports that the call had no effect, so it is repeated, and done once."""
    kit = connect(f"{url}&busy_timeout=20")
    kit.stream("t").publish("before")
    schema = url.partition("schema=")[2]
    with ThreadPoolExecutor() as threads, psycopg.connect(cluster.url) as other:
        other.execute(f"LOCK TABLE {schema}.eventkit_event, {schema}.eventkit_task".encode())
        calls = [
            threads.submit(kit.stream("t").publish, "published"),
            threads.submit(kit.stream("t").publish_many, ["one", "two"]),
            threads.submit(kit.queue("q").enqueue_many, ["first", "second"]),
        ]
        stuck = "SELECT pid FROM pg_stat_activity WHERE application_name = 'eventkit' AND wait_event_type = 'Lock'"
        for _ in range(3):
            eventually(lambda: len(ask(cluster, stuck)) == len(calls), "the calls wait for the lock")
            for (pid,) in ask(cluster, stuck):
                ask(cluster, f"SELECT pg_terminate_backend({pid}, 5000)")
    for call in calls:
        call.result(PATIENCE)
    assert sorted(event.payload for event in kit.stream("t").read()) == ["before", "one", "published", "two"]
    assert [task.payload for task in kit.queue("q").claim("w", limit=10)] == ["first", "second"]


def test_a_transaction_whose_connection_ends(cluster: Cluster, url: str, connect: Connect) -> None:
    """It leaves no writes; its own statements get the driver's error, its end eventkit's; and the kit works on."""
    kit = connect(url)
    stream = kit.stream("t")
    with pytest.raises(psycopg.OperationalError), kit.transaction() as tx:
        stream.publish(1, tx=tx)
        end_ours(cluster)
        stream.publish(2, tx=tx)
    with pytest.raises(Disconnected, match=r"broke during the call.*check before repeating"), kit.transaction() as tx:
        stream.publish(3, tx=tx)
        end_ours(cluster)
    with pytest.raises(LookupError), kit.transaction() as tx:
        stream.publish(4, tx=tx)
        end_ours(cluster)
        raise LookupError
    assert stream.read() == []
    with kit.transaction() as tx:
        stream.publish(5, tx=tx)
    assert [event.payload for event in stream.read()] == [5]


@pytest.mark.parametrize("blow", ["terminate", "crash", "restart"])
def test_a_waiter_recovers_from_a_lost_connection(cluster: Cluster, url: str, connect: Connect, blow: str) -> None:
    """Waiting resumes by itself without polls, and no later commit is missed."""
    url += "&fallback_poll=3600"
    waiting, working = connect(url), connect(url)
    with ThreadPoolExecutor() as threads, closing(waiting):
        found = {name: threads.submit(wait, waiting) for name, wait in WAITING.items()}
        eventually(lambda: len(sleepers(cluster, url)) == len(WAITING), "all sleep")
        before = {listener for _, listener in sleepers(cluster, url)}
        if blow == "terminate":
            end_ours(cluster)
        else:
            cluster.restart("immediate" if blow == "crash" else "fast")
        eventually(lambda: succeeds(lambda: working.stream("event").publish("later")), "the server serves")
        eventually(lambda: succeeds(lambda: working.queue("work").enqueue("later")), "the server serves")
        # The earlier ones may have been seen by a look; these can only be heard.
        asleep = {"task:task", "notification:notification"}
        eventually(lambda: asleep <= {n for n, who in sleepers(cluster, url) if who not in before}, "they sleep again")
        working.queue("task").enqueue("later")
        working.channel("notification").notify("later")
        for name, result in found.items():
            assert result.result(PATIENCE).payload == "later", name


@pytest.mark.parametrize(
    ("blow", "flavour"),
    [
        ("lock", "sync"),
        ("terminate", "async"),
        pytest.param("restart", "sync", marks=pytest.mark.slow),
        pytest.param("lock", "async", marks=pytest.mark.slow),
        pytest.param("terminate", "sync", marks=pytest.mark.slow),
        pytest.param("restart", "async", marks=pytest.mark.slow),
    ],
    indirect=["flavour"],
)
def test_housekeepers_and_schedulers_survive(cluster: Cluster, url: str, connect: Connect, blow: str) -> None:
    """They continue after a long lock on the tables, and after their connections ended."""
    kit = connect(f"{url}&busy_timeout=0.2")
    jobs, ticks = kit.queue("jobs"), kit.queue("ticks")
    jobs.configure(keep_done=0.001)
    kit.schedules.add("tick", "@every 1s", "ticks")
    schema = url.partition("schema=")[2]
    with ThreadPoolExecutor() as threads, closing(kit):
        running = [threads.submit(kit.run_maintenance, every=0.05), threads.submit(kit.run_scheduler)]
        for _ in range(2):
            eventually(lambda: succeeds(lambda: jobs.enqueue("done")), "the server serves")
            eventually(lambda: succeeds(lambda: jobs.ack_many(jobs.claim("w"))), "the server serves")
            fired = ticks.size()
            eventually(lambda: jobs.stats().done == 0, "housekeeping runs")
            eventually(lambda fired=fired: ticks.size() > fired, "schedules fire")
            if blow == "lock":
                with psycopg.connect(cluster.url) as other:
                    other.execute(f"LOCK TABLE {schema}.eventkit_lock, {schema}.eventkit_schedule".encode())
                    time.sleep(2.5)
            elif blow == "terminate":
                until = time.monotonic() + 2.5
                while time.monotonic() < until:
                    end_ours(cluster)
            else:
                cluster.stop()
                time.sleep(2.5)
                cluster.start()
            assert not any(one.done() for one in running)
    assert [one.result(PATIENCE) for one in running] == [None, None]


def test_a_call_made_while_the_server_is_away(cluster: Cluster, url: str, connect: Connect) -> None:
    """The call waits for the server as for a lock, and succeeds when that is back in time."""
    kit = connect(f"{url}&busy_timeout={PATIENCE}")
    cluster.stop()
    with ThreadPoolExecutor() as threads:
        published = threads.submit(kit.stream("t").publish, "patient")
        time.sleep(3)
        cluster.start()
        published.result(PATIENCE)
    assert [event.payload for event in kit.stream("t").read()] == ["patient"]


@pytest.mark.slow
def test_a_server_that_is_away_for_ten_seconds(cluster: Cluster, url: str, connect: Connect) -> None:
    """Reconnects are paced and calls raise; when it is back, all loops continue."""
    kit = connect(f"{url}&fallback_poll=3600&busy_timeout=2")
    received: list[Any] = []
    errors: list[Unavailable] = []
    acknowledged: list[int] = []
    ended = threading.Event()

    def publish() -> None:
        number = 0
        while not ended.wait(0.001):
            number += 1
            try:
                kit.stream("t").publish(number)
            except Unavailable as error:
                errors.append(error)
            else:
                acknowledged.append(number)

    def subscribe() -> None:
        for event in kit.stream("t").subscribe(start="earliest"):
            received.append(event.payload)

    def work() -> None:
        for task in kit.queue("q").work("w"):
            received.append(task.payload)

    threads = [threading.Thread(target=target) for target in (publish, subscribe, work)]
    for thread in threads:
        thread.start()
    eventually(lambda: received, "all are at work")
    cluster.stop()
    port = int(cluster.url.rpartition(":")[2].partition("/")[0])
    with socket.create_server(("127.0.0.1", port)) as door:
        door.settimeout(0.1)
        attempts, spent, until = 0, time.process_time(), time.monotonic() + 10
        while time.monotonic() < until:
            try:
                door.accept()[0].close()
            except TimeoutError:
                continue
            attempts += 1
        spent = time.process_time() - spent
    cluster.start()
    began = time.monotonic()
    so_far = len(acknowledged)
    eventually(lambda: len(acknowledged) > so_far + 10, "publishing goes on")
    kit.queue("q").enqueue("task")
    eventually(lambda: "task" in received and set(acknowledged[: so_far + 10]) <= set(received), "receiving goes on")
    ended.set()
    took = time.monotonic() - began
    threads[0].join(PATIENCE)
    eventually(lambda: set(acknowledged) <= set(received), "everything arrives")
    kit.close()
    for thread in threads:
        thread.join(PATIENCE)
    print(f"{attempts} attempts, {spent:.2f} s of CPU, {took:.2f} s to go on, {len(errors)} calls raised")
    assert errors
    assert all(isinstance(error, Disconnected) for error in errors)
    assert len(received) == len(set(received))
    assert attempts < 150
    assert spent < 5
    assert took < 20


def end_ours(cluster: Cluster) -> None:
    """End every connection of the kits, and return when they are gone."""
    pids = set(ours(cluster))
    ask(cluster, f"SELECT pg_terminate_backend(pid) FROM unnest(ARRAY{[*pids]}::integer[]) AS pid")
    eventually(lambda: not pids & set(ours(cluster)), "they are gone")
