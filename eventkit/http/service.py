"""The state of one application: its kit, its settings, its load limits, and its metrics."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from time import monotonic, perf_counter, time
from typing import Annotated, Any, NamedTuple, TypeVar, cast

import msgspec
from litestar.di import NamedDependency

from ..channel import Channel
from ..checks import STATES
from ..codec import Codec, encode_json, too_large
from ..errors import Unavailable
from ..kit import AsyncKit
from ..metrics import Counter, Gauge, Histogram, Registry
from ..operations import Operation, Probe
from ..operations.admin import Audited, CountDeaths, Deaths, ReadOverview
from ..operations.coordination import AcquireLock, ListWorkers, ReleaseLock
from ..operations.queue import FindQueue
from ..plans import Stop, completed
from ..protocols import AsyncConnection, AsyncEventKit, AsyncEventStream, AsyncNotificationChannel, AsyncTaskQueue
from ..queue import Queue
from ..stream import Stream
from ..values import Overview, WorkerInfo
from .bodies import Refusal
from .keys import still_permitted
from .routing import HTTPRequest

T = TypeVar("T")

_CHECK_EVERY = 0.25  # Seconds between two checks of the size of the write-ahead log.
_RECOVERY = 1.0  # Seconds after which the service accepts writes again that were too slow.
_WEIGHT = 0.1  # The weight of one write in the moving average.
_REMEMBERED = 1.0  # Seconds for which the existence of a queue is cached.

_NAMES = 10_000


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the service.  Durations are in seconds."""

    max_body: Annotated[int, msgspec.Meta(ge=1)] = 524_288  # The maximum size of a request body in bytes.
    max_receive: float = 30.0  # The longest time in which a request must arrive.
    max_ending: int = 20  # The longest time for open requests at shutdown.
    max_wait: float = 60.0  # The longest time for which a request may wait.
    heartbeat: float = 15.0  # The interval of keep-alive comments in streams of events.
    slow_reader: float = 30.0  # How long a stream of events waits for a client to read, before it ends.
    max_listeners: int = 10_000  # The maximum number of streams of events at once.
    max_wal: int = 268_435_456  # The bytes of SQLite's write-ahead log above which writes are refused.
    max_commit: float = 2.0  # The average seconds per write above which writes are refused for a second.
    max_writing: int = 1_000  # The maximum number of writes in progress.
    read_only: bool = False  # Whether the dashboard is read-only.
    cors_origins: list[str] = []  # Origins whose pages may call the service, as ``https://shop.example``; ``*`` is any.
    public_origin: str = ""  # The origin in browsers behind a proxy, such as ``https://eventkit.example``.
    trusted_proxies: list[str] = []  # Addresses and networks of proxies whose ``X-Forwarded-*`` headers are trusted.


def settings_of(given: dict[str, Any]) -> ServiceSettings:
    """Convert the settings of a file."""
    if unknown := given.keys() - set(ServiceSettings.__struct_fields__):
        known = ", ".join(ServiceSettings.__struct_fields__)
        raise ValueError(f"unknown setting {min(unknown)!r} of the service: use {known}")
    try:
        return msgspec.convert(given, ServiceSettings)
    except msgspec.ValidationError as error:
        raise ValueError(f"invalid setting of the service: {error}") from None


class Pressure:
    """The write load of one database, and its limits."""

    def __init__(self, connection: AsyncConnection, settings: ServiceSettings) -> None:
        # Backends without a write-ahead log have no limit of its size.
        self._wal: Any = getattr(connection, "wal_size", lambda: 0)
        self._settings = settings
        self.writing = 0
        self.commit = 0.0  # The moving average of seconds per write.
        self.wal = 0  # The bytes of the write-ahead log at the last check.
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
        if self.wal > self._settings.max_wal:
            return f"the write-ahead log has {self.wal:,} bytes"
        if self.writing >= self._settings.max_writing:
            return f"{self.writing:,} writes are in progress"
        if self.commit > self._settings.max_commit and now < self._measured_at + _RECOVERY:
            return f"writes take {self.commit:.1f} s"
        return None


class ServiceMetrics(Registry):
    """The metrics of one service, as in ``docs/metrics.md``."""

    def __init__(self) -> None:
        self.requests = Histogram("eventkit_http_request_seconds", "Latency of requests.", "method", "route", "status")
        self.open = Gauge("eventkit_http_requests_open", "Requests in progress.")
        self.database = Histogram("eventkit_database_seconds", "Latency of database operations.", "operation")
        self.waits = Counter("eventkit_waits_total", "Waits of requests, by what ended them.", "source")
        self.tasks = Gauge("eventkit_queue_tasks", "Tasks of a queue, counted up to 10,000.", "queue", "state")
        self.oldest = Gauge("eventkit_queue_oldest_ready_seconds", "Age of the oldest ready task.", "queue")
        self.paused = Gauge("eventkit_queue_paused", "1 while the queue is paused, else 0.", "queue")
        self.deaths = Counter("eventkit_deaths_total", "Tasks that died since the service started.", "queue", "reason")
        self.head = Gauge("eventkit_stream_head", "Highest settled offset of a stream.", "topic")
        self.events = Gauge("eventkit_stream_events", "Events of a stream, counted up to 10,000.", "topic")
        self.lag = Gauge("eventkit_consumer_lag", "Unread events of a consumer, up to 10,000.", "topic", "consumer")
        self.saved = Gauge(
            "eventkit_consumer_saved_seconds", "Unix time of a consumer's last saved offset.", "topic", "consumer"
        )
        self.fired = Counter("eventkit_schedule_fired_total", "Fires of a schedule that enqueued a task.", "schedule")
        self.skipped = Counter("eventkit_schedule_skipped_total", "Missed fires of a schedule.", "schedule")
        self.next_fire = Gauge("eventkit_schedule_next_seconds", "Unix time of a schedule's next fire.", "schedule")
        self.locks = Gauge("eventkit_locks_held", "Locks that are held.")
        self.results = Gauge("eventkit_results", "Stored results, counted up to 10,000.")
        self.workers = Gauge("eventkit_fleet_workers", "Live workers of all processes.")
        self.slots = Gauge("eventkit_fleet_slots", "Slots of all live workers.")
        self.running = Gauge("eventkit_fleet_running", "Running tasks of all live workers.")

    def show(self, sample: "Sample", deaths: list[Deaths]) -> None:
        """Set the metrics to a sample of the database."""
        of_names = (self.tasks, self.oldest, self.paused, self.head, self.events, self.lag, self.saved)
        for metric in (*of_names, self.fired, self.skipped, self.next_fire):
            metric.cells = {}
        # Many names share one cell: numbers are added, of ages and moments the highest counts.
        for name, queue in sample.overview.queues.items():
            for state in STATES:
                self.tasks.of(name, state).value += getattr(queue, state)
            _raise(self.oldest.of(name), queue.oldest_ready_age or 0)
            self.paused.of(name).value += queue.paused
        for name, stream in sample.overview.streams.items():
            _raise(self.head.of(name), stream.head)
            self.events.of(name).value += stream.events
            for consumer in stream.consumers:
                self.lag.of(name, consumer.name).value += consumer.lag
                _raise(self.saved.of(name, consumer.name), consumer.updated_ms / 1000)
        for name, schedule in sample.overview.schedules.items():
            self.fired.of(name).value += schedule.fired
            self.skipped.of(name).value += schedule.skipped
            if schedule.next_ms is not None:
                self.next_fire.of(name).value = schedule.next_ms / 1000
        for death in deaths:
            self.deaths.of(death.queue, death.reason).value += death.number
        self.locks.of().value = len(sample.overview.locks)
        self.results.of().value = sample.overview.results
        self.workers.of().value = len(sample.alive)
        self.slots.of().value = sum(worker.slots or 0 for worker in sample.alive)
        self.running.of().value = sample.totals["busy"]


def _raise(cell: Any, value: float) -> None:
    cell.value = max(cell.value, value)


class Sample(NamedTuple):
    """A sample of the database, with the greatest lag of each stream, and totals; its time is in seconds since 1970."""

    moment: float
    overview: Overview
    workers: list[WorkerInfo]
    alive: list[WorkerInfo]
    lags: dict[str, int]
    totals: dict[str, int]


class Point(NamedTuple):
    """Values for the charts: ready and dead tasks of each queue, and the greatest lag of each stream."""

    moment: float
    ready: dict[str, int]
    dead: dict[str, int]
    lag: dict[str, int]
    totals: dict[str, int]


FRESH = 2.0  # Seconds for which a sample is reused.
EVERY = 5.0  # Seconds between samples without requests.
KEPT = 120  # The number of points kept: those of ten minutes.
NAMES = 200  # The maximum number of queues and streams per point.
_SETTLING = 5_000  # Milliseconds after which a death is surely committed, and can be counted.


class Watch:
    """Samples the database by *execute*, and passes each sample to *show*."""

    def __init__(self, execute: Callable[[Any], Awaitable[Any]], show: Callable[[Sample, list[Deaths]], None]) -> None:
        self._execute = execute
        self._show = show
        self._lock = asyncio.Lock()
        self._sample: Sample | None = None
        self._sampled_at = 0.0
        self._counted: int | None = None
        self.points: deque[Point] = deque(maxlen=KEPT)

    async def sample(self) -> Sample:
        """Return a sample at most two seconds old."""
        if (fresh := self._fresh()) is None:
            async with self._lock:
                if (fresh := self._fresh()) is None:
                    fresh = self._sample = await self._read()
                    self._sampled_at = monotonic()
        return fresh

    def _fresh(self) -> Sample | None:
        return self._sample if monotonic() - self._sampled_at <= FRESH else None

    async def run(self) -> None:
        """Sample every five seconds, to have points for the charts."""
        while True:
            with suppress(Unavailable):  # Requests report the error.
                await self.sample()
            await asyncio.sleep(EVERY)

    async def _read(self) -> Sample:
        overview, workers = await self._execute(ReadOverview()), await self._execute(ListWorkers())
        self._counted, deaths = await self._execute(CountDeaths(self._counted, _SETTLING))
        alive = [worker for worker in workers if worker.alive]
        lags = {name: max((one.lag for one in found.consumers), default=0) for name, found in overview.streams.items()}
        totals = {state: sum(getattr(queue, state) for queue in overview.queues.values()) for state in STATES}
        totals["lag"] = max(lags.values(), default=0)
        totals["busy"] = sum(worker.running or 0 for worker in alive)
        sample = Sample(time(), overview, workers, alive, lags, totals)
        self._show(sample, deaths)
        if not self.points or sample.moment - self.points[-1].moment >= EVERY - 1:
            queues = list(overview.queues.items())[:NAMES]
            ready, dead = ({name: getattr(queue, state) for name, queue in queues} for state in ("ready", "dead"))
            self.points.append(Point(sample.moment, ready, dead, dict(list(lags.items())[:NAMES]), totals))
        return sample


_UNAUDITED = (AcquireLock, ReleaseLock)  # Operations that routes use only for mutual exclusion.

_entry: ContextVar[str | None] = ContextVar("eventkit_audit", default=None)


def audit(action: str, by: str, **about: Any) -> None:
    """Add further writes of this request to the audit log as *action*."""
    _entry.set(encode_json({"action": action, "by": by, **about}))


def stop_auditing() -> None:
    """Do not audit further writes of this request."""
    _entry.set(None)


class _Measured:
    """A connection that measures operations and waits, and audits writes."""

    def __init__(self, connection: AsyncConnection, metrics: ServiceMetrics) -> None:
        self._connection = connection
        self._seconds, self._waits = metrics.database, metrics.waits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def execute(self, operation: Operation[Any], tx: Any = None) -> Any:
        name, entry = operation.heading, _entry.get()
        if entry is not None and operation.writes and not isinstance(operation, _UNAUDITED):
            operation = Audited(operation, entry)
        began = perf_counter()
        try:
            return await self._connection.execute(operation, tx)
        finally:
            self._seconds.of(name).observe(perf_counter() - began)

    async def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool:
        woken = await self._connection.sleep(probe, timeout, stop)
        self._waits.of("news" if woken else "closing" if self._connection.closing else "time").value += 1
        return woken


class Verbatim(Codec):
    """A codec for payloads of bodies that passed the checks of `routing`: it keeps their JSON text."""

    def encode(self, payload: msgspec.Raw) -> str:
        """Return the text."""
        return self.encode_many([payload])[0]

    def encode_many(self, payloads: list[msgspec.Raw]) -> list[str]:
        """Return the text of each payload."""
        size = max(map(len, payloads), default=0)
        if size > self.largest:
            raise too_large(size, self.largest)
        return [str(payload, "utf-8") for payload in payloads]


class ServiceContext:
    """A kit for routes, whose payloads are the JSON text of requests."""

    def __init__(self, kit: AsyncEventKit, settings: ServiceSettings) -> None:
        if not isinstance(kit, AsyncKit):
            raise TypeError("the service needs an async kit: await eventkit.connect_async(url)")
        self.settings = settings
        self.metrics = ServiceMetrics()
        self.registries: list[Registry] = [self.metrics]
        """The registries that the service exports: its own, and those of workers in its process."""
        self.connection = cast(AsyncConnection, _Measured(kit._connection, self.metrics))
        measured = AsyncKit(self.connection)
        self.kit: AsyncEventKit = measured
        self._loops = measured._loops
        self.execute = self.connection.execute
        self.watch = Watch(self.execute, self.metrics.show)
        self.raw = Verbatim(msgspec.Raw, self.connection.max_payload)
        self.pressure = Pressure(kit._connection, settings)
        self.listeners = 0
        self.dropped = 0  # The number of listeners disconnected because they did not read.
        self.readiness: asyncio.Task[tuple[float, float | tuple[str, str]]] | None = (
            None  # The latest check of readiness.
        )
        self._known: dict[str, tuple[float, AsyncTaskQueue[Any]]] = {}

    def queue(self, name: str) -> AsyncTaskQueue[Any]:
        """Return a queue whose payloads are `msgspec.Raw`."""
        return Queue(self.execute, self._loops, name, self.raw)

    def stream(self, name: str) -> AsyncEventStream[Any]:
        """Return a stream whose payloads are `msgspec.Raw`."""
        return Stream(self.execute, self._loops, name, self.raw)

    def channel(self, name: str) -> AsyncNotificationChannel[Any]:
        """Return a channel whose payloads are `msgspec.Raw`."""
        return Channel(self.execute, self._loops, name, self.raw)

    async def known(self, queue: str) -> AsyncTaskQueue[Any]:
        """Return the queue; raise `Refusal` if it does not exist."""
        now = monotonic()
        until, handle = self._known.get(queue, (0.0, None))
        if handle is None or until < now:
            handle = self.queue(queue)
            if not await self.execute(FindQueue(queue)):
                raise Refusal(404, "unknown_queue", f"there is no queue {queue!r}: create it with POST /queues")
            if len(self._known) >= _NAMES:
                self._known.clear()
            self._known[queue] = (now + _REMEMBERED, handle)
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

    async def awaited(
        self,
        request: HTTPRequest,
        operation: Operation[T],
        probe: Probe,
        wait: float,
        give_back: Callable[[T], Awaitable[Any]] | None = None,
    ) -> T:
        """Execute *operation*, and for *wait* seconds again until it answers with something.

        The answer goes to *give_back* if the client has disconnected.
        """
        answer = await self.execute(operation)
        if not answer and wait:
            waiting = self._loops.attempt(operation, probe, min(wait, self.settings.max_wait))
            answer = await while_connected(request, waiting, give_back)
        return answer


async def while_connected(
    request: HTTPRequest, answer: Awaitable[T], give_back: Callable[[T], Awaitable[Any]] | None = None
) -> T:
    """Return the result of *answer*; pass it to *give_back* instead if the client disconnects first."""
    work, gone = asyncio.ensure_future(answer), asyncio.ensure_future(disconnected(request.receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        try:
            if gone.done():
                raise Refusal(499, "gone", "the client disconnected before the response")
            await still_permitted(request)
            return work.result()
        except BaseException:
            await completed(_take_back(work, give_back))
            raise
    finally:
        work.cancel()
        gone.cancel()


async def _take_back(work: "asyncio.Future[T]", give_back: Callable[[T], Awaitable[Any]] | None) -> None:
    work.cancel()
    await asyncio.wait({work})
    if give_back is not None and not work.cancelled() and work.exception() is None:
        await give_back(work.result())


async def disconnected(receive: Callable[[], Awaitable[Any]]) -> None:
    """Return when the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


Service = NamedDependency[ServiceContext]  # The type of the parameter ``service`` of pages.

# Parameters in the path of routes, which get the handle.
KnownQueue = Annotated[AsyncTaskQueue[Any], ServiceContext.known]
AnyStream = Annotated[AsyncEventStream[Any], ServiceContext.stream]
AnyChannel = Annotated[AsyncNotificationChannel[Any], ServiceContext.channel]
