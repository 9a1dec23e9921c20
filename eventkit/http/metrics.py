"""Metrics of the service: requests, database latency, and the contents of the database."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from time import monotonic, perf_counter, time
from typing import Any, NamedTuple, TypeVar

from ..errors import Unavailable
from ..metrics import Counter, Gauge, Histogram, Registry
from ..operations import Operation, Probe
from ..operations.admin import CountDeaths, Deaths, ReadOverview
from ..operations.coordination import ListWorkers
from ..plans import Stop
from ..protocols import AsyncConnection
from ..stats import Overview, WorkerInfo

STATES = ("scheduled", "ready", "leased", "dead", "done")


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
        self.head = Gauge("eventkit_stream_head", "Highest settled offset of a topic.", "topic")
        self.events = Gauge("eventkit_stream_events", "Events of a topic, counted up to 10,000.", "topic")
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

    def show(self, overview: Overview, workers: list[WorkerInfo], deaths: list[Deaths]) -> None:
        """Set the metrics to a sample of the database."""
        for gauge in (self.tasks, self.oldest, self.paused, self.head, self.events, self.lag, self.saved):
            gauge.clear()
        for metric in (self.fired, self.skipped, self.next_fire):
            metric.cells = {}
        for name, queue in overview.queues.items():
            for state in STATES:
                self.tasks.of(name, state).value += getattr(queue, state)
            oldest = self.oldest.of(name)
            oldest.value = max(oldest.value, queue.oldest_ready_age or 0)
            self.paused.of(name).value += queue.paused
        for topic, stream in overview.topics.items():
            head = self.head.of(topic)
            head.value = max(head.value, stream.head)
            self.events.of(topic).value += stream.events
            for consumer in stream.consumers:
                self.lag.of(topic, consumer.name).value += consumer.lag
                saved = self.saved.of(topic, consumer.name)
                saved.value = max(saved.value, consumer.updated_ms / 1000)
        for name, schedule in overview.schedules.items():
            self.fired.of(name).value += schedule.fired
            self.skipped.of(name).value += schedule.skipped
            if schedule.next_ms is not None:
                self.next_fire.of(name).value = schedule.next_ms / 1000
        for death in deaths:
            self.deaths.of(death.queue, death.reason).value += death.number
        alive = [worker for worker in workers if worker.alive]
        self.locks.of().value = len(overview.locks)
        self.results.of().value = overview.results
        self.workers.of().value = len(alive)
        self.slots.of().value = sum(worker.slots or 0 for worker in alive)
        self.running.of().value = sum(worker.running or 0 for worker in alive)


T = TypeVar("T")


class Measured:
    """A connection that measures operations and waits."""

    def __init__(self, connection: AsyncConnection, metrics: ServiceMetrics) -> None:
        self._connection = connection
        self._seconds, self._waits = metrics.database, metrics.waits

    @property
    def max_payload(self) -> int:
        """The maximum size of a payload in bytes of JSON text."""
        return self._connection.max_payload

    @property
    def closing(self) -> bool:
        """Whether `end_sleep` was called."""
        return self._connection.closing

    async def execute(self, operation: Operation[T], tx: Any = None) -> T:
        """Execute and time *operation*."""
        began = perf_counter()
        try:
            return await self._connection.execute(operation, tx)
        finally:
            self._seconds.of(operation.heading).observe(perf_counter() - began)

    async def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool:
        """Wait until *probe* is ready, and count why the wait ended."""
        woken = await self._connection.sleep(probe, timeout, stop)
        self._waits.of("news" if woken else "closing" if self.closing else "time").value += 1
        return woken

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Begin a transaction, as `AsyncEventKit.transaction` does."""
        return self._connection.transaction()

    def rouse(self) -> None:
        """Make every running `sleep` check its probe again."""
        self._connection.rouse()

    def end_sleep(self) -> None:
        """Make every `sleep` return False, now and from now on."""
        self._connection.end_sleep()

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


FRESH = 2.0
"""Seconds for which a sample is reused."""

EVERY = 5.0
"""Seconds between samples without requests."""

KEPT = 120
"""The number of points kept: those of ten minutes."""

NAMES = 200
"""The maximum number of queues and topics per point."""

_SETTLING = 5_000
"""Milliseconds after which a death is surely committed, and can be counted."""


class Sample(NamedTuple):
    """A sample of the database, its number, and its time in seconds since 1970."""

    number: int
    moment: float
    overview: Overview
    workers: list[WorkerInfo]


class Point(NamedTuple):
    """Values for the charts: ready and dead tasks of each queue, and the greatest lag of each topic."""

    moment: float
    ready: dict[str, int]
    dead: dict[str, int]
    lag: dict[str, int]
    totals: dict[str, int]


class Watch:
    """Samples the database by *execute*, and passes each sample to *show*."""

    def __init__(
        self,
        execute: Callable[[Any], Awaitable[Any]],
        show: Callable[[Overview, list[WorkerInfo], list[Deaths]], None],
    ) -> None:
        self._execute = execute
        self._show = show
        self._lock = asyncio.Lock()
        self._sample: Sample | None = None
        self._sampled_at = 0.0
        self._counted: int | None = None
        self.points: deque[Point] = deque(maxlen=KEPT)

    async def sample(self) -> Sample:
        """Return a sample at most two seconds old."""
        if self._sample is None or monotonic() - self._sampled_at > FRESH:
            async with self._lock:
                if self._sample is None or monotonic() - self._sampled_at > FRESH:
                    self._sample = await self._read()
                    self._sampled_at = monotonic()
        return self._sample

    def forget(self) -> None:
        """Make the next sample read the database."""
        self._sampled_at = float("-inf")

    async def run(self) -> None:
        """Sample every five seconds, to have points for the charts."""
        while True:
            with suppress(Unavailable):  # Requests report the error.
                await self.sample()
            await asyncio.sleep(EVERY)

    async def _read(self) -> Sample:
        overview, workers = await self._execute(ReadOverview()), await self._execute(ListWorkers())
        self._counted, deaths = await self._execute(CountDeaths(self._counted, _SETTLING))
        self._show(overview, workers, deaths)
        number = 0 if self._sample is None else self._sample.number + 1
        sample = Sample(number, time(), overview, workers)
        if not self.points or sample.moment - self.points[-1].moment >= EVERY - 1:
            self.points.append(_point(sample))
        return sample


def _point(sample: Sample) -> Point:
    queues = list(sample.overview.queues.items())
    topics = list(sample.overview.topics.items())
    totals = {
        state: sum(getattr(queue, state) for _, queue in queues) for state in ("ready", "leased", "scheduled", "dead")
    }
    lag = {name: max((consumer.lag for consumer in topic.consumers), default=0) for name, topic in topics}
    totals["lag"] = max(lag.values(), default=0)
    totals["running"] = sum(worker.running or 0 for worker in sample.workers if worker.alive)
    return Point(
        sample.moment,
        {name: queue.ready for name, queue in queues[:NAMES]},
        {name: queue.dead for name, queue in queues[:NAMES]},
        dict(list(lag.items())[:NAMES]),
        totals,
    )
