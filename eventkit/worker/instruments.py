"""The metrics as instruments of OpenTelemetry, for applications that use it.

Nothing is imported on our account: without that library in the process there are none.  The instruments are asked, and
read the cells that are counted in anyway, those of all workers in this process together.  Only durations are told one
by one, because OpenTelemetry has no histogram that can be asked.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from ..metrics import SECONDS, Counter, Histogram
from .metrics import Metrics

_lock = Lock()
_workers: list[Metrics] = []
_ended = Metrics()
"""What workers have counted that have ended, so that a counter never goes back."""


@contextmanager
def shown(metrics: Metrics) -> Iterator[None]:
    """OpenTelemetry, if it is loaded, has *metrics* while the body runs, and what they have counted from then on."""
    if "opentelemetry.metrics" not in sys.modules:
        yield
        return
    histograms = _histograms()
    for metric in metrics:
        if isinstance(metric, Histogram):
            metric.told = histograms[metric.name].record
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
    """Make all instruments, once for the process: a meter cannot forget any; those of them that are to be told."""
    from opentelemetry import metrics

    meter = metrics.get_meter("eventkit")
    told = {}
    for metric in _ended:
        if isinstance(metric, Histogram):
            told[metric.name] = _histogram(meter, metric)
        else:
            make = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
            make(metric.name, callbacks=[_asking(metric.name)], description=metric.help)
    return told


def _histogram(meter: Any, metric: Histogram) -> Any:
    try:
        return meter.create_histogram(
            metric.name, unit="s", description=metric.help, explicit_bucket_boundaries_advisory=SECONDS
        )
    except TypeError:  # Before OpenTelemetry 1.30, where only a view of the application's sets the bounds.
        return meter.create_histogram(metric.name, unit="s", description=metric.help)


def _asking(name: str) -> Callable[[Any], Iterable[Any]]:
    """What OpenTelemetry calls, from a thread of its own, to be told the numbers of the metric *name*."""

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
