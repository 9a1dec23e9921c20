"""Minimal clients of a server, so that the measurement is that of the server."""

import asyncio
import json
import re
import time
from typing import Any

import uvloop


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
    """Clients of the server on a port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._waiting: list[asyncio.StreamWriter] = []
        self._loop = uvloop.new_event_loop()

    def prepare(self) -> None:
        """Create the queues."""
        for name in ("in", "out"):
            body = json.dumps({"name": name}).encode()
            self._loop.run_until_complete(self._once(request("POST", "/queues", body)))

    def post(self, path: str, body: bytes, connections: int, seconds: float) -> float:
        """Return the requests a second."""
        return self._loop.run_until_complete(self._all(connections, seconds, request("POST", path, body), 0.0))[0]

    def steady(self, path: str, body: bytes, connections: int, rate: float, seconds: float) -> float:
        """Return the 99th percentile of the response times at a rate of requests a second."""
        pause, one = connections / rate, request("POST", path, body)
        _, delays = self._loop.run_until_complete(self._all(connections, seconds, one, pause))
        return sorted(delays)[int(len(delays) * 0.99)]

    def drain(self, connections: int, seconds: float) -> float:
        """Return the messages a second that are polled and acked, 32 at a time."""
        return self._loop.run_until_complete(self._drain(connections, seconds))

    def wait(self, number: int) -> None:
        """Start a number of polling clients, and as many listening ones."""
        self._loop.run_until_complete(self._wait(number))

    def listen(self, number: int) -> list[int]:
        """Return when each of a number of events was received."""
        return self._loop.run_until_complete(self._listen(number))

    async def _client(self) -> Client:
        _, client = await self._loop.create_connection(Client, "127.0.0.1", self._port)
        return client

    async def _once(self, request: bytes) -> None:
        client = await self._client()
        await client.ask(request)
        client.close()

    async def _all(self, connections: int, seconds: float, request: bytes, pause: float) -> tuple[float, list[float]]:
        delays: list[float] = []
        ends = time.perf_counter() + seconds

        async def one() -> None:
            client = await self._client()
            due = time.perf_counter()
            while (now := time.perf_counter()) < ends:
                if pause:
                    due += pause
                    await asyncio.sleep(max(0.0, due - now))
                    now = due
                await client.ask(request)
                delays.append(time.perf_counter() - now)
            client.close()

        began = time.perf_counter()
        await asyncio.gather(*[one() for _ in range(connections)])
        return len(delays) / (time.perf_counter() - began), delays

    async def _drain(self, connections: int, seconds: float) -> float:
        ends, polled = time.perf_counter() + seconds, 0
        poll = request("POST", "/queues/out/poll?batch=32", b"")
        held = re.compile(rb'"id":(\d+),"token":"(\d+)"')

        async def one() -> None:
            nonlocal polled
            client = await self._client()
            while time.perf_counter() < ends and (messages := held.findall(await client.ask(poll))):
                body = b",".join([b'{"id":%b,"token":"%b"}' % message for message in messages])
                await client.ask(request("POST", "/queues/out/ack", b"[%b]" % body))
                polled += len(messages)
            client.close()

        began = time.perf_counter()
        await asyncio.gather(*[one() for _ in range(connections)])
        return polled / (time.perf_counter() - began)

    async def _wait(self, number: int) -> None:
        requests = [request("POST", "/queues/in/poll?wait_s=60", b""), request("GET", "/streams/orders/sse", b"")]
        for _ in range(number):
            for one in requests:
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.write(one)
                self._waiting.append(writer)

    async def _listen(self, number: int) -> list[int]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(request("GET", "/streams/orders/sse", b""))
        moments: list[int] = []
        while len(moments) < number:
            if (await reader.readline()).startswith(b"data: "):
                moments.append(time.monotonic_ns())
        writer.close()
        return moments


def request(method: str, path: str, body: bytes) -> bytes:
    """Return the bytes of a request."""
    fields = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": len(body)}
    head = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*head, "", ""]).encode() + body
