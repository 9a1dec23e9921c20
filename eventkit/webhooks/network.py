"""Connections to what a `Guard` permits, for httpcore."""

from collections.abc import Iterable
from typing import Any, cast

import httpcore

from .addresses import Guard


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
                return await self._network.connect_tcp(
                    address,
                    port,
                    timeout=None if timeout is None else timeout / len(addresses),
                    local_address=local_address,
                    socket_options=socket_options,
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore.ConnectError("it has no address")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._network.sleep(seconds)
