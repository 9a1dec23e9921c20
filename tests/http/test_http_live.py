"""Long-polls and server-sent events, and their ends.  Real servers, real sockets."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from restoring import take_back
from services import Started, database
from working import until

import eventkit
from eventkit.access import ApiKeys
from eventkit.conformance.clauses import proves


class Follower:
    """A client of server-sent events, and the events it has received, by id."""

    def __init__(self, url: str, **headers: str) -> None:
        self.heard: list[tuple[int, Any]] = []
        self.unnumbered: list[str] = []
        """The events without an id."""
        self.ended = threading.Event()
        self._leave = threading.Event()
        self.attached = threading.Event()
        self._thread = threading.Thread(target=self._follow, args=(url, headers), daemon=True)
        self._thread.start()
        assert self.attached.wait(20)

    def _follow(self, url: str, headers: dict[str, str]) -> None:
        with contextlib.suppress(httpx.HTTPError), httpx.stream("GET", url, headers=headers, timeout=60) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            id, text = 0, ""
            for line in answer.iter_lines():
                self.attached.set()
                if line.startswith("id: "):
                    id = int(line[4:])
                elif line.startswith("data: "):
                    text += line[6:]
                elif not line and text:
                    if id:
                        self.heard.append((id, json.loads(text)["payload"]))
                    else:
                        self.unnumbered.append(text)
                    id, text = 0, ""
                if self._leave.is_set():
                    return
        self.ended.set()

    def leave(self) -> None:
        """Disconnect at the next line."""
        self._leave.set()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a database's URL of either kind; a process for each test is slow, so Postgres is in the slow group."""
    return database(request, tmp_path)


@pytest.fixture
def kit(shared: Started) -> Iterator[eventkit.EventKit]:
    """Return a kit beside the shared service, of another program."""
    with eventkit.connect(shared.url) as kit:
        yield kit


@pytest.fixture
def own_kit(started: Started) -> Iterator[eventkit.EventKit]:
    """Return a kit beside a service of its own, of another program."""
    with eventkit.connect(started.url) as kit:
        yield kit


@proves("E4")
def test_a_poll_answers_as_soon_as_there_is_something(shared: Started, kit: eventkit.EventKit, name: str) -> None:
    """Any commit wakes the poll, also one of a program without HTTP."""
    kit.queue(name).configure(lease=60)
    with ThreadPoolExecutor() as pool:
        poll = pool.submit(httpx.post, f"{shared.address}/queues/{name}/poll?wait_s=30", timeout=60)
        time.sleep(0.5)
        kit.queue(name).enqueue("now")
        began = time.monotonic()
        assert [task["payload"] for task in poll.result(20).json()] == ["now"]
        assert time.monotonic() - began < 5


@proves("E4")
def test_a_client_that_is_gone_has_no_task(shared: Started, kit: eventkit.EventKit, name: str) -> None:
    """A task claimed for a closed poll goes to the next one, with no attempt spent."""
    kit.queue(name).configure(lease=600)
    rest = "Host: localhost\r\nContent-Length: 0"
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", int(shared.address.rpartition(":")[2]))) as gone:
            gone.sendall(f"POST /queues/{name}/poll?wait_s=30 HTTP/1.1\r\n{rest}\r\n\r\n".encode())
            time.sleep(0.2)
    time.sleep(0.3)
    kit.queue(name).enqueue("kept")
    [task] = httpx.post(f"{shared.address}/queues/{name}/poll?wait_s=10", timeout=30).json()
    assert (task["payload"], task["attempt"]) == ("kept", 1)


@proves("E5")
def test_events_are_followed_without_a_gap(shared: Started, kit: eventkit.EventKit, name: str) -> None:
    """A follower gets past and new events, and after a lost connection those behind its last id."""
    orders = kit.stream(name)
    offsets = orders.publish_many(range(250))
    follower = Follower(f"{shared.address}/streams/{name}/sse?after=0")
    offsets += orders.publish_many(range(250, 260))
    until(lambda: len(follower.heard) == 260)
    assert follower.heard == list(zip(offsets, range(260), strict=True))
    follower.leave()
    more = orders.publish_many(["a", "b"])
    url = f"{shared.address}/streams/{name}/sse?after=0"
    again = Follower(url, **{"Last-Event-ID": str(offsets[-1])})
    until(lambda: again.heard == list(zip(more, ["a", "b"], strict=True)))


@proves("E5")
def test_a_client_is_not_left_behind_by_a_database_that_goes_back(
    started: Started, own_kit: eventkit.EventKit, url: str
) -> None:
    """A client continues at its consumer; without one it gets an error, at once and when it reconnects."""
    orders = own_kit.stream("orders")
    offsets = orders.publish_many(range(20))
    orders.save_offset("billing", offsets[9])
    address = f"{started.address}/streams/orders/sse"
    named, nameless = Follower(f"{address}?consumer=billing"), Follower(f"{address}?after=0")
    until(lambda: len(named.heard) == 10 and len(nameless.heard) == 20)
    take_back(own_kit, url, offsets[9])
    last = {"Last-Event-ID": str(offsets[-1])}
    refused = httpx.get(f"{address}?after=0", headers=last)
    assert (refused.status_code, refused.json()["code"]) == (409, "database_replaced")
    again = orders.publish_many(["a", "b"])
    back = Follower(f"{address}?consumer=billing", **last)
    for follower in (named, back):
        until(lambda follower=follower: follower.heard[-2:] == list(zip(again, ["a", "b"], strict=True)))
    assert nameless.ended.wait(20)
    assert (len(nameless.heard), json.loads(nameless.unnumbered[-1])["code"]) == (20, "database_replaced")


@proves("E5")
def test_a_consumer_is_where_it_has_acknowledged_to_be(shared: Started, kit: eventkit.EventKit, name: str) -> None:
    """Following saves nothing: a client that dies before it has handled an event gets it again."""
    orders = kit.stream(name)
    offsets = orders.publish_many(["a", "b", "c"])
    url = f"{shared.address}/streams/{name}/sse?consumer=search"
    first = Follower(url)
    until(lambda: len(first.heard) == 3)
    assert orders.offset("search") == 0
    acknowledged = httpx.post(
        f"{shared.address}/streams/{name}/consumers/search/ack", json={"offset": offsets[0]}, timeout=30
    )
    assert acknowledged.json() == {"moved": True}
    second = Follower(url)
    until(lambda: [payload for _, payload in second.heard] == ["b", "c"])


@proves("E5")
def test_what_is_published_from_now_on(shared: Started, kit: eventkit.EventKit, name: str) -> None:
    """Streams without a position and all channels start at their end; line breaks in payloads are kept."""
    orders, alerts = kit.stream(name), kit.channel(name)
    orders.publish("before")
    alerts.notify("before")
    follower = Follower(f"{shared.address}/streams/{name}/sse")
    listener = Follower(f"{shared.address}/channels/{name}/sse")
    body = b'{"payload": [1,\n 2]}'
    for path in (f"streams/{name}/events", f"channels/{name}"):
        headers = {"content-type": "application/json"}
        httpx.post(f"{shared.address}/{path}", content=body, headers=headers, timeout=30).raise_for_status()
    alerts.notify("after")
    until(lambda: len(listener.heard) == 2 and len(follower.heard) == 1)
    assert [payload for _, payload in listener.heard][1] == "after"


@pytest.mark.parametrize("settings", ["heartbeat = 0.5"])
@pytest.mark.parametrize("end", ["revoke", "expire"])
@proves("E18")
def test_a_key_that_ends_takes_its_streams_along(shared: Started, kit: eventkit.EventKit, name: str, end: str) -> None:
    """Event streams of the API and dashboard, idle or busy, end at a heartbeat; a waiting poll comes back empty."""
    keys = ApiKeys(kit)
    other = keys.add("another", ["consume"])
    key = keys.add("ends", ["consume"], expires=6 if end == "expire" else None)
    kit.queue(name).configure(lease=600)
    paths = (f"/streams/idle-{name}/sse", f"/streams/{name}/sse", f"/channels/{name}/sse", "/dashboard/live")
    ends = [Follower(shared.address + path, Authorization=f"Bearer {key}") for path in paths]
    stays = [Follower(shared.address + path, Authorization=f"Bearer {other}") for path in paths[:3]]
    with ThreadPoolExecutor() as pool:
        poll = pool.submit(
            httpx.post,
            f"{shared.address}/queues/{name}/poll?wait_s=30",
            headers={"authorization": f"Bearer {key}"},
            timeout=60,
        )
        time.sleep(1)
        assert not any(one.ended.is_set() for one in ends)
        if end == "revoke":
            keys.revoke(key.id)
        deadline = time.monotonic() + 20
        while not all(one.ended.is_set() for one in ends):
            assert time.monotonic() < deadline, [one.ended.is_set() for one in ends]
            kit.stream(name).publish(1)
            time.sleep(0.05)
        kit.queue(name).enqueue("for another")
        assert poll.result(20).status_code == 401
    assert [json.loads(one.unnumbered[-1])["code"] for one in ends[:3]] == ["unauthorized"] * 3
    assert [task.payload for task in kit.queue(name).claim("w")] == ["for another"]
    assert not any(one.ended.is_set() for one in stays)


@pytest.mark.parametrize("settings", ["slow_reader = 1.0"])
@proves("E6")
def test_a_client_that_does_not_read_is_disconnected(shared: Started, kit: eventkit.EventKit, name: str) -> None:
    """The server buffers nothing for it meanwhile."""
    big = kit.stream(name)
    address = ("127.0.0.1", int(shared.address.rpartition(":")[2]))
    with socket.create_connection(address) as slow:
        slow.sendall(f"GET /streams/{name}/sse?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        for _ in range(20):
            big.publish_many(["x" * 50_000] * 20)
        until(lambda: httpx.get(f"{shared.address}/health").json()["listeners_dropped"] == 1)
        assert httpx.get(f"{shared.address}/health").json()["listeners"] == 0


@pytest.mark.parametrize("settings", ["max_receive = 1.0"])
@proves("E6")
@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"POST /queues HTTP/1.1\r\nHost: localhost\r\nX-",
        b"POST /queues HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{",
    ],
)
def test_a_client_that_sends_too_slowly_is_disconnected(shared: Started, beginning: bytes) -> None:
    """The connection is closed before the first byte, in the headers and in the body, even if bytes arrive slowly."""
    with socket.create_connection(("127.0.0.1", int(shared.address.rpartition(":")[2]))) as slow:
        slow.sendall(beginning)
        slow.settimeout(0.2)
        began = time.monotonic()
        while time.monotonic() - began < 20:
            try:
                if not slow.recv(1000):
                    break
            except TimeoutError:
                if beginning:
                    slow.sendall(b"a")
            except OSError:
                break
        assert time.monotonic() - began < 10
    assert httpx.get(f"{shared.address}/healthz").status_code == 200


@proves("E6")
def test_a_body_that_is_too_large_is_refused_as_it_comes(shared: Started) -> None:
    """A body without a declared size is refused too: the answer comes before the end."""
    with socket.create_connection(("127.0.0.1", int(shared.address.rpartition(":")[2]))) as sender:
        sender.sendall(b"POST /queues HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        sender.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
        with contextlib.suppress(OSError):
            for _ in range(12):
                sender.sendall(chunk)
        sender.settimeout(20)
        assert b" 413 " in sender.recv(1000)


@proves("E7")
def test_shutdown_answers_waiting_requests(started: Started, own_kit: eventkit.EventKit, tmp_path: Path) -> None:
    """Long-polls come back empty, streams of events end, nothing is lost, and the exit code is 0."""
    own_kit.queue("q").configure(lease=600)
    with ThreadPoolExecutor(20) as pool:
        polls = [pool.submit(httpx.post, f"{started.address}/queues/q/poll?wait_s=50", timeout=60) for _ in range(10)]
        followers = [Follower(f"{started.address}/streams/orders/sse") for _ in range(5)]
        time.sleep(0.5)
        assert started.stop() == 0
        assert [(poll.result(20).status_code, poll.result(20).json()) for poll in polls] == [(200, [])] * 10
        assert all(follower.ended.wait(20) for follower in followers)
    assert "Traceback" not in started.log.read_text()
    own_kit.queue("q").enqueue("kept")
    assert [task.attempt for task in own_kit.queue("q").claim("w")] == [1]
