"""What a worker counts, in the text format that Prometheus reads; `instruments` shows OpenTelemetry the same.

A metric has a cell for each set of labels.  Cells are changed by one thread, that of the worker's event loop, and may
be read by any.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The upper bounds of what is counted by its duration."""


class Number:
    """A cell with one number, to be read and set."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """The number."""
        yield "", {}, self.value


class Durations:
    """A cell that counts durations by their length."""

    __slots__ = ("_told", "counts", "total")

    def __init__(self, told: Callable[[float], object] | None = None) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0
        self._told = told

    def observe(self, seconds: float) -> None:
        """Count one of so many seconds."""
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds
        if self._told is not None:
            self._told(seconds)

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """How many were at most so long, for each bound; then the sum and the number of all."""
        below = 0
        for bound, count in zip((*map(_plain, SECONDS), "+Inf"), self.counts, strict=True):
            below += count
            yield "_bucket", {"le": bound}, below
        yield "_sum", {}, self.total
        yield "_count", {}, below


class Metric:
    """One metric: its name, what it means, and its cells."""

    def __init__(self, kind: str, name: str, help: str, labels: tuple[str, ...]) -> None:
        self.kind = kind
        self.name = name
        self.help = help
        self.labels = labels
        self.cells: dict[tuple[str, ...], Any] = {}

    def lines(self) -> Iterator[str]:
        """The metric in Prometheus' text."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for values, cell in list(self.cells.items()):
            labels = dict(zip(self.labels, values, strict=True))
            for suffix, more, value in cell.samples():
                yield f"{self.name}{suffix}{_labels(labels | more)} {_plain(value)}"


class Counter(Metric):
    """Counts up."""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        super().__init__("counter", name, help, labels)

    def of(self, *values: str) -> Number:
        """The cell of these labels."""
        cell: Number = self.cells.setdefault(values, Number())
        return cell


class Gauge(Counter):
    """Goes up and down."""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        super().__init__(name, help, *labels)
        self.kind = "gauge"


class Histogram(Metric):
    """Counts durations."""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        super().__init__("histogram", name, help, labels)
        self.told: Callable[..., object] | None = None
        """Who else is told each duration, with its labels, of cells that are made from now on."""

    def of(self, *values: str) -> Durations:
        """The cell of these labels."""
        cell: Durations | None = self.cells.get(values)
        if cell is None:
            labels = dict(zip(self.labels, values, strict=True))
            cell = self.cells[values] = Durations(self.told and partial(self.told, attributes=labels))
        return cell


class Metrics:
    """The metrics of one worker; `docs/metrics.md` says what each is for."""

    def __init__(self) -> None:
        self.ended = Counter(
            "eventkit_tasks_ended_total", "Runs of tasks that have ended, by how.", "queue", "task", "outcome"
        )
        self.seconds = Histogram("eventkit_task_seconds", "How long runs of tasks took.", "queue", "task")
        self.lateness = Histogram(
            "eventkit_task_wait_seconds", "From when a task was due to when it was claimed.", "queue"
        )
        self.claims = Counter("eventkit_worker_claims_total", "Claims that came to something.", "queue")
        self.claimed = Counter("eventkit_worker_claimed_total", "Tasks that were claimed.", "queue")
        self.acks = Counter("eventkit_worker_ack_batches_total", "Batches of tasks that were acked together.")
        self.slots = Gauge("eventkit_worker_slots", "How many tasks may run at once.")
        self.running = Gauge("eventkit_worker_running", "Tasks that are running.")
        self.waiting = Gauge("eventkit_worker_waiting", "Tasks that were claimed and wait for a slot.")
        self.unsaid = Gauge("eventkit_worker_unsaid", "Outcomes that the database has not been told yet.")
        self.up = Gauge("eventkit_worker_database_up", "1 while the database answers, else 0.")
        self.failures = Counter("eventkit_worker_database_failures_total", "Calls that the database did not answer.")
        self.events = Counter(
            "eventkit_events_handled_total", "Events that subscribers have handled.", "topic", "consumer", "outcome"
        )
        self.notifications = Counter(
            "eventkit_notifications_handled_total", "Notifications that listeners have handled.", "channel", "outcome"
        )

    def __iter__(self) -> Iterator[Metric]:
        return iter(vars(self).values())

    def render(self) -> str:
        """All of them, in Prometheus' text."""
        return "".join(f"{line}\n" for metric in self for line in metric.lines())


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items()) + "}"


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
