"""Connections that are swallowed by the network: open for all one can see, and nothing comes or goes."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import own_cluster
import pytest
from clusters import Cluster
from eventkit_postgres import listener
from own_cluster import PATIENCE, eventually, sleepers
from tcp_proxy import Proxy

from eventkit import Disconnected

cluster, direct, nothing_is_left = own_cluster.cluster, own_cluster.url, own_cluster.nothing_is_left

Connect = Callable[..., Any]


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    """Between the listener and the server."""
    with Proxy(int(cluster.url.rpartition(":")[2].partition("/")[0])) as proxy:
        yield proxy


@pytest.fixture
def url(cluster: Cluster, direct: str, proxy: Proxy, nothing_is_left: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """The listener alone is behind the proxy, calls itself often, and polls never."""
    monkeypatch.setattr(listener, "_REFRESH", 0.5)
    monkeypatch.setattr(listener, "_ANSWER", 0.5)
    behind = re.sub(r":\d+/", f":{proxy.port}/", cluster.url)
    return f"{direct}&fallback_poll=3600&listen_url={quote(behind, safe='')}"


def test_a_silent_listener_is_noticed_and_replaced(cluster: Cluster, url: str, proxy: Proxy, connect: Connect) -> None:
    """Whoever waits on it is woken of what was committed in the silence, and of what comes later."""
    waiting, working = connect(url), connect(url)
    received: list[Any] = []
    events = iter(waiting.stream("t").subscribe(start="earliest"))
    reader = threading.Thread(target=lambda: [received.append(next(events).payload) for _ in range(3)])
    reader.start()
    for number in range(3):
        # A listener that was lost leaves its registration behind.
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
    """It takes no longer than the listener's patience, and whoever waits is let go at once."""
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


def test_a_listener_that_finds_nobody(cluster: Cluster, url: str, proxy: Proxy, connect: Connect) -> None:
    """While there is no way to the place to listen at, waiters poll; nothing is tried in a tight loop."""
    kit = connect(url.replace("fallback_poll=3600", "fallback_poll=0.2").replace(str(proxy.port), "1"))
    claimed: list[Any] = []
    waiter = threading.Thread(target=lambda: claimed.extend(kit.queue("q").claim("w", wait=PATIENCE)))
    waiter.start()
    time.sleep(0.5)
    kit.queue("q").enqueue("found by a poll")
    waiter.join(PATIENCE)
    assert [task.payload for task in claimed] == ["found by a poll"]


def test_an_answer_that_is_lost(cluster: Cluster, direct: str, proxy: Proxy, connect: Connect) -> None:
    """A call that was carried out unheard is not repeated; it is said that it may have been."""
    kit = connect(re.sub(r":\d+/", f":{proxy.port}/", direct))
    stream, queue = kit.stream("t"), kit.queue("q")
    for number, call in enumerate((stream.publish, queue.enqueue)):
        mark = f"mark {number}"
        proxy.break_at(mark.encode())
        with pytest.raises(Disconnected, match=r"carried out or it was not.*look before you repeat"):
            call(mark)
    with pytest.raises(Disconnected, match=r"carried out or it was not"), kit.transaction() as tx:
        stream.publish("committed", tx=tx)
        proxy.break_at(b"COMMIT")
    assert [event.payload for event in stream.read()] == ["mark 0", "committed"]
    assert [task.payload for task in queue.peek(10)] == ["mark 1"]
    proxy.break_at(b"events_after")
    assert len(stream.read()) == 2
