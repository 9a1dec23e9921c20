"""The metrics of a worker, and OpenTelemetry's instruments and spans where an application uses it."""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from ..metrics import SECONDS, Counter, Gauge, Histogram, Registry
from ..telemetry import start_span
from ..values import Task

OUTCOMES = ("succeeded", "retried", "dead", "snoozed", "released", "cancelled")
"""The outcomes of a run."""


class Metrics(Registry):
    """The metrics of one worker; `docs/metrics.md` describes them."""

    def __init__(self) -> None:
        self.ended = Counter(
            "eventkit_tasks_ended_total", "Runs of tasks that have ended, by outcome.", "queue", "task", "outcome"
        )
        self.seconds = Histogram("eventkit_task_seconds", "Duration of the runs of tasks.", "queue", "task")
        self.lateness = Histogram(
            "eventkit_task_wait_seconds", "Time from when a task was due until it was claimed.", "queue"
        )
        self.claims = Counter("eventkit_worker_claims_total", "Claims that returned tasks.", "queue")
        self.claimed = Counter("eventkit_worker_claimed_total", "Tasks that were claimed.", "queue")
        self.acks = Counter("eventkit_worker_ack_batches_total", "Batches of tasks that were acked together.")
        self.slots = Gauge("eventkit_worker_slots", "Tasks that may run at once.")
        self.running = Gauge("eventkit_worker_running", "Tasks that are running.")
        self.waiting = Gauge("eventkit_worker_waiting", "Tasks that were claimed and wait for a slot.")
        self.stuck = Gauge("eventkit_worker_stuck", "Slots held by runs that were stopped and have not ended.")
        self.unsaid = Gauge("eventkit_worker_unsaid", "Outcomes that are not saved in the database yet.")
        self.up = Gauge("eventkit_worker_database_up", "1 while the database answers, else 0.")
        self.failures = Counter("eventkit_worker_database_failures_total", "Calls to the database that failed.")
        self.events = Counter(
            "eventkit_events_handled_total", "Events that subscribers have handled.", "topic", "consumer", "outcome"
        )
        self.notifications = Counter(
            "eventkit_notifications_handled_total", "Notifications that listeners have handled.", "channel", "outcome"
        )


_lock = Lock()
_workers: list[Metrics] = []
_ended = Metrics()
"""The counts of workers that have ended, so that a counter never decreases."""


@contextmanager
def shown(metrics: Metrics) -> Iterator[None]:
    """Export *metrics* to OpenTelemetry, if it is loaded, while the body runs, and their counts from then on."""
    if "opentelemetry.metrics" not in sys.modules:
        yield
        return
    histograms = _histograms()
    for metric in metrics:
        if isinstance(metric, Histogram):
            metric.recorder = histograms[metric.name].record
    with _lock:
        _workers.append(metrics)
    try:
        yield
    finally:
        with _lock:
            _workers.remove(metrics)
            for metric, total in zip(metrics, _ended, strict=True):
                if type(total) is Counter:
                    for values, cell in metric.cells.items():
                        total.of(*values).value += cell.value


@cache
def _histograms() -> dict[str, Any]:
    """Create all instruments, once for the process: a meter cannot remove any.  Return the histograms' by name."""
    from opentelemetry import metrics

    meter = metrics.get_meter("eventkit")
    exported = {}
    for metric in _ended:
        if isinstance(metric, Histogram):
            options: dict[str, Any] = {"unit": "s", "description": metric.help}
            try:
                bounded = meter.create_histogram(metric.name, explicit_bucket_boundaries_advisory=SECONDS, **options)
            except TypeError:  # Before OpenTelemetry 1.30, only a view of the application sets the bounds.
                bounded = meter.create_histogram(metric.name, **options)
            exported[metric.name] = bounded
        else:
            make = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
            make(metric.name, callbacks=[_callback(metric.name)], description=metric.help)
    return exported


def _callback(name: str) -> Callable[[Any], Iterable[Any]]:
    """Return the callback by which OpenTelemetry reads the metric *name*, in a thread of its own."""

    def observe(_: Any) -> Iterable[Any]:
        from opentelemetry.metrics import Observation

        sums: dict[tuple[str, ...], float] = defaultdict(float)
        with _lock:
            alike = [metric for metrics in (_ended, *_workers) for metric in metrics if metric.name == name]
            for metric in alike:
                for values, cell in list(metric.cells.items()):
                    sums[values] += cell.value
        labels = alike[0].labels
        return [Observation(value, dict(zip(labels, values, strict=True))) for values, value in sums.items()]

    return observe


def begin_span(tasks: list[Task[Any]], name: str) -> Any:
    """Begin the span of a run, the child of the one that enqueued the first of *tasks*; return it.

    It is current in the context variables of the caller, which are the run's own and end with it.
    """
    from opentelemetry import context, trace

    task = tasks[0]
    attributes = {
        "messaging.system": "eventkit",
        "messaging.operation.type": "process",
        "messaging.destination.name": task.queue,
        "messaging.message.id": str(task.id),
        "messaging.batch.message_count": len(tasks),
        "eventkit.task.name": name,
        "eventkit.task.attempt": task.attempt,
    }
    span = start_span(f"{name} run", "CONSUMER", task.headers, attributes)
    context.attach(trace.set_span_in_context(span))
    return span


def end_span(span: Any, error: BaseException | None) -> None:
    """End a span, with *error* or successfully."""
    if error is not None:
        from opentelemetry.trace import Status, StatusCode

        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()
