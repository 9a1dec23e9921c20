"""Connections to what a `Guard` permits, for httpcore."""

import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

import h11
import httpcore

from .addresses import Guard


class WatchedStream(httpcore.AsyncNetworkStream):
    """A connection that cannot be used again once it has brought bytes beyond the end of an answer.

    httpcore keeps such bytes and takes them for the answer to the next request.  It asks for ``is_readable`` before it
    uses a connection again, and closes one that is.
    """

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._answer: h11.Connection | None = None
        self._beyond = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read, and find where the answer ends."""
        data = await self._stream.read(max_bytes, timeout)
        if self._answer is None:
            self._answer = h11.Connection(h11.CLIENT)
            self._answer.send(h11.Request(method="POST", target="/", headers=[("Host", "x"), ("Content-Length", "0")]))
            self._answer.send(h11.EndOfMessage())
        self._beyond = True  # Unless this is an answer, or a part of one, and nothing else.
        with suppress(h11.RemoteProtocolError):
            self._answer.receive_data(data)
            while (event := self._answer.next_event()) is not h11.PAUSED and type(event) is not h11.ConnectionClosed:
                if event is h11.NEED_DATA:
                    self._beyond = False
                    break
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write; what is read next belongs to another answer than what was read before."""
        self._answer = None
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Encrypt the connection."""
        return WatchedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        """Return the attribute of the connection that httpcore asks for."""
        if info == "is_readable" and (self._beyond or self._has_decrypted()):
            return True
        return self._stream.get_extra_info(info)

    def _has_decrypted(self) -> bool:
        """Whether TLS has read more from the socket than was asked for."""
        tls = self._stream.get_extra_info("ssl_object")
        if tls is None:
            return False
        try:
            return bool(tls.read(1))
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            return True


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to the addresses that were judged, and asks nobody for them again."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._network = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A connection to the first of the host's addresses that answers."""
        failure: Exception | None = None
        try:
            addresses = await self._guard.addresses(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError("it has no address") from error
        for address in addresses:
            try:
                return WatchedStream(
                    await self._network.connect_tcp(
                        address,
                        port,
                        timeout=None if timeout is None else timeout / len(addresses),
                        local_address=local_address,
                        socket_options=socket_options,
                    )
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore.ConnectError("it has no address")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._network.sleep(seconds)
