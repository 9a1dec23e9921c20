"""Faults of the server and of connections under load: no acknowledged work is lost, and none is done twice.

Programs in processes of their own publish, enqueue, notify, subscribe, listen and work, in both flavours and with the
fallback polls off, while the test crashes or restarts the server and ends connections.  After each fault every program
must recover by itself.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import own_cluster
import pytest
from clusters import Cluster
from enduring import Running
from own_cluster import ask, eventually, ours

import eventkit
from eventkit.testing import advance

cluster, url, nothing_is_left = own_cluster.cluster, own_cluster.url, own_cluster.nothing_is_left

WRITERS = [("publish", "sync"), ("publish", "async"), ("enqueue", "sync"), ("buy", "async"), ("notify", "sync")]
READERS = [
    *(("subscribe", "sync"), ("subscribe", "async"), ("listen", "sync"), ("listen", "async")),
    *(("work", "sync"), ("work", "async")),
]
CONNECTIONS = 3
"""The most connections of a kit: two in its pool, and one to listen on."""

Program = tuple[str, str]
Blow = Callable[[Cluster], None]


def crash(cluster: Cluster) -> None:
    """Crash the server, and start it again."""
    cluster.restart("immediate")


def restart(cluster: Cluster) -> None:
    """Restart the server, which closes its connections properly."""
    cluster.restart("fast")


def terminate(cluster: Cluster) -> None:
    """End connections for a second, some while they wait and some at work."""
    until = time.monotonic() + 1
    while time.monotonic() < until:
        pids = ours(cluster)
        for pid in random.sample(pids, min(3, len(pids))):
            ask(cluster, f"SELECT pg_terminate_backend({pid})")
        time.sleep(random.uniform(0, 0.05))


def test_a_few_blows(cluster: Cluster, url: str) -> None:
    """Connections end, and the server crashes, under a program of each kind."""
    endure(cluster, url, [terminate, crash], READERS[1::2], WRITERS[1:])


@pytest.mark.slow
@pytest.mark.parametrize("blow", [crash, restart, terminate])
def test_many_blows(cluster: Cluster, url: str, blow: Blow) -> None:
    """Twenty faults of a kind strike programs of each kind and flavour."""
    endure(cluster, url, [blow] * 20, READERS, WRITERS)


def endure(cluster: Cluster, url: str, blows: list[Blow], reading: list[Program], writing: list[Program]) -> None:
    """Let programs work under *blows*, and compare their reports with the server's rows."""
    url += "&fallback_poll=3600&busy_timeout=2&max_size=2"
    with eventkit.connect(url) as kit, running(url, reading) as readers:
        eventually(lambda: all(reader.reported for reader in readers if reader.program[0] == "listen"), "they listen")
        with running(url, writing) as writers:
            for blow in [*blows, lambda _: None]:
                everybody_gets_on([*readers, *writers])
                kits = len(readers) + len(writers) + 1
                eventually(lambda n=kits: len(ours(cluster)) <= CONNECTIONS * n, "no connection is left behind")  # type: ignore[misc]
                time.sleep(random.uniform(0, 0.3))
                blow(cluster)
            everybody_gets_on([*readers, *writers])
        acked = {name: [fact for w in writers if w.program[0] == name for fact in w.facts] for name, _ in writing}
        eventually(lambda: own_cluster.succeeds(lambda: kit.stream("t").head()), "the server serves again")
        check_events(kit, acked["publish"], [reader for reader in readers if reader.program[0] == "subscribe"])
        check_notifications(acked["notify"], [reader for reader in readers if reader.program[0] == "listen"])
        check_tasks(kit, acked["enqueue"], [reader for reader in readers if reader.program[0] == "work"])
        check_purchases(kit, acked["buy"])


@contextmanager
def running(url: str, programs: list[Program]) -> Iterator[list[Running]]:
    """Run the programs, and kill them at the end."""
    started = [Running(program, url) for program in programs]
    try:
        yield started
    finally:
        for program in started:
            program.kill()


def everybody_gets_on(programs: list[Running]) -> None:
    """Return when each has reported something new twice, because the first may have been under way."""
    for _ in range(2):
        before = [program.reported for program in programs]
        for program, so_far in zip(programs, before, strict=True):
            eventually(lambda p=program, n=so_far: p.reported > n, f"{program.program} gets on")  # type: ignore[misc]


def check_events(kit: eventkit.EventKit, acked: list[tuple[int, ...]], subscribers: list[Running]) -> None:
    """Check that acknowledged events are stored once at their offsets, and subscribers got all events in order."""
    events = [(event.offset, event.payload) for event in kit.stream("t").read(limit=10_000_000)]
    assert {(offset, number) for number, offset in acked} <= set(events)
    assert len({number for _, number in events}) == len(events)
    for subscriber in subscribers:
        eventually(lambda s=subscriber: len(s.facts) >= len(events), "all is delivered")  # type: ignore[misc]
        assert subscriber.facts == events


def check_notifications(acked: list[tuple[int, ...]], listeners: list[Running]) -> None:
    """Check that every listener heard the acknowledged notifications once and in order."""
    for listener in listeners:
        eventually(lambda li=listener: set(acked) <= set(li.facts), "all is heard")  # type: ignore[misc]
        assert listener.facts == sorted(set(listener.facts))


def check_tasks(kit: eventkit.EventKit, acked: list[tuple[int, ...]], workers: list[Running]) -> None:
    """Check that every acknowledged task is done, and no attempt was handed out twice."""
    queue = kit.queue("q")
    eventually(lambda: not queue.stats().ready, "all is given out")
    # A claim whose answer was lost holds its task until the lease ends.
    advance(kit, 301)
    queue.enqueue("wakes the workers")
    eventually(lambda: not queue.size(), "all is done")
    claimed = Counter(fact for worker in workers for fact in worker.facts)
    assert set(claimed.values()) == {1}
    assert {id for (id,) in acked} <= {id for id, _ in claimed}
    assert not queue.dead()


def check_purchases(kit: eventkit.EventKit, acked: list[tuple[int, ...]]) -> None:
    """Check that both parts of each committed transaction are stored, and neither part of any other."""
    events = [event.payload for event in kit.stream("purchases").read(limit=10_000_000)]
    tasks = [task.payload for task in kit.queue("parcels").tasks(limit=10_000_000)]
    assert {number for (number,) in acked} <= set(events)
    assert sorted(events) == sorted(tasks)
    assert len(set(events)) == len(events)
