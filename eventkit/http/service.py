"""`Desk`: what every route works with: the kit, and what was set for this application."""

from typing import Any, TypeVar

import msgspec
from litestar.di import NamedDependency

from ..kit import AsyncKit
from ..operations import Operation
from ..protocols import AsyncEventKit, AsyncEventStream, AsyncNotificationChannel, AsyncTaskQueue

T = TypeVar("T")


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be set of the service."""

    max_body: int = 524_288
    """The most bytes that the body of a request may have."""


class Desk:
    """A kit as routes use it: payloads go through as the text that they are."""

    def __init__(self, kit: AsyncEventKit, settings: ServiceSettings) -> None:
        if not isinstance(kit, AsyncKit):
            raise TypeError("the service works with an async kit: await eventkit.connect_async(url)")
        self.kit: AsyncEventKit = kit
        self.settings = settings
        self._connection = kit._connection

    async def execute(self, operation: Operation[T]) -> T:
        """The answer to what no handle asks."""
        answer: T = await self._connection.execute(operation)
        return answer

    def queue(self, name: str) -> AsyncTaskQueue[Any]:
        """A queue whose payloads are `msgspec.Raw`."""
        return self.kit.queue(name, type=msgspec.Raw)

    def stream(self, topic: str) -> AsyncEventStream[Any]:
        """A stream whose payloads are `msgspec.Raw`."""
        return self.kit.stream(topic, type=msgspec.Raw)

    def channel(self, name: str) -> AsyncNotificationChannel[Any]:
        """A channel whose payloads are `msgspec.Raw`."""
        return self.kit.channel(name, type=msgspec.Raw)

    def end_waiting(self) -> None:
        """Let every request that waits be answered now: nothing is waited for any more."""
        self._connection.end_sleep()


Service = NamedDependency[Desk]
"""For the signatures of routes, which have it as the parameter ``service``."""
