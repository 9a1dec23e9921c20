"""The service: how fast messages go in and out over HTTP, and what those cost who wait.

The load comes from a process of its own, over connections that are kept; its client is a few lines on sockets, so that
what is measured is the service.
"""

import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import eventkit

from .payloads import payloads
from .processes import Remote
from .report import Table, milliseconds, percent, ratio, thousands, verdict
from .rounds import Spread
from .settings import Settings

_CONNECTIONS = 16
_WAITING = 1000
_ROUNDS = 5


def measure(settings: Settings) -> Iterator[Table]:
    """On a file."""
    yield from tables(settings, "", lambda name: f"sqlite:///{settings.folder(f'http-{name}')}/kit.db", 20_000)


def tables(settings: Settings, title: str, new_database: Callable[[str], str], bar: int) -> Iterator[Table]:
    """What goes in and out, what waiting costs, and how soon a client hears of a commit."""
    yield _throughput(settings, title, new_database("throughput"), bar)
    yield _waiting(settings, title, new_database("waiting"))
    yield _hearing(settings, title, new_database("hearing"))


def _throughput(settings: Settings, title: str, url: str, bar: int) -> Table:
    table = Table(
        f"{title}Service: messages in and out",
        ("what", "messages/s", "beside it", "ratio", "p99 at half the load", "bar", "reached"),
        note=(
            f"{_CONNECTIONS} connections; rounds take turns, {settings.seconds(3):g} s each. *echo* is the same "
            "framework and server with one route that gives a JSON body back. The library's own is one process that "
            "enqueues 100 at a time, one call after the other."
        ),
    )
    rounds = 1 if settings.quick else _ROUNDS
    seconds = settings.seconds(3)
    with (
        Service(url, settings) as service,
        Echo(settings) as echo,
        Remote(Load, service.port) as load,
        Remote(Load, echo.port) as echoing,
        Remote(Library, url) as library,
    ):
        load.call("prepare")
        one, hundred = _body(1), _body(100)
        shares, hundreds, rates, drains = [], [], [], []
        for _ in range(rounds):
            bare = echoing.call("post", "/echo", one, _CONNECTIONS, seconds)
            rates.append((load.call("post", "/queues/in/messages", one, _CONNECTIONS, seconds), bare))
            shares.append(rates[-1][0] / bare)
            own = library.call("enqueue_many", seconds)
            many = 100 * load.call("post", "/queues/in/messages", hundred, 4, seconds)
            hundreds.append((many, own))
            library.call("fill", settings.count(60_000, least=2_000))
            drains.append(load.call("drain", 4, seconds))
        rate, bare = (statistics.median(column) for column in zip(*rates, strict=True))
        late = load.call("steady", "/queues/in/messages", one, _CONNECTIONS, rate / 2, seconds)
        spread = Spread.of(shares)
        good = verdict(spread.median >= 0.5)
        cells = [thousands(rate), f"echo {thousands(bare)}", ratio(spread), milliseconds(late)]
        table.add(["enqueue, one a request", *cells, "≥ 0.5", good])
        many, own = (statistics.median(column) for column in zip(*hundreds, strict=True))
        spread = Spread.of([a / b for a, b in hundreds])
        cells = [thousands(many), f"the library {thousands(own)}", ratio(spread), "–"]
        table.add(["enqueue, 100 a request", *cells, "≥ 0.8", verdict(spread.median >= 0.8)])
        drained = statistics.median(drains)
        cells = [thousands(drained), "–", "–", "–", f"≥ {thousands(bar)}/s", verdict(drained >= bar)]
        table.add(["poll + ack of 32", *cells])
    return table


def _waiting(settings: Settings, title: str, url: str) -> Table:
    number = settings.count(_WAITING, least=20)
    table = Table(
        f"{title}Service: who waits",
        ("who", "memory of the service", "processor, of a core", "bar", "reached"),
        note=f"Over {settings.seconds(15):g} s; the listeners are told every 15 s that the service is there.",
    )
    with Service(url, settings) as service, Remote(Load, service.port) as load:
        load.call("prepare")
        before = service.memory()
        load.call("wait", number)
        time.sleep(settings.seconds(3))
        began, spent = time.monotonic(), service.processor()
        time.sleep(settings.seconds(15))
        share, memory = (service.processor() - spent) / (time.monotonic() - began), service.memory()
        good = verdict(memory <= 150 and share <= 0.03)
        who = f"{number:,} long-polls and {number:,} listeners"
        table.add(["nobody", f"{before:.0f} MB", "–", "–", "–"])
        table.add([who, f"{memory:.0f} MB", percent(share), "≤ 150 MB, ≤ 3 %", good])
    return table


def _hearing(settings: Settings, title: str, url: str) -> Table:
    table = Table(
        f"{title}Service: from a commit to a listener's socket",
        ("events", "median", "p99", "bar", "reached"),
        note="Published by another process, without HTTP, one at a time after pauses of 10 ms.",
    )
    number = settings.count(500, least=10)
    with Service(url, settings) as service, Remote(Load, service.port) as load, Remote(Library, url) as library:
        load.begin("listen", number)
        time.sleep(1)
        sent = library.call("publish", number)
        heard = load.result()
        delays = sorted((there - gone) / 1e9 for there, gone in zip(heard, sent, strict=True))
        median = statistics.median(delays)
        p99 = delays[min(len(delays) - 1, int(len(delays) * 0.99))]
        table.add([f"{number}", milliseconds(median), milliseconds(p99), "≤ 3 ms", verdict(median <= 0.003)])
    return table


def _body(number: int) -> bytes:
    items = [{"payload": payload} for payload in payloads(number)]
    return json.dumps(items[0] if number == 1 else items).encode()


class _Process:
    """A server as a process of its own."""

    def __init__(self, command: list[str], folder: str) -> None:
        self._log = Path(folder, "log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self.port = self._find_port()

    def _find_port(self) -> int:
        while self._process.poll() is None:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", self._log.read_text("utf-8")):
                return int(found[1])
            time.sleep(0.05)
        raise RuntimeError(self._log.read_text("utf-8"))

    def memory(self) -> float:
        """Megabytes that are resident."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text("utf-8").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def processor(self) -> float:
        """Seconds of the processor that it has had."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)


class Service(_Process):
    """``eventkit serve`` on a database."""

    def __init__(self, url: str, settings: Settings) -> None:
        eventkit.connect(url).close()
        command = [sys.executable, "-m", "eventkit.cli", "serve", "--url", url, "--port", "0"]
        super().__init__(command, settings.folder(f"log-{time.monotonic_ns()}"))


class Echo(_Process):
    """The framework and the server, with one route that gives back what it gets."""

    def __init__(self, settings: Settings) -> None:
        super().__init__([sys.executable, "-m", "benchmarks.echo"], settings.folder("log-echo"))


class Library:
    """A kit in a process of its own."""

    def __init__(self, url: str) -> None:
        self._kit = eventkit.connect(url)

    def enqueue_many(self, seconds: float) -> float:
        """Messages a second, 100 at a time."""
        queue, batch, number = self._kit.queue("in"), list(payloads(100)), 0
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            queue.enqueue_many(batch)
            number += 100
        return number / (time.perf_counter() - began)

    def fill(self, number: int) -> None:
        """Have so many messages ready, and no others."""
        queue = self._kit.queue("out")
        queue.purge("ready")
        for _ in range(number // 1000):
            queue.enqueue_many(list(payloads(1000)))

    def publish(self, number: int) -> list[int]:
        """Publish events one at a time; when each was committed."""
        stream, moments = self._kit.stream("orders"), []
        for n in range(number):
            time.sleep(0.01)
            stream.publish(n)
            moments.append(time.monotonic_ns())
        return moments

    def close(self) -> None:
        """Let go of the database."""
        self._kit.close()


class Load:
    """Clients of the server on a port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._waiting: list[asyncio.StreamWriter] = []
        self._loop = asyncio.new_event_loop()

    def prepare(self) -> None:
        """Make the queues."""
        for name in ("in", "out"):
            body = json.dumps({"name": name}).encode()
            self._loop.run_until_complete(self._once(_request("POST", "/queues", body)))

    def post(self, path: str, body: bytes, connections: int, seconds: float) -> float:
        """Requests a second."""
        return self._loop.run_until_complete(self._all(connections, seconds, [_request("POST", path, body)], 0.0))[0]

    def steady(self, path: str, body: bytes, connections: int, rate: float, seconds: float) -> float:
        """The 99th percentile of the answers' delays at so many requests a second."""
        pause, request = connections / rate, _request("POST", path, body)
        _, delays = self._loop.run_until_complete(self._all(connections, seconds, [request], pause))
        return sorted(delays)[int(len(delays) * 0.99)]

    def drain(self, connections: int, seconds: float) -> float:
        """Messages a second that are polled and acked, 32 at a time."""
        return self._loop.run_until_complete(self._drain(connections, seconds))

    def wait(self, number: int) -> None:
        """Have so many poll, and as many listen."""
        self._loop.run_until_complete(self._wait(number))

    def listen(self, number: int) -> list[int]:
        """When each of so many events was heard."""
        return self._loop.run_until_complete(self._listen(number))

    async def _once(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(request)
        answer = await _answer(reader)
        writer.close()
        return answer

    async def _all(
        self, connections: int, seconds: float, requests: list[bytes], pause: float
    ) -> tuple[float, list[float]]:
        delays: list[float] = []
        ends = time.perf_counter() + seconds

        async def one() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            due = time.perf_counter()
            while (now := time.perf_counter()) < ends:
                if pause:
                    due += pause
                    await asyncio.sleep(max(0.0, due - now))
                    now = due
                for request in requests:
                    writer.write(request)
                    await _answer(reader)
                delays.append(time.perf_counter() - now)
            writer.close()

        began = time.perf_counter()
        await asyncio.gather(*[one() for _ in range(connections)])
        return len(delays) / (time.perf_counter() - began), delays

    async def _drain(self, connections: int, seconds: float) -> float:
        ends, polled = time.perf_counter() + seconds, 0
        poll = _request("POST", "/queues/out/poll?batch=32", b"")

        async def one() -> None:
            nonlocal polled
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            while time.perf_counter() < ends:
                writer.write(poll)
                messages = json.loads(await _answer(reader))
                if not messages:
                    break
                held = [{"id": message["id"], "token": message["token"]} for message in messages]
                writer.write(_request("POST", "/queues/out/ack", json.dumps(held).encode()))
                await _answer(reader)
                polled += len(messages)
            writer.close()

        began = time.perf_counter()
        await asyncio.gather(*[one() for _ in range(connections)])
        return polled / (time.perf_counter() - began)

    async def _wait(self, number: int) -> None:
        requests = [
            _request("POST", "/queues/in/poll?wait_s=60", b""),
            _request("GET", "/streams/orders/sse", b""),
        ]
        for _ in range(number):
            for request in requests:
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.write(request)
                self._waiting.append(writer)

    async def _listen(self, number: int) -> list[int]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(_request("GET", "/streams/orders/sse", b""))
        moments: list[int] = []
        while len(moments) < number:
            if (await reader.readline()).startswith(b"data: "):
                moments.append(time.monotonic_ns())
        writer.close()
        return moments


def _request(method: str, path: str, body: bytes) -> bytes:
    fields = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": len(body)}
    head = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*head, "", ""]).encode() + body


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    body = await reader.readexactly(int(length[1])) if length else b""
    if not head.startswith((b"HTTP/1.1 2", b"HTTP/1.0 2")):
        raise RuntimeError(f"{head!r} {body!r}")
    return body
