"""`serve`: the service as a process: a socket, a server on it, and an end that loses nothing.

Without any key the service is for this machine only: it refuses to listen on anything but loopback.  Told to stop, it
takes no more connections, answers at once whoever waits for something, ends streams of events where they are, and
closes the kit when the last answer is out.
"""

import asyncio
import contextlib
import ipaddress
import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Any, Literal

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..kit import connect_async
from ..metrics import Registry
from ..protocols import AsyncEventKit
from ..worker.signals import stopping
from .application import app
from .keys import Keys
from .origins import ANY
from .problems import Problem
from .service import ServiceSettings

logger = logging.getLogger("eventkit.http")

Beside = Callable[[AsyncEventKit, asyncio.Event, list[Registry]], Awaitable[Any]]
"""What runs beside the service in its process, until the event is set or the kit's waiting ends.

It adds what it counts to the registries, so that the service tells of that too.
"""


MAX_HEAD = 65_536
"""The most bytes that the request line and the headers of a request may have together."""

MAX_HEADERS = 100

_LINGER = 1.0
"""Seconds for which a client that was refused may go on sending before its connection is dropped."""


class NotForOthers(ValueError):
    """Raised where a service without keys is to be reached from other machines, or by anybody's pages."""


def serve(
    url: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8888,
    settings: ServiceSettings | None = None,
    body_secrets: Iterable[str] = (),
    beside: Sequence[Beside] = (),
    create: bool = True,
) -> None:
    """Serve the database at *url* until a signal; port 0 is any that is free, and the log says which.

    With *body_secrets*, what changes anything has to be signed with one of them.
    """
    alone = is_loopback(host)
    with contextlib.closing(_bound(host, port)) as listening, asyncio.Runner(loop_factory=_loops()) as runner:
        runner.run(_serve(url, listening, settings or ServiceSettings(), alone, list(body_secrets), beside, create))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches *host*, an address or a name."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise ValueError(f"there is no address {host!r} to listen on: {error}") from None
    return all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found)


async def _serve(
    url: str,
    listening: socket.socket,
    settings: ServiceSettings,
    alone: bool,
    body_secrets: list[str],
    beside: Sequence[Beside],
    create: bool,
) -> None:
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    async with connect_async(url, create=create) as kit:
        keys = Keys(kit, open_without_keys=alone, body_secrets=body_secrets)
        locked = await keys.locked()
        if not (alone or locked):
            raise NotForOthers(
                f"there is no key, so the service is for this machine alone and does not listen on "
                f"{listening.getsockname()[0]}: make a key with eventkit key add, or leave --host at 127.0.0.1"
            )
        if ANY in settings.cors_origins and not locked:
            raise NotForOthers(
                "there is no key, so pages of any origin could do everything: make a key with eventkit key add, "
                "or name the origins"
            )
        service = app(kit, settings=settings, guard=keys)
        server = _Server(_config(service, settings))

        def stop() -> None:
            server.should_exit = True
            loop.call_soon_threadsafe(end)

        def end() -> None:
            told.set()
            service.state.desk.end_waiting()

        with stopping(stop, lambda: True):
            async with asyncio.TaskGroup() as running:
                watching = running.create_task(service.state.desk.watch.run())
                for one in beside:
                    running.create_task(_beside(one, kit, told, service.state.desk.registries))
                address, port = listening.getsockname()[:2]
                shown = f"[{address}]" if ":" in address else address
                listening.listen(2048)
                logger.info("serving on http://%s:%s%s", shown, port, "" if locked else ", this machine alone: no keys")
                await server.serve([listening])
                end()
                watching.cancel()
        logger.info("the service has ended")


async def _beside(one: Beside, kit: AsyncEventKit, told: asyncio.Event, registries: list[Registry]) -> None:
    await one(kit, told, registries)


class _Server(uvicorn.Server):
    """uvicorn's, whose process has its signals handled elsewhere."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them."""
        yield


class _Bounded(HttpToolsProtocol):
    """uvicorn's protocol, with bounds on how long a request takes to arrive and on the size of its headers."""

    patience: float
    _giving_up: asyncio.TimerHandle | None = None
    _complete = False
    _head = 0
    """Bytes of the request line and the headers that were parsed, trailers included."""
    _count = 0
    _unparsed = 0
    """Bytes that came since the parser has last reported anything."""
    _refused = False

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of it, if this was not all."""
        if self._refused:
            return
        self._complete = False
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > MAX_HEAD and not self._refused:  # The parser collects a header until it is complete.
            self._refuse(431)
        if not self._complete and self._giving_up is None:
            self._wait()

    def on_message_begin(self) -> None:
        """There is more than was complete."""
        self._complete = False
        self._head = self._count = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count a part of the request line."""
        self._read(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        self._count += 1
        self._read(len(name) + len(value) + len(": \r\n"))
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body, which the application limits."""
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it is there."""
        self._complete = True
        self._unparsed = 0
        self._stop_waiting()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser has refused, or a callback of it."""
        self._refuse(431 if self._too_large else 400)

    @property
    def _too_large(self) -> bool:
        return self._head > MAX_HEAD or self._count > MAX_HEADERS

    def _read(self, size: int) -> None:
        self._unparsed = 0
        self._head += size
        if self._too_large:
            raise ValueError("the headers are too large")

    def _refuse(self, status: Literal[400, 431]) -> None:
        """Answer with *status*, and close the connection once the client has had time to read that."""
        self._refused = True
        self._stop_waiting()
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # An answer to the request before is under way.
            return
        body = msgspec.json.encode(_UNREADABLE[status])
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # A close with bytes unread would reset the connection, and the client might lose the answer.
        self._giving_up = self.loop.call_later(_LINGER, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more comes."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._giving_up = self.loop.call_later(self.patience, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None


_UNREADABLE = {
    400: Problem("this is not HTTP/1.1: check the client and the proxies before the service", 400, "malformed"),
    431: Problem(
        f"a request has at most {MAX_HEADERS} headers, of {MAX_HEAD:,} bytes together with its first line: send fewer",
        431,
        "headers_too_large",
    ),
}
"""The answer to a request that does not reach the application."""


def _config(service: Any, settings: ServiceSettings) -> uvicorn.Config:
    return uvicorn.Config(
        service,
        http=type("Bounded", (_Bounded,), {"patience": settings.max_receive}),
        timeout_keep_alive=75,
        timeout_graceful_shutdown=settings.max_ending,
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ValueError(f"nothing can listen on {host}:{port}: {error.strerror}; choose another --port") from None
    return listening


def _loops() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster event loop, which there is not for every system."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
