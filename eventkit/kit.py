"""Connecting: from a URL to a kit, and from a kit to its handles."""

from collections.abc import Awaitable, Callable, Generator, Iterable
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Self, cast
from urllib.parse import urlsplit

from . import checks
from .channel import Changes, Channel, Notifications, origin
from .checks import Duration
from .codec import Codec
from .errors import UnknownBackend
from .flavours import AsyncView, View
from .locks import AsyncLock, Limit, Lock
from .loops import AsyncLoops, Loops
from .operations.admin import ListChannels, ListLimits, ReadOverview, prune_channels
from .operations.claim import TasksAheadInQueues, fresh_token
from .operations.coordination import AcquireLock, ListWorkers, LockAhead
from .operations.queue import ListClusterLimits
from .operations.schedule import SchedulesAhead, tick
from .operations.tables import upkeep
from .outbox import PREFIX, AsyncDeliveries, Deliveries, Inbox, Outbox
from .plans import Call, Plan, repeat
from .protocols import AsyncConnection, AsyncEventKit, Backend, Connection, EventKit, documented
from .queue import Queue, Tasks, cluster_limit, plain_claims
from .results import Results
from .schedules import Schedules
from .stream import Stream
from .values import ChannelStart, Message

_EXTRAS = {"postgresql": "postgres"}
"""The extras to install that are not named like the scheme."""


def connect(url: str, *, create: bool = True) -> EventKit:
    """Connect to the database at *url* and return a kit.

    A database without eventkit's schema gets it, unless *create* is false; an older or newer schema raises
    `NotMigrated`.
    """
    return Kit(backend_of(url).connect(url, create=create))


def connect_async(url: str, *, create: bool = True) -> "Connecting":
    """`connect` for asyncio: to be awaited, or entered with ``async with``."""
    return Connecting(url, create)


def backend_of(url: str) -> Backend:
    """Return the backend that serves the URL's scheme."""
    if not isinstance(url, str):
        raise TypeError(f"a database is named by a URL such as 'sqlite:///events.db', not by {type(url).__name__}")
    return _backend(urlsplit(url).scheme)


@cache
def _backend(scheme: str) -> Backend:
    installed = {entry.name: entry for entry in entry_points(group="eventkit.backends")}
    if scheme not in installed:
        raise UnknownBackend(
            f"no installed backend serves {scheme or 'a URL without a scheme'!r}; installed are: "
            f"{', '.join(sorted(installed))}. Write the URL as in 'sqlite:///events.db'"
        )
    try:
        return cast(Backend, installed[scheme].load())
    except ImportError as error:
        extra = _EXTRAS.get(scheme.partition("+")[0], scheme.partition("+")[0])
        raise UnknownBackend(
            f"the backend for {scheme!r} cannot be imported ({error}): pip install 'eventkit-db[{extra}]'"
        ) from error


_MAINTENANCE = "eventkit:maintenance"
"""The holder of this lock does the maintenance.  The lock expires instead of being released, once in each interval."""


def _maintain_if_due(every: int) -> Plan[None]:
    """Maintain, unless a process has begun that in the last *every* milliseconds."""
    due = AcquireLock(_MAINTENANCE, fresh_token(), checks.default_worker(), every)
    if (yield due) is not None:
        yield from upkeep()


@documented(EventKit)
class _Handles:
    """The handles of kits, which are made without I/O."""

    _lock: Any

    def __init__(self, loops: Any, deliveries: Any) -> None:
        self._connection = loops.connection
        self._loops = loops
        self._deliveries = deliveries

    def stream(self, name: str, *, type: Any = None) -> Any:
        """Return a stream."""
        return Stream(self._connection.execute, self._loops, name, self._codec(type))

    def queue(self, name: str, *, type: Any = None) -> Any:
        """Return a task queue."""
        return Queue(self._connection.execute, self._loops, name, self._codec(type))

    def channel(self, name: str, *, type: Any = None) -> Any:
        """Return a notification channel."""
        return Channel(self._connection.execute, self._loops, name, self._codec(type))

    def listen(self, *channels: str, start: ChannelStart | int = "latest") -> Any:
        if not channels:
            raise ValueError("name at least one channel to listen to")
        names = tuple(checks.name("channel", name) for name in channels)
        return self._loops.iterate(Notifications(names, self._codec(None), origin(start, names)))

    def work(
        self,
        queues: Iterable[str | tuple[str, float]],
        worker: str | None = None,
        *,
        strict: bool = False,
        batch: int = 1,
        lease: Duration | None = None,
    ) -> Any:
        weights = checks.weights(queues)
        if not weights:
            raise ValueError("name at least one queue to claim from")
        order = plain_claims(weights, worker, batch, lease, self._codec(None), strict)
        return self._loops.iterate(Tasks(order, TasksAheadInQueues(tuple(weights))))

    def outbox(
        self,
        name: str,
        *,
        deliver: Callable[[Message[Any]], Any] | None = None,
        ordered: bool = False,
        type: Any = None,
    ) -> Any:
        """Return an outbox, which stores its messages in a queue."""
        checks.name("outbox", name, 255 - len(PREFIX))
        queue, execute = self.queue(PREFIX + name, type=type), self._connection.execute
        return Outbox(execute, self._deliveries, queue, self._codec(type), deliver, ordered)

    def inbox(self, consumer: str) -> Any:
        """Return a consumer's inbox."""
        return Inbox(self._connection.execute, consumer)

    def lock(self, name: str, ttl: Duration = 60, *, holder: str | None = None) -> Any:
        return self._lock(self._connection.execute, self._loops, name, ttl, holder)

    def limit(self, name: str, **given: Any) -> Any:
        """Return a limit: a window with *count* and *per*, or a bucket with *rate* and *burst*."""
        return Limit(self._connection.execute, name, **given)

    @property
    def results(self) -> Any:
        return Results(self._connection, self._loops, self._codec(None))

    @property
    def schedules(self) -> Any:
        return Schedules(self._connection.execute, self._loops, self._codec(None))

    def run_scheduler(self) -> Any:
        return self._loops.run(repeat(self._connection, tick, SchedulesAhead()))

    def maintain(self) -> Any:
        return self._loops.run(upkeep())

    def run_maintenance(self, every: Duration = 60) -> Any:
        interval = checks.milliseconds("every", every, least=1)
        return self._loops.run(repeat(self._connection, lambda: _maintain_if_due(interval), LockAhead(_MAINTENANCE)))

    def changes(self) -> Any:
        return self._loops.iterate(Changes())

    def channels(self) -> Any:
        return self._connection.execute(ListChannels())

    def prune_channels(self, *, older_than: Duration | None = None, keep_count: int | None = None) -> Any:
        return self._loops.run(prune_channels(*checks.retention(older_than, keep_count)))

    def overview(self) -> Any:
        return self._connection.execute(ReadOverview())

    def workers(self) -> Any:
        return self._connection.execute(ListWorkers())

    def cluster_limit(self, name: str, max_running: int | None, *, queues: Iterable[str] = ()) -> Any:
        return self._connection.execute(cluster_limit(name, max_running, queues))

    def cluster_limits(self) -> Any:
        return self._connection.execute(ListClusterLimits())

    def limits(self, limit: int = 1000) -> Any:
        return self._connection.execute(ListLimits(checks.count("limit", limit, least=1)))

    def transaction(self) -> Any:
        return self._connection.transaction()

    def _codec(self, type: Any) -> Codec:
        return Codec(type, self._connection.max_payload)

    def _end(self) -> Plan[None]:
        """End all that waits, and then the connection."""
        self._connection.end_sleep()
        return self._ending(self._deliveries.caller())

    def _ending(self, caller: Any) -> Plan[None]:
        try:
            yield Call(self._deliveries.close, caller)
            yield Call(self._loops.close)
        finally:
            yield Call(self._connection.close)


@documented(EventKit)
class Kit(_Handles):
    """The implementation of `protocols.EventKit`."""

    _lock = Lock

    def __init__(self, connection: Connection) -> None:
        loops = Loops(connection)
        super().__init__(loops, Deliveries(loops))

    def async_(self) -> AsyncEventKit:
        return AsyncKit(AsyncView(self._connection))

    def close(self) -> None:
        if not self._connection.closing:
            self._loops.complete(self._end())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@documented(EventKit)
class AsyncKit(_Handles):
    """The implementation of `protocols.AsyncEventKit`."""

    _lock = AsyncLock

    def __init__(self, connection: AsyncConnection) -> None:
        loops = AsyncLoops(connection)
        super().__init__(loops, AsyncDeliveries(loops))

    def sync(self) -> EventKit:
        return Kit(View(self._connection))

    async def close(self) -> None:
        if not self._connection.closing:
            await self._loops.complete(self._end())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class Connecting(Awaitable[AsyncEventKit]):
    """A connecting `AsyncEventKit`: ``await`` it, or enter it with ``async with``."""

    def __init__(self, url: str, create: bool) -> None:
        self._url = url
        self._create = create
        self._kit: AsyncKit | None = None

    def __await__(self) -> Generator[Any, Any, AsyncEventKit]:
        return self._connect().__await__()

    async def __aenter__(self) -> AsyncEventKit:
        return await self._connect()

    async def __aexit__(self, *error: object) -> None:
        if self._kit is not None:
            await self._kit.close()

    async def _connect(self) -> AsyncEventKit:
        self._kit = AsyncKit(await backend_of(self._url).connect_async(self._url, create=self._create))
        return self._kit
