"""`Desk`: what every route works with: the kit, and what was set for this application."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Annotated, Any, TypeVar

import msgspec
from litestar.di import NamedDependency

from ..channel import Channel
from ..kit import AsyncKit
from ..metrics import Registry
from ..operations import Operation, Probe
from ..operations.queue_settings import FindQueue
from ..protocols import AsyncEventKit, AsyncEventStream, AsyncNotificationChannel, AsyncTaskQueue
from ..queue import Queue
from ..stream import Stream
from .auditing import auditing
from .bodies import Verbatim
from .measured import Measured
from .metrics import ServiceMetrics
from .pressure import Pressure
from .problems import Refusal
from .watch import Watch

T = TypeVar("T")

_REMEMBERED = 1.0
"""Seconds for which a queue that was there is taken to be there still."""
_NAMES = 10_000


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be set of the service.  Durations are seconds."""

    max_body: Annotated[int, msgspec.Meta(ge=1)] = 524_288
    """The most bytes that the body of a request may have."""

    max_receive: float = 30.0
    """How long a request may take to arrive, from its first byte to its last."""

    max_ending: int = 20
    """How long requests that are under way have to end, when the service is told to."""

    max_wait: float = 60.0
    """The longest that a request may wait for something."""

    heartbeat: float = 15.0
    """How often a stream of events says that it is there, when there is nothing else to say."""

    slow_reader: float = 30.0
    """How long a stream of events waits for a client to read, before it ends."""

    max_listeners: int = 10_000
    """How many streams of events there may be at once."""

    max_wal: int = 268_435_456
    """The bytes of SQLite's write-ahead log from which on nothing more is taken in."""

    max_commit: float = 2.0
    """The mean seconds of a write from which on nothing more is taken in for a second."""

    max_writing: int = 1_000
    """How many writes may wait for the database at once."""

    read_only: bool = False
    """Whether the dashboard only shows, and changes nothing."""

    cors_origins: list[str] = []
    """The origins whose pages may ask from within a browser, as in ``https://shop.example``; ``*`` is any."""

    public_origin: str = ""
    """The origin under which browsers have the service behind a proxy, as in ``https://eventkit.example``."""

    trusted_proxies: list[str] = []
    """Addresses and networks of proxies whose ``X-Forwarded-Proto`` and ``X-Forwarded-Host`` are believed."""


def settings_of(given: dict[str, Any]) -> ServiceSettings:
    """The settings that *given* is, as a file has them."""
    if unknown := given.keys() - set(ServiceSettings.__struct_fields__):
        known = ", ".join(ServiceSettings.__struct_fields__)
        raise ValueError(f"the service has no setting {min(unknown)!r}: there are {known}")
    try:
        return msgspec.convert(given, ServiceSettings)
    except msgspec.ValidationError as error:
        raise ValueError(f"a setting of the service is wrong: {error}") from None


class Desk:
    """A kit as routes use it: payloads go through as the text that they are."""

    def __init__(self, kit: AsyncEventKit, settings: ServiceSettings) -> None:
        if not isinstance(kit, AsyncKit):
            raise TypeError("the service works with an async kit: await eventkit.connect_async(url)")
        self.settings = settings
        self.metrics = ServiceMetrics()
        self.registries: list[Registry] = [self.metrics]
        """What is told of whoever reads metrics: ours, and those of what runs beside us."""
        self._connection = Measured(auditing(kit._connection), self.metrics)
        measured = AsyncKit(self._connection)
        self.kit: AsyncEventKit = measured
        self.watch = Watch(self._connection.execute, self.metrics.show)
        self._loops = measured._loops
        self.raw = Verbatim(msgspec.Raw, self._connection.max_payload)
        self.pressure = Pressure(kit._connection, settings.max_wal, settings.max_commit, settings.max_writing)
        self.listeners = 0
        self.dropped = 0
        """How many listeners were let go of because they did not read."""
        self.readiness: asyncio.Task[tuple[float, float | Refusal]] | None = None
        """The latest check of whether commits are noticed."""
        self._known: dict[str, float] = {}

    @property
    def closing(self) -> bool:
        """Whether nothing is waited for any more."""
        return bool(self._connection.closing)

    async def execute(self, operation: Operation[T]) -> T:
        """The answer to what no handle asks."""
        answer: T = await self._connection.execute(operation)
        return answer

    @property
    def largest(self) -> int:
        """The most bytes of JSON text that a payload may have."""
        return self._connection.max_payload

    async def sleep(self, probe: Probe, timeout: float | None = None) -> bool:
        """Wait until *probe* is ready; False when the time has passed, or waiting has ended."""
        return bool(await self._connection.sleep(probe, timeout))

    async def attempt(self, operation: Operation[T], probe: Probe, wait: float) -> T:
        """The answer, asked for again whenever it may come to something, for *wait* seconds."""
        answer: T = await self._loops.attempt(operation, probe, wait)
        return answer

    def patience(self, wait: float) -> float:
        """How long a request waits that wants to wait so long."""
        return min(wait, self.settings.max_wait)

    def queue(self, name: str) -> AsyncTaskQueue[Any]:
        """A queue whose payloads are `msgspec.Raw`."""
        return Queue(self._connection.execute, self._loops, name, self.raw)

    def stream(self, topic: str) -> AsyncEventStream[Any]:
        """A stream whose payloads are `msgspec.Raw`."""
        return Stream(self._connection.execute, self._loops, topic, self.raw)

    def channel(self, name: str) -> AsyncNotificationChannel[Any]:
        """A channel whose payloads are `msgspec.Raw`."""
        return Channel(self._connection.execute, self._loops, name, self.raw)

    async def known(self, queue: str) -> AsyncTaskQueue[Any]:
        """`queue`, or a refusal of one that nobody has made, configured, or enqueued anything in."""
        handle, now = self.queue(queue), monotonic()
        if self._known.get(queue, 0.0) < now:
            if not await self.execute(FindQueue(queue)):
                raise Refusal(404, "unknown_queue", f"there is no queue {queue!r}: make it with POST /queues")
            if len(self._known) >= _NAMES:
                self._known.clear()
            self._known[queue] = now + _REMEMBERED
        return handle

    def forget(self, queue: str) -> None:
        """Take nothing about the queue for known."""
        self._known.pop(queue, None)

    @contextmanager
    def listener(self) -> Iterator[None]:
        """Around a stream of events."""
        self.listeners += 1
        try:
            yield
        finally:
            self.listeners -= 1

    def end_waiting(self) -> None:
        """Let every request that waits be answered now: nothing is waited for any more."""
        self._connection.end_sleep()


Service = NamedDependency[Desk]
"""For the signatures of routes, which have it as the parameter ``service``."""
