"""`serve`: the process of the HTTP service."""

import asyncio
import contextlib
import ipaddress
import logging
import socket
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Any, Literal

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..kit import connect_async
from ..metrics import Registry
from ..protocols import AsyncEventKit
from ..worker.lifecycle import stopping
from .app import ANY, app
from .bodies import PROBLEM, Problem
from .keys import Keys
from .service import ServiceSettings

logger = logging.getLogger("eventkit.http")

Beside = Callable[[AsyncEventKit, asyncio.Event, list[Registry]], Coroutine[Any, Any, Any]]
"""A coroutine that runs in the process of the service until the event is set or the kit's waiting ends.

It adds its metrics to the registries, and the service exports them.
"""

MAX_HEAD = 65_536  # The maximum number of bytes of the request line and the headers of a request.
MAX_HEADERS = 100
_LINGER = 1.0  # Seconds for which a refused client may continue to send before its connection is closed.


class NotForOthers(ValueError):
    """Raised for a service without keys that other machines or pages of any origin could reach."""


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
    """Serve the database at *url* until a signal; port 0 picks a free port, which the log shows.

    With *body_secrets*, requests that may change something must be signed with one of them.
    """
    alone = is_loopback(host)
    with contextlib.closing(_bound(host, port)) as listening, asyncio.Runner(loop_factory=_loops()) as runner:
        runner.run(_serve(url, listening, settings or ServiceSettings(), alone, list(body_secrets), beside, create))


def is_loopback(host: str) -> bool:
    """Return whether *host*, an address or a name, is reachable only from this machine."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise ValueError(f"cannot listen on {host!r}: {error}") from None
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
    loop, ending = asyncio.get_running_loop(), asyncio.Event()
    async with connect_async(url, create=create) as kit:
        keys = Keys(kit, open_without_keys=alone, body_secrets=body_secrets)
        locked = await keys.locked()
        if not (alone or locked):
            raise NotForOthers(
                f"there are no keys, so the service listens on loopback only, not on {listening.getsockname()[0]}: "
                "add a key with eventkit key add, or use --host 127.0.0.1"
            )
        if ANY in settings.cors_origins and not locked:
            raise NotForOthers(
                "there are no keys, so pages of any origin would have full access: add a key with eventkit key add, "
                "or list the origins"
            )
        service = app(kit, settings=settings, guard=keys)
        context = service.state.context
        config = uvicorn.Config(
            service,
            http=type("Bounded", (_Bounded,), {"max_receive": settings.max_receive}),
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
        server = _Server(config)

        def stop() -> None:
            server.should_exit = True
            loop.call_soon_threadsafe(end)

        def end() -> None:
            ending.set()
            context.connection.end_sleep()

        with stopping(stop, lambda: True):
            async with asyncio.TaskGroup() as running:
                watching = running.create_task(context.watch.run())
                for one in beside:
                    running.create_task(one(kit, ending, context.registries))
                address, port = listening.getsockname()[:2]
                shown = f"[{address}]" if ":" in address else address
                listening.listen(2048)
                logger.info("serving on http://%s:%s%s", shown, port, "" if locked else ", local only: no keys")
                await server.serve([listening])
                end()
                watching.cancel()
        logger.info("the service has stopped")


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handling."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Bounded(HttpToolsProtocol):
    """uvicorn's protocol, with limits on the time of a request and on the size of its headers."""

    max_receive: float
    _timer: asyncio.TimerHandle | None = None
    _complete = False
    _head = 0  # Parsed bytes of the request line and the headers, trailers included.
    _count = 0
    _unparsed = 0  # Bytes since the parser last reported something.
    _refused = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._complete = False
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > MAX_HEAD and not self._refused:  # The parser collects a header until it is complete.
            self._refuse(431)
        if not self._complete and self._timer is None:
            self._wait()

    def on_message_begin(self) -> None:
        self._complete = False
        self._head = self._count = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._read(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count += 1
        self._read(len(name) + len(value) + len(": \r\n"))
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._complete = True
        self._unparsed = 0
        self._stop_waiting()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
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
        """Answer with *status*, and close the connection after the client had time to read the response."""
        self._refused = True
        self._stop_waiting()
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # The response to the previous request is in progress.
            return
        body = msgspec.json.encode(_UNREADABLE[status])
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {PROBLEM}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # Closing with unread bytes would reset the connection, and the client might lose the response.
        self._timer = self.loop.call_later(_LINGER, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._timer = self.loop.call_later(self.max_receive, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_UNREADABLE = {
    400: Problem.of(400, "malformed", "this is not HTTP/1.1: check the client, and proxies in between"),
    431: Problem.of(
        431,
        "headers_too_large",
        f"the request has more than {MAX_HEADERS} headers, or {MAX_HEAD:,} bytes of headers: send fewer",
    ),
}
"""Responses to requests that do not reach the application."""


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ValueError(f"cannot listen on {host}:{port}: {error.strerror}; use another --port") from None
    return listening


def _loops() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the faster event loop, if the system has it."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
