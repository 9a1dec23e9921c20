"""How a worker is to behave: the settings, and the ranges they may have."""

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from .. import arguments
from ..arguments import Duration

Queues = str | Iterable[str | tuple[str, float]]


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `Worker` can be told.  Durations are in seconds, unless their name says milliseconds.

    *queues* are names, or names with weights; by default all that the app's tasks are in.  *concurrency* is how many
    tasks run at once, and *prefetch* how many more are claimed ahead of that.  *processes* is how many children there
    are at most for tasks that have a process to themselves.  *lease* is how long a claim holds unless it is extended,
    by default as long as the queue says; running tasks are extended in time, so it bounds only how long the tasks of a
    worker that died wait for another.
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
        return None if self.lease is None else arguments.milliseconds("lease", self.lease)

    @property
    def shutdown_seconds(self) -> float:
        """How long running tasks have to finish when the worker is stopped."""
        return arguments.milliseconds("shutdown_timeout", self.shutdown_timeout) / 1000

    @property
    def children(self) -> int:
        """How many child processes there may be."""
        return self.processes if self.processes is not None else os.cpu_count() or 1

    def weights(self, declared: Sequence[str]) -> dict[str, float]:
        """The queues to work on with their weights; *declared* are the app's."""
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
"""The least and the most of each whole number."""

SPANS: dict[str, tuple[float, float]] = {"lease": (1, 86_400), "shutdown_timeout": (0, 86_400)}
"""The shortest and the longest of each duration, in seconds."""


def settings_of(given: dict[str, Any]) -> WorkerSettings:
    """*given* as settings; a ``ValueError`` tells everything that is wrong with them at once."""
    known = WorkerSettings.__struct_fields__
    unknown = [name for name in given if name not in known]
    if unknown:
        raise TypeError(f"a worker has no setting {', '.join(unknown)}; there are: {', '.join(known)}")
    complaints = {name: _complaints(name, value) for name, value in given.items()}
    wrong = [complaint for found in complaints.values() for complaint in found]
    settings = WorkerSettings(**{name: value for name, value in given.items() if not complaints[name]})
    first, longest = settings.db_retry_initial_ms, settings.db_retry_max_ms
    if first > longest and not complaints.get("db_retry_initial_ms") and not complaints.get("db_retry_max_ms"):
        wrong.append(f"db_retry_initial_ms is at most db_retry_max_ms, but {first} is above {longest}")
    if not wrong:
        return settings
    raise ValueError("\n- ".join([f"{len(wrong)} of the worker's settings cannot be used:", *wrong]))


def _complaints(name: str, value: Any) -> list[str]:
    """What is wrong with one setting."""
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
        arguments.count(name, value, least=least, most=most)
    elif name in SPANS:
        shortest, longest = SPANS[name]
        if not shortest * 1000 <= arguments.milliseconds(name, value) <= longest * 1000:
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
            raise ValueError(f"queue {name!r} is named twice: give it the weight of both")
        weights[arguments.name("queue", name)] = arguments.positive("the weight of a queue", weight)
    return weights


_OTHERS: dict[str, Callable[[Any], Any]] = {
    "url": _text("url"),
    "readiness_file": _text("readiness_file"),
    "name": lambda value: arguments.name("worker", value),
    "queues": _weights,
}
