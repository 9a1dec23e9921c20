"""Metrics: numbers with a name and labels, as text for Prometheus, or as JSON.

A metric has a cell for each set of labels.  Cells are changed by one thread, that of an event loop, and may be read by
any.  Labels are names that users choose, and a queue for each customer must not make a metric that no monitor can
store: from the thousandth set of labels on, all further ones share one cell, whose labels are ``(others)``.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The upper bounds of the buckets of a histogram, in seconds."""

MOST = 1_000
"""The maximum number of sets of labels of a metric."""

OTHERS = "(others)"
"""The value of each label of the shared cell."""


class Number:
    """A cell with one number, to be read and set."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """Yield the number."""
        yield "", {}, self.value


class Durations:
    """A cell that counts durations by their length."""

    __slots__ = ("_recorder", "counts", "total")

    def __init__(self, recorder: Callable[[float], object] | None = None) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0
        self._recorder = recorder

    def observe(self, seconds: float) -> None:
        """Count one of so many seconds."""
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds
        if self._recorder is not None:
            self._recorder(seconds)

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """Yield how many were at most so long, for each bound; then the sum and the number of all."""
        below = 0
        for bound, count in zip((*map(_plain, SECONDS), "+Inf"), self.counts, strict=True):
            below += count
            yield "_bucket", {"le": bound}, below
        yield "_sum", {}, self.total
        yield "_count", {}, below


class Metric:
    """One metric: its name, its description, and its cells."""

    def __init__(self, kind: str, name: str, help: str, labels: tuple[str, ...]) -> None:
        self.kind = kind
        self.name = name
        self.help = help
        self.labels = labels
        self.cells: dict[tuple[str, ...], Any] = {}

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """Yield each of its numbers: name, labels and value."""
        for values, cell in list(self.cells.items()):
            labels = dict(zip(self.labels, values, strict=True))
            for suffix, more, value in cell.samples():
                yield f"{self.name}{suffix}", labels | more, value

    def lines(self) -> Iterator[str]:
        """Yield the lines of the metric in Prometheus' text format."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for name, labels, value in self.samples():
            yield f"{name}{_labels(labels)} {_plain(value)}"

    def bounded(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """Return the labels under which these are counted."""
        if values in self.cells or len(self.cells) < MOST:
            return values
        return (OTHERS,) * len(values)


class Counter(Metric):
    """A number that only grows."""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        super().__init__("counter", name, help, labels)

    def of(self, *values: str) -> Number:
        """Return the cell of these labels."""
        cell: Number = self.cells.setdefault(self.bounded(values), Number())
        return cell


class Gauge(Counter):
    """A number that goes up and down."""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        super().__init__(name, help, *labels)
        self.kind = "gauge"

    def clear(self) -> None:
        """Remove all cells, until they are set again."""
        self.cells = {}


class Histogram(Metric):
    """A distribution of durations."""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        super().__init__("histogram", name, help, labels)
        self.recorder: Callable[..., object] | None = None
        """A further recorder of each duration, with its labels, for cells that are made from now on."""

    def of(self, *values: str) -> Durations:
        """Return the cell of these labels."""
        values = self.bounded(values)
        cell: Durations | None = self.cells.get(values)
        if cell is None:
            labels = dict(zip(self.labels, values, strict=True))
            cell = self.cells[values] = Durations(self.recorder and partial(self.recorder, attributes=labels))
        return cell


class Registry:
    """Some metrics together: the attributes of a subclass."""

    def __iter__(self) -> Iterator[Metric]:
        return (value for value in vars(self).values() if isinstance(value, Metric))

    def render(self) -> str:
        """Return all of them, in Prometheus' text format."""
        return "".join(f"{line}\n" for metric in self for line in metric.lines())


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items()) + "}"


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
