"""The settings of a worker, and their ranges."""

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from .. import checks
from ..checks import Duration

Queues = str | Iterable[str | tuple[str, float]]


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a `Worker`.  Durations are in seconds, unless their name says milliseconds.

    *queues* are names, or names with weights; by default, those of the app's tasks.  *concurrency* is the number of
    tasks that run at once, and *prefetch* the number claimed beyond that.  *processes* is the maximum number of
    children for tasks with a process of their own.  *lease* is the length of a claim, by default that of the queue; the
    worker extends the leases of running tasks, so it only bounds how long the tasks of a dead worker wait for another.
    """

    url: str | None = None
    name: str | None = None
    queues: Any = None
    concurrency: int = 20
    prefetch: int = 0
    processes: int | None = None
    lease: Duration | None = None
    shutdown_timeout: Duration = 30
    db_retry_initial_ms: int = 500
    db_retry_max_ms: int = 30_000
    db_retry_max_attempts: int = 0
    notify_poll_interval_ms: int = 5_000
    readiness_file: str | None = None

    @property
    def lease_ms(self) -> int | None:
        """The lease in milliseconds."""
        return None if self.lease is None else checks.milliseconds("lease", self.lease)

    @property
    def shutdown_seconds(self) -> float:
        """The seconds that running tasks have to finish when the worker is stopped."""
        return checks.milliseconds("shutdown_timeout", self.shutdown_timeout) / 1000

    @property
    def children(self) -> int:
        """The maximum number of child processes."""
        return self.processes if self.processes is not None else os.cpu_count() or 1

    def weights(self, declared: Sequence[str]) -> dict[str, float]:
        """Return the queues to claim from, with their weights; *declared* are the app's."""
        return _weights(declared if self.queues is None else self.queues)


RANGES: dict[str, tuple[int, int]] = {
    "concurrency": (1, 10_000),
    "prefetch": (0, 10_000),
    "processes": (1, 1_024),
    "db_retry_initial_ms": (100, 60_000),
    "db_retry_max_ms": (500, 300_000),
    "db_retry_max_attempts": (0, 10_000),
    "notify_poll_interval_ms": (1_000, 300_000),
}
"""The minimum and the maximum of each whole number."""

SPANS: dict[str, tuple[float, float]] = {"lease": (1, 86_400), "shutdown_timeout": (0, 86_400)}
"""The minimum and the maximum of each duration, in seconds."""


def settings_of(given: dict[str, Any]) -> WorkerSettings:
    """Return *given* as settings; raise one ``ValueError`` with all errors."""
    known = WorkerSettings.__struct_fields__
    unknown = [name for name in given if name not in known]
    if unknown:
        raise TypeError(f"a worker has no setting {', '.join(unknown)}; the settings are: {', '.join(known)}")
    errors = {name: _errors_of(name, value) for name, value in given.items()}
    wrong = [error for found in errors.values() for error in found]
    settings = WorkerSettings(**{name: value for name, value in given.items() if not errors[name]})
    first, longest = settings.db_retry_initial_ms, settings.db_retry_max_ms
    if first > longest and not errors.get("db_retry_initial_ms") and not errors.get("db_retry_max_ms"):
        wrong.append(f"db_retry_initial_ms is at most db_retry_max_ms, but {first} is above {longest}")
    if not wrong:
        return settings
    raise ValueError("\n- ".join([f"{len(wrong)} of the worker's settings are invalid:", *wrong]))


def _errors_of(name: str, value: Any) -> list[str]:
    """Return the errors of one setting."""
    if value is None and WorkerSettings.__struct_defaults__[WorkerSettings.__struct_fields__.index(name)] is None:
        return []
    try:
        _check(name, value)
    except (TypeError, ValueError) as error:
        return [str(error)]
    return []


def _check(name: str, value: Any) -> None:
    if name in RANGES:
        least, most = RANGES[name]
        checks.count(name, value, least=least, most=most)
    elif name in SPANS:
        shortest, longest = SPANS[name]
        if not shortest * 1000 <= checks.milliseconds(name, value) <= longest * 1000:
            seconds = value.total_seconds() if isinstance(value, timedelta) else value
            raise ValueError(f"{name} is from {shortest:,} to {longest:,} seconds, not {seconds!r}")
    else:
        _OTHERS[name](value)


def _text(what: str) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if not isinstance(value, str):
            raise TypeError(f"{what} is a str, not {type(value).__name__}")

    return check


def _weights(queues: Queues) -> dict[str, float]:
    weights: dict[str, float] = {}
    for entry in [queues] if isinstance(queues, str) else queues:
        name, weight = (entry, 1.0) if isinstance(entry, str) else entry
        if name in weights:
            raise ValueError(f"queue {name!r} is named twice: name it once, with the sum of the weights")
        weights[checks.name("queue", name)] = checks.positive("the weight of a queue", weight)
    return weights


_OTHERS: dict[str, Callable[[Any], Any]] = {
    "url": _text("url"),
    "readiness_file": _text("readiness_file"),
    "name": lambda value: checks.name("worker", value),
    "queues": _weights,
}
