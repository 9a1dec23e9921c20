"""The state of one application: its kit, its settings, and its load limits."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Annotated, Any, TypeVar, cast

import msgspec
from litestar.di import NamedDependency

from ..channel import Channel
from ..codec import encode_json
from ..kit import AsyncKit
from ..metrics import Registry
from ..operations import Operation, Probe
from ..operations.admin import Audited
from ..operations.coordination import AcquireLock, ReleaseLock
from ..operations.queue import FindQueue
from ..protocols import AsyncConnection, AsyncEventKit, AsyncEventStream, AsyncNotificationChannel, AsyncTaskQueue
from ..queue import Queue
from ..stream import Stream
from .metrics import Measured, ServiceMetrics, Watch
from .requests import Refusal, Verbatim

_CHECK_EVERY = 0.25
"""Seconds between two checks of the size of the write-ahead log."""

_RECOVERY = 1.0
"""Seconds after which the service accepts writes again that were too slow."""

_WEIGHT = 0.1
"""The weight of one write in the moving average."""


class Pressure:
    """The write load of one database, and its limits."""

    def __init__(self, connection: AsyncConnection, max_wal: int, max_commit: float, max_writing: int) -> None:
        # Backends without a write-ahead log have no limit of its size.
        self._wal: Any = getattr(connection, "wal_size", lambda: 0)
        self._max_wal = max_wal
        self._max_commit = max_commit
        self._max_writing = max_writing
        self.writing = 0
        self.commit = 0.0
        """The moving average of seconds per write."""
        self.wal = 0
        """The bytes of the write-ahead log at the last check."""
        self.refused = 0
        self._check_at = self._measured_at = 0.0

    @contextmanager
    def write(self) -> Iterator[None]:
        """Measure a write, or raise `Refusal` if the load is too high."""
        began = monotonic()
        if reason := self._too_much(began):
            self.refused += 1
            raise Refusal(429, "overloaded", f"{reason}: reduce concurrency, or try again later")
        self.writing += 1
        try:
            yield
        finally:
            self.writing -= 1
            self._measured_at = monotonic()
            self.commit += _WEIGHT * (self._measured_at - began - self.commit)

    def _too_much(self, now: float) -> str | None:
        if now >= self._check_at:
            self.wal, self._check_at = self._wal(), now + _CHECK_EVERY
        if self.wal > self._max_wal:
            return f"the write-ahead log has {self.wal:,} bytes"
        if self.writing >= self._max_writing:
            return f"{self.writing:,} writes are in progress"
        if self.commit > self._max_commit and now < self._measured_at + _RECOVERY:
            return f"writes take {self.commit:.1f} s"
        return None


_UNAUDITED = (AcquireLock, ReleaseLock)
"""Operations that routes use only for mutual exclusion."""

_entry: ContextVar[str | None] = ContextVar("eventkit_audit", default=None)


def audit(action: str, by: str, **about: Any) -> None:
    """Add further writes of this request to the audit log as *action*."""
    _entry.set(encode_json({"action": action, "by": by, **about}))


def stop_auditing() -> None:
    """Do not audit further writes of this request."""
    _entry.set(None)


def auditing(connection: AsyncConnection) -> AsyncConnection:
    """Return a connection that audits writes."""
    return cast(AsyncConnection, _Auditing(connection))


class _Auditing:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def execute(self, operation: Operation[Any], tx: Any = None) -> Any:
        entry = _entry.get()
        if entry is not None and operation.writes and not isinstance(operation, _UNAUDITED):
            operation = Audited(operation, entry)
        return await self._connection.execute(operation, tx)


T = TypeVar("T")

_REMEMBERED = 1.0
"""Seconds for which the existence of a queue is cached."""
_NAMES = 10_000


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the service.  Durations are in seconds."""

    max_body: Annotated[int, msgspec.Meta(ge=1)] = 524_288
    """The maximum size of a request body in bytes."""

    max_receive: float = 30.0
    """The longest time in which a request must arrive."""

    max_ending: int = 20
    """The longest time for open requests at shutdown."""

    max_wait: float = 60.0
    """The longest time for which a request may wait."""

    heartbeat: float = 15.0
    """The interval of keep-alive comments in streams of events."""

    slow_reader: float = 30.0
    """How long a stream of events waits for a client to read, before it ends."""

    max_listeners: int = 10_000
    """The maximum number of streams of events at once."""

    max_wal: int = 268_435_456
    """The bytes of SQLite's write-ahead log above which writes are refused."""

    max_commit: float = 2.0
    """The average seconds per write above which writes are refused for a second."""

    max_writing: int = 1_000
    """The maximum number of writes in progress."""

    read_only: bool = False
    """Whether the dashboard is read-only."""

    cors_origins: list[str] = []
    """Origins whose pages may call the service, such as ``https://shop.example``; ``*`` is any."""

    public_origin: str = ""
    """The origin of the service in browsers behind a proxy, such as ``https://eventkit.example``."""

    trusted_proxies: list[str] = []
    """Addresses and networks of proxies whose ``X-Forwarded-Proto`` and ``X-Forwarded-Host`` are trusted."""


def settings_of(given: dict[str, Any]) -> ServiceSettings:
    """Convert the settings of a file."""
    if unknown := given.keys() - set(ServiceSettings.__struct_fields__):
        known = ", ".join(ServiceSettings.__struct_fields__)
        raise ValueError(f"unknown setting {min(unknown)!r} of the service: use {known}")
    try:
        return msgspec.convert(given, ServiceSettings)
    except msgspec.ValidationError as error:
        raise ValueError(f"invalid setting of the service: {error}") from None


class ServiceContext:
    """A kit for routes, whose payloads are the JSON text of requests."""

    def __init__(self, kit: AsyncEventKit, settings: ServiceSettings) -> None:
        if not isinstance(kit, AsyncKit):
            raise TypeError("the service needs an async kit: await eventkit.connect_async(url)")
        self.settings = settings
        self.metrics = ServiceMetrics()
        self.registries: list[Registry] = [self.metrics]
        """The registries that the service exports: its own, and those of workers in its process."""
        self._connection = Measured(auditing(kit._connection), self.metrics)
        measured = AsyncKit(self._connection)
        self.kit: AsyncEventKit = measured
        self.watch = Watch(self._connection.execute, self.metrics.show)
        self._loops = measured._loops
        self.raw = Verbatim(msgspec.Raw, self._connection.max_payload)
        self.pressure = Pressure(kit._connection, settings.max_wal, settings.max_commit, settings.max_writing)
        self.listeners = 0
        self.dropped = 0
        """The number of listeners disconnected because they did not read."""
        self.readiness: asyncio.Task[tuple[float, float | Refusal]] | None = None
        """The latest check of readiness."""
        self._known: dict[str, float] = {}

    @property
    def closing(self) -> bool:
        """Whether waiting has ended for shutdown."""
        return bool(self._connection.closing)

    async def execute(self, operation: Operation[T]) -> T:
        """Execute an operation that no handle has."""
        answer: T = await self._connection.execute(operation)
        return answer

    @property
    def largest(self) -> int:
        """The maximum size of a payload in bytes of JSON text."""
        return self._connection.max_payload

    async def sleep(self, probe: Probe, timeout: float | None = None) -> bool:
        """Wait until *probe* is ready; return False at the timeout or at shutdown."""
        return bool(await self._connection.sleep(probe, timeout))

    async def attempt(self, operation: Operation[T], probe: Probe, wait: float) -> T:
        """Execute *operation* until it succeeds, each time that *probe* is ready, for *wait* seconds."""
        answer: T = await self._loops.attempt(operation, probe, wait)
        return answer

    def capped(self, wait: float) -> float:
        """Return *wait*, or the longest wait that the settings allow."""
        return min(wait, self.settings.max_wait)

    def queue(self, name: str) -> AsyncTaskQueue[Any]:
        """Return a queue whose payloads are `msgspec.Raw`."""
        return Queue(self._connection.execute, self._loops, name, self.raw)

    def stream(self, topic: str) -> AsyncEventStream[Any]:
        """Return a stream whose payloads are `msgspec.Raw`."""
        return Stream(self._connection.execute, self._loops, topic, self.raw)

    def channel(self, name: str) -> AsyncNotificationChannel[Any]:
        """Return a channel whose payloads are `msgspec.Raw`."""
        return Channel(self._connection.execute, self._loops, name, self.raw)

    async def known(self, queue: str) -> AsyncTaskQueue[Any]:
        """Return the queue; raise `Refusal` if it does not exist."""
        handle, now = self.queue(queue), monotonic()
        if self._known.get(queue, 0.0) < now:
            if not await self.execute(FindQueue(queue)):
                raise Refusal(404, "unknown_queue", f"there is no queue {queue!r}: create it with POST /queues")
            if len(self._known) >= _NAMES:
                self._known.clear()
            self._known[queue] = now + _REMEMBERED
        return handle

    def forget(self, queue: str) -> None:
        """Remove a queue from the cache of `known`."""
        self._known.pop(queue, None)

    @contextmanager
    def listener(self) -> Iterator[None]:
        """Count a stream of events."""
        self.listeners += 1
        try:
            yield
        finally:
            self.listeners -= 1

    def end_waiting(self) -> None:
        """End all waits, so that waiting requests are answered now."""
        self._connection.end_sleep()


Service = NamedDependency[ServiceContext]
"""The type of the parameter ``service`` of routes."""
