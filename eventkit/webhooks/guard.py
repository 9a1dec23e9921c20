"""The guard against calls of internal addresses, and connections that obey it."""

import asyncio
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, cast

import h11
import httpcore

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_UNICAST = IPv6Network("2000::/3")
"""Other IPv6 addresses are local, or wrap an IPv4 address: mapped, translated or NAT64."""

_REFUSED: tuple[Network, ...] = (
    # Public addresses that reach the cloud provider's own services, or a gateway that unwraps a refused address.
    IPv4Network("168.63.129.16/32"),  # Azure's metadata
    IPv4Network("192.0.0.0/24"),  # protocol assignments; Oracle's metadata
    IPv4Network("192.88.99.0/24"),  # 6to4 relays
    IPv6Network("2001::/32"),  # Teredo
    IPv6Network("2002::/16"),  # 6to4
)


class AddressRefused(Exception):
    """Raised for a host that resolves to an address that may not be called."""


class Guard:
    """The policy of callable addresses.  *allow* are further networks, such as ``10.1.0.0/16`` or ``127.0.0.1``."""

    def __init__(self, allow: Iterable[str] = ()) -> None:
        try:
            self._allowed = tuple(map(ip_network, allow))
        except ValueError as error:
            raise ValueError(f"allow= takes networks, such as 10.1.0.0/16: {error}") from None

    def permits(self, address: Address) -> bool:
        """Return whether *address* may be called."""
        if any(address in network for network in self._allowed):
            return True
        refused = any(address in network for network in _REFUSED) or (address.version == 6 and address not in _UNICAST)
        return address.is_global and not address.is_multicast and not refused

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of *host*; raise `AddressRefused` if one is refused, ``OSError`` if there is none."""
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        texts = list(dict.fromkeys(str(info[4][0]) for info in found))
        for text in texts:
            if not self.permits(ip_address(text)):
                raise AddressRefused(
                    f"{host} resolves to {text}, which is not a public address: allow its network in allow= to call it"
                )
        return texts


class WatchedStream(httpcore.AsyncNetworkStream):
    """A connection that cannot be reused after it received bytes beyond the end of a response.

    httpcore would take such bytes for the response to the next request.  It checks ``is_readable`` before it reuses a
    connection, and closes one that is.
    """

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._answer: h11.Connection | None = None
        self._beyond = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read, and track the end of the response."""
        data = await self._stream.read(max_bytes, timeout)
        if self._answer is None:
            self._answer = h11.Connection(h11.CLIENT)
            self._answer.send(h11.Request(method="POST", target="/", headers=[("Host", "x"), ("Content-Length", "0")]))
            self._answer.send(h11.EndOfMessage())
        self._beyond = True  # Unless the data is at most one response.
        with suppress(h11.RemoteProtocolError):
            self._answer.receive_data(data)
            while (event := self._answer.next_event()) is not h11.PAUSED and type(event) is not h11.ConnectionClosed:
                if event is h11.NEED_DATA:
                    self._beyond = False
                    break
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write a request; the next read belongs to another response."""
        self._answer = None
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return WatchedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable" and (self._beyond or self._has_decrypted()):
            return True
        return self._stream.get_extra_info(info)

    def _has_decrypted(self) -> bool:
        """Return whether TLS holds decrypted bytes that were not read."""
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
    """Connects to the addresses that the guard checked, without resolving the host again."""

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
        """Return a connection to the first address of the host that accepts one."""
        failure: Exception | None = None
        try:
            addresses = await self._guard.addresses(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError("the host has no address") from error
        for address in addresses:
            try:
                share = None if timeout is None else timeout / len(addresses)
                stream = await self._network.connect_tcp(address, port, share, local_address, socket_options)
                return WatchedStream(stream)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore.ConnectError("the host has no address")

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)
