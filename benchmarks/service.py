"""The service: the rate of messages over HTTP, and the cost of waiting clients.

The load comes from another process, over persistent connections.
"""

import asyncio
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import msgspec

import eventkit

from .contestants import WithKit, payloads
from .databases import Database, Settings
from .processes import Remote, status
from .report import Table, at_least, at_most, megabytes, milliseconds, percent, ratio, thousands, verdict
from .rounds import Spread, p99

_CONNECTIONS = 16
_WAITING = 1000
_DRAINED = {"SQLite": 20_000, "Postgres": 15_000}
"""The required messages a second that are polled and acked."""


def measure(settings: Settings, database: Database) -> Iterator[Table]:
    """Measure throughput, the cost of waiting, and the delay from a commit to a client."""
    yield _throughput(settings, database)
    yield _waiting(settings, database)
    yield _hearing(settings, database)


def _throughput(settings: Settings, database: Database) -> Table:
    seconds, url, path = settings.seconds(2), database.new(), "/queues/in/tasks"
    table = Table(
        "Service: messages in and out",
        "what | messages/s | beside it | ratio | p99 at half the load | bar | reached",
        note=f"{_CONNECTIONS} connections; rounds take turns, {seconds:g} s each. *echo* is the same "
        "framework and server with one route that returns a JSON body. The library's own is one process that "
        "enqueues 100 at a time, one call after the other.",
    )
    with (
        Server(service(url), settings) as served,
        Server(ECHO, settings) as echo,
        Remote(Load, served.port) as load,
        Remote(Load, echo.port) as echoing,
        Remote(Library, url) as library,
    ):
        load.call("prepare")
        one, hundred = _body(1), _body(100)
        ones, hundreds, drains = [], [], []
        for _ in range(settings.few_rounds):
            bare = len(echoing.call("post", "/echo", one, _CONNECTIONS, seconds)) / seconds
            ones.append((len(load.call("post", path, one, _CONNECTIONS, seconds)) / seconds, bare))
            own = library.call("enqueue_many", seconds)
            hundreds.append((100 * len(load.call("post", path, hundred, 4, seconds)) / seconds, own))
            library.call("fill", settings.count(60_000, least=2_000))
            drains.append(load.call("drain", 4, seconds))
        half = statistics.median(rate for rate, _ in ones) / 2
        late = p99(load.call("post", path, one, _CONNECTIONS, seconds, _CONNECTIONS / half))
    for title, pairs, beside, bar, delay in (
        ("enqueue, one a request", ones, "echo", 0.5, milliseconds(late)),
        ("enqueue, 100 a request", hundreds, "the library", 0.8, "–"),
    ):
        rate, other = (statistics.median(column) for column in zip(*pairs, strict=True))
        spread = Spread.of([a / b for a, b in pairs])
        cells = [thousands(rate), f"{beside} {thousands(other)}", ratio(spread), delay]
        table.add(title, *cells, *at_least(spread.median, bar))
    drained = statistics.median(drains)
    table.add(
        "poll + ack of 32", thousands(drained), *"–––", *at_least(drained, _DRAINED[database.name], "{:,}/s".format)
    )
    return table


def _waiting(settings: Settings, database: Database) -> Table:
    number, seconds = settings.count(_WAITING, least=20), settings.seconds(15)
    table = Table(
        "Service: waiting clients",
        "clients | memory of the service | processor, of a core | bar | reached",
        note=f"Over {seconds:g} s, beginning as long after they have connected; "
        "the service sends the listeners a heartbeat every 15 s.",
    )
    with Server(service(database.new()), settings) as served, Remote(Load, served.port) as load:
        load.call("prepare")
        before = served.memory()
        load.call("wait", number)
        # Clients that have just begun to wait poll a few times more.
        time.sleep(seconds)
        began, spent = time.monotonic(), served.processor()
        time.sleep(seconds)
        share, memory = (served.processor() - spent) / (time.monotonic() - began), served.memory()
    good = verdict(memory <= 150 and share <= 0.03)
    table.add("none", megabytes(before), "–", "–", "–")
    clients = f"{number:,} long-polls and {number:,} listeners"
    table.add(clients, megabytes(memory), percent(share), "≤ 150 MB, ≤ 3 %", good)
    return table


def _hearing(settings: Settings, database: Database) -> Table:
    number, url = settings.count(500, least=10), database.new()
    table = Table(
        "Service: from a commit to a listener's socket",
        "events | median | p99 | bar | reached",
        note="Published by another process, without HTTP, one at a time after pauses of 10 ms.",
    )
    with (
        Server(service(url), settings) as served,
        Remote(Load, served.port) as load,
        Remote(Library, url) as library,
    ):
        load.begin("listen", number)
        time.sleep(1)
        sent = library.call("publish", number)
        delays = [(there - gone) / 1e9 for there, gone in zip(load.result(), sent, strict=True)]
    median = statistics.median(delays)
    table.add(f"{number}", milliseconds(median), milliseconds(p99(delays)), *at_most(median, 0.003, milliseconds))
    return table


def _body(number: int) -> bytes:
    items = [{"payload": payload} for payload in payloads(number)]
    return json.dumps(items[0] if number == 1 else items).encode()


class Library(WithKit):
    """A kit in a process of its own."""

    def enqueue_many(self, seconds: float) -> float:
        """Return the messages a second, 100 at a time."""
        queue, batch, number = self.kit.queue("in"), list(payloads(100)), 0
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            queue.enqueue_many(batch)
            number += 100
        return number / (time.perf_counter() - began)

    def fill(self, count: int) -> None:
        """Leave exactly *count* messages ready."""
        queue = self.kit.queue("out")
        queue.purge("ready")
        for _ in range(count // 1000):
            queue.enqueue_many(list(payloads(1000)))

    def publish(self, number: int) -> list[int]:
        """Publish events one at a time, and return when each was committed."""
        stream, moments = self.kit.stream("orders"), []
        for n in range(number):
            time.sleep(0.01)
            stream.publish(n)
            moments.append(time.monotonic_ns())
        return moments


ECHO = ["-c", "from benchmarks.service import echo; echo()"]


def service(url: str) -> list[str]:
    """Return the arguments of ``eventkit serve`` on a database, which is created."""
    eventkit.connect(url).close()
    return ["-m", "eventkit.cli", "serve", "--url", url, "--port", "0"]


class Server:
    """A Python program that serves HTTP in a process of its own, and prints its address."""

    def __init__(self, arguments: list[str], settings: Settings) -> None:
        self._log = Path(settings.folder("log"), "log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([sys.executable, *arguments], stdout=log, stderr=log)
        self.port = self._find_port()

    def _find_port(self) -> int:
        while self._process.poll() is None:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", self._log.read_text("utf-8")):
                return int(found[1])
            time.sleep(0.05)
        raise RuntimeError(self._log.read_text("utf-8"))

    def memory(self) -> float:
        """Return the resident memory in megabytes."""
        return status(self._process.pid, "VmRSS") / 1024

    def processor(self) -> float:
        """Return the seconds of processor time used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)


def echo() -> None:
    """Serve only the service's framework, with one route that returns a JSON body, on a free port, and print it."""
    import uvicorn
    from litestar import Litestar, post
    from litestar.params import JSONBody

    @post("/echo", status_code=201)
    async def answer(data: JSONBody[dict[str, Any]]) -> dict[str, Any]:
        """Return the body."""
        return data

    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    application = Litestar([answer], openapi_config=None, logging_config=None)
    config = uvicorn.Config(
        application, http="httptools", loop="uvloop", ws="none", lifespan="off", log_level="warning", access_log=False
    )
    uvicorn.Server(config).run([listening])


class _Claimed(msgspec.Struct):
    """The fields of a claimed task that its ack needs."""

    id: int
    token: str


class Client(asyncio.Protocol):
    """A persistent connection with one request at a time."""

    _transport: asyncio.WriteTransport
    _answer: "asyncio.Future[bytes]"

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        """Store the transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Process a response or a part of it."""
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        at = head.find(b"content-length: ") + 16
        if end and len(body) >= (int(head[at:].partition(b"\r")[0]) if at > 15 else 0):
            self._received = b""
            if head.startswith(b"HTTP/1.1 2"):
                self._answer.set_result(body)
            else:
                self._answer.set_exception(RuntimeError(f"{head!r} {body!r}"))

    def ask(self, request: bytes) -> "asyncio.Future[bytes]":
        """Send a request, and return a future for the body of the response."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


class Load:
    """Minimal clients of the server on a port, so that the measurement is that of the server."""

    def __init__(self, port: int) -> None:
        import uvloop

        self._port = port
        self._waiting: list[asyncio.StreamWriter] = []
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.run = self._runner.run

    async def prepare(self) -> None:
        """Create the queues."""
        for name in ("in", "out"):
            client = await self._client()
            await client.ask(request("POST", "/queues", json.dumps({"name": name}).encode()))
            client.close()

    async def post(self, path: str, body: bytes, connections: int, seconds: float, pause: float = 0.0) -> list[float]:
        """Return the response times of requests on each connection, without pauses or at a fixed rate."""
        delays: list[float] = []
        ends, one = time.perf_counter() + seconds, request("POST", path, body)

        async def ask() -> None:
            client = await self._client()
            due = time.perf_counter()
            while (now := time.perf_counter()) < ends:
                if pause:
                    due += pause
                    await asyncio.sleep(max(0.0, due - now))
                    now = due
                await client.ask(one)
                delays.append(time.perf_counter() - now)
            client.close()

        await asyncio.gather(*[ask() for _ in range(connections)])
        return delays

    async def drain(self, connections: int, seconds: float) -> float:
        """Return the messages a second that are polled and acked, 32 at a time."""
        ends, polled = time.perf_counter() + seconds, 0
        poll = request("POST", "/queues/out/poll?batch=32", b"")
        claimed = msgspec.json.Decoder(list[_Claimed])

        async def one() -> None:
            nonlocal polled
            client = await self._client()
            while time.perf_counter() < ends and (tasks := claimed.decode(await client.ask(poll))):
                await client.ask(request("POST", "/queues/out/ack", msgspec.json.encode(tasks)))
                polled += len(tasks)
            client.close()

        began = time.perf_counter()
        await asyncio.gather(*[one() for _ in range(connections)])
        return polled / (time.perf_counter() - began)

    async def wait(self, number: int) -> None:
        """Start a number of polling clients, and as many listening ones."""
        requests = [request("POST", "/queues/in/poll?wait_s=60", b""), request("GET", "/streams/orders/sse", b"")]
        for _ in range(number):
            for one in requests:
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.write(one)
                self._waiting.append(writer)

    async def listen(self, number: int) -> list[int]:
        """Return when each of a number of events was received."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(request("GET", "/streams/orders/sse", b""))
        moments: list[int] = []
        while len(moments) < number:
            if (await reader.readline()).startswith(b"data: "):
                moments.append(time.monotonic_ns())
        writer.close()
        return moments

    async def _client(self) -> Client:
        _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", self._port)
        return client


def request(method: str, path: str, body: bytes) -> bytes:
    """Return the bytes of a request."""
    fields = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": len(body)}
    head = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*head, "", ""]).encode() + body
