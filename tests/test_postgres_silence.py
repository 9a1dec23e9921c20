"""Connections that the network swallows: they look open, and carry no data."""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import quote

import eventkit_postgres
import own_cluster
import pytest
from clusters import Cluster
from eventkit_postgres import connection, session, waking
from own_cluster import PATIENCE, eventually, sleepers, succeeds
from tcp_proxy import Proxy

import eventkit
from eventkit import Closed, Disconnected
from eventkit.conformance import proves
from eventkit.operations.tables import FetchEvents

cluster, direct, nothing_is_left = own_cluster.cluster, own_cluster.url, own_cluster.nothing_is_left

Connect = Callable[..., Any]


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    """Return a proxy between the listener and the server."""
    with Proxy(int(cluster.url.rpartition(":")[2].partition("/")[0])) as proxy:
        yield proxy


@pytest.fixture
def url(cluster: Cluster, direct: str, proxy: Proxy, nothing_is_left: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a URL whose listener alone is behind the proxy, checks itself often, and never polls."""
    monkeypatch.setattr(waking, "_REFRESH", 0.5)
    monkeypatch.setattr(waking, "_ANSWER", 0.5)
    behind = re.sub(r":\d+/", f":{proxy.port}/", cluster.url)
    return f"{direct}&fallback_poll=3600&listen_url={quote(behind, safe='')}"


def test_a_silent_listener_is_noticed_and_replaced(cluster: Cluster, url: str, proxy: Proxy, connect: Connect) -> None:
    """Its waiters wake for commits during the silence, and for later ones."""
    waiting, working = connect(url), connect(url)
    received: list[Any] = []
    events = iter(waiting.stream("t").subscribe(start="earliest"))
    reader = threading.Thread(target=lambda: [received.append(next(events).payload) for _ in range(3)])
    reader.start()
    for number in range(3):
        # A lost listener leaves its registration behind.
        eventually(lambda n=number: len(sleepers(cluster, url)) == n + 1, "the reader sleeps")  # type: ignore[misc]
        before = proxy.accepted
        if number < 2:
            assert proxy.fall_silent() == 1
        working.stream("t").publish(number)
        eventually(lambda n=number: received == [*range(n + 1)], f"event {number} arrives")  # type: ignore[misc]
        if number < 2:
            eventually(lambda n=before: proxy.accepted > n, "the listener connects anew")  # type: ignore[misc]
    reader.join(PATIENCE)
    events.close()


def test_closing_a_kit_whose_listener_is_silent(cluster: Cluster, url: str, proxy: Proxy, connect: Connect) -> None:
    """Closing takes no longer than the listener's timeout, and waiters return at once."""
    kit = connect(url)
    claimed: list[Any] = []
    waiter = threading.Thread(target=lambda: claimed.append(kit.queue("q").claim("w", wait=600)))
    waiter.start()
    eventually(lambda: sleepers(cluster, url), "the worker sleeps")
    proxy.fall_silent()
    began = time.monotonic()
    kit.close()
    waiter.join(PATIENCE)
    assert claimed == [[]]
    assert time.monotonic() - began < 10


def test_a_listener_without_a_server(cluster: Cluster, url: str, proxy: Proxy, connect: Connect) -> None:
    """While the listener cannot connect, waiters poll, and no loop runs without a pause."""
    kit = connect(url.replace("fallback_poll=3600", "fallback_poll=0.2").replace(str(proxy.port), "1"))
    claimed: list[Any] = []
    waiter = threading.Thread(target=lambda: claimed.extend(kit.queue("q").claim("w", wait=PATIENCE)))
    waiter.start()
    time.sleep(0.5)
    kit.queue("q").enqueue("found by a poll")
    waiter.join(PATIENCE)
    assert [task.payload for task in claimed] == ["found by a poll"]


def test_an_answer_that_is_lost(cluster: Cluster, direct: str, proxy: Proxy, connect: Connect) -> None:
    """A call whose answer is lost is not repeated; the error says that it may have been done."""
    kit = connect(re.sub(r":\d+/", f":{proxy.port}/", direct))
    stream, queue = kit.stream("t"), kit.queue("q")
    for number, call in enumerate((stream.publish, queue.enqueue)):
        mark = f"mark {number}"
        proxy.break_at(mark.encode())
        with pytest.raises(Disconnected, match=r"may or may not have taken effect.*check before repeating"):
            call(mark)
    with pytest.raises(Disconnected, match=r"may or may not have taken effect"), kit.transaction() as tx:
        stream.publish("committed", tx=tx)
        proxy.break_at(b"COMMIT")
    assert [event.payload for event in stream.read()] == ["mark 0", "committed"]
    assert [task.payload for task in queue.peek(10)] == ["mark 1"]
    proxy.break_at(b"events_after")
    assert len(stream.read()) == 2


@pytest.fixture
def behind(direct: str, proxy: Proxy, nothing_is_left: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a URL with all connections behind the proxy."""
    monkeypatch.setattr(waking, "_ANSWER", 1.0)
    for module in (session, connection):
        monkeypatch.setattr(module, "PARTING", 1.0)
    return re.sub(r":\d+/", f":{proxy.port}/", direct) + "&connect_timeout=2"


@proves("G15")
def test_a_call_whose_peer_never_answers(direct: str, behind: str, proxy: Proxy, connect: Connect) -> None:
    """Each call is `Disconnected` in time; when the peer recovers, the next call is served."""
    kit = connect(f"{behind}&answer_timeout=0.5&busy_timeout=1")
    stream = kit.stream("t")
    with ThreadPoolExecutor() as threads:  # This leaves several connections in the pool.
        list(threads.map(stream.publish, range(4)))
    proxy.hold()
    with pytest.raises(Disconnected, match=r"keeps the connection open.*may or may not have taken effect"):
        stream.publish("lost")
    with pytest.raises(Disconnected, match="answer_timeout|no connection"):
        stream.read()
    proxy.serve()
    eventually(lambda: succeeds(lambda: stream.publish("served")), "the peer recovers")
    assert sorted(map(str, (event.payload for event in connect(direct).stream("t").read()))) == [*"0123", "served"]
    with pytest.raises(Disconnected, match="does not answer"), kit.transaction() as tx:
        stream.publish("never", tx=tx)
        proxy.fall_silent()
    stream.publish("at once")  # The other idle connections are as silent.


@proves("G15")
@pytest.mark.parametrize("silent", ["opening", "fetching"])
def test_a_bulk_read_whose_peer_never_answers(direct: str, behind: str, proxy: Proxy, silent: str) -> None:
    """Reads of archives and Spark by Arrow are bounded as calls are; an answering peer is read as before."""
    url = f"{behind}&answer_timeout=0.5&busy_timeout=1"
    with eventkit.connect(direct) as kit:
        last = kit.stream("t").publish_many(range(100))[-1]

    def offsets() -> list[int]:
        with eventkit_postgres.arrow(url) as fetch:
            if silent == "fetching":
                fetch(FetchEvents("t", 0, last, [], None, None, 10), ["offset"])
                proxy.hold()
            found: list[int] = fetch(FetchEvents("t", 0, last, [], None, None, 1000), ["offset"])["offset"].to_pylist()
            return found

    if silent == "opening":
        assert len(offsets()) == 100
        proxy.hold()
    began = time.monotonic()
    with pytest.raises(Disconnected, match="answer"):
        offsets()
    assert time.monotonic() - began < 10
    proxy.serve()
    silent = "opening"
    assert len(offsets()) == 100


@proves("G15")
def test_loops_whose_peer_never_answers(direct: str, behind: str, proxy: Proxy, connect: Connect) -> None:
    """They continue soon after the peer has recovered, and miss nothing."""
    kit, other = connect(f"{behind}&answer_timeout=0.5&busy_timeout=1&fallback_poll=0.2"), connect(direct)
    received: list[Any] = []
    loops = [
        lambda: received.extend(event.payload for event in kit.stream("t").subscribe(start="earliest")),
        lambda: received.extend(task.payload for task in kit.queue("q").work("w", lease=2)),
        kit.run_scheduler,
        kit.run_maintenance,
    ]
    with ThreadPoolExecutor() as threads, closing(kit):
        running = [threads.submit(loop) for loop in loops]
        other.stream("t").publish("event 1")
        other.queue("q").enqueue("task 1")
        eventually(lambda: len(received) == 2, "all are at work")
        proxy.hold()
        other.stream("t").publish("event 2")
        other.queue("q").enqueue("task 2")
        time.sleep(3)
        assert not any(one.done() for one in running)
        proxy.serve()
        began = time.monotonic()
        eventually(lambda: {"event 2", "task 2"} <= set(received), "they go on")
        assert time.monotonic() - began < 15
        assert not any(one.done() for one in running)


@proves("G15")
@pytest.mark.parametrize("flavour", ["async"], indirect=True)
def test_a_cancelled_call_whose_peer_never_answers(behind: str, proxy: Proxy, flavour: str) -> None:
    """The caller's time limit holds at any answer timeout; closing the kit takes no longer either."""

    async def go() -> tuple[float, float]:
        async with await eventkit.connect_async(behind) as kit:
            await kit.stream("t").publish(1)
            proxy.hold()
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await kit.stream("t").publish(2)
            returned = time.monotonic()
        return returned - began, time.monotonic() - returned

    limited, closed = asyncio.run(go())
    assert limited < 10
    assert closed < 20


@proves("G15")
def test_closing_a_kit_whose_peer_never_answers(cluster: Cluster, behind: str, proxy: Proxy, connect: Connect) -> None:
    """A call under way ends with it, and a waiting claim returns nothing."""
    kit = connect(behind)
    claimed: list[Any] = []
    waiter = threading.Thread(target=lambda: claimed.append(kit.queue("q").claim("w", wait=600)))
    waiter.start()
    eventually(lambda: sleepers(cluster, behind), "the worker sleeps")
    proxy.hold()
    with ThreadPoolExecutor() as threads:
        call = threads.submit(kit.stream("t").publish, 2)
        time.sleep(0.5)
        began = time.monotonic()
        kit.close()
        assert time.monotonic() - began < 20
        with pytest.raises((Disconnected, Closed)):
            call.result(PATIENCE)
    waiter.join(PATIENCE)
    assert claimed == [[]]
