"""What the model of a queue is made of: tasks, settings, and a clock that counts in ticks."""

from dataclasses import dataclass, field
from typing import Any

LAPSED = "the lease ran out"
"""Stands for whatever text a backend gives to a task whose lease ran out."""

LAST = 2**62
"""The place of a task whose place among those due in its tick is not known: behind the others."""


@dataclass
class Clock:
    """The time, in ticks."""

    now: int = 0


@dataclass
class Wish:
    """A task to be enqueued; *due* and *expires* in ticks from now."""

    payload: Any
    due: int = 0
    priority: int = 0
    max_attempts: int | None = None
    expires: int | None = None
    key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class ModelTask:
    """A task.  *wakes* is when it changes by itself; *place* orders tasks that are due in the same tick."""

    id: int
    wish: Wish
    enqueued: int
    due: int
    expires: int | None
    state: str
    wakes: int | None
    attempt: int = 0
    lapsed: bool = False
    claim: int = 0
    lease: int = 0
    worker: str | None = None
    reason: str | None = None
    error: str | None = None
    result: Any = None
    finished: int | None = None
    place: int = LAST


@dataclass
class Settings:
    """What `configure` stores, in ticks and tasks a tick; *retry* is the base of an exponential policy."""

    max_attempts: int | None = None
    lease: int | None = None
    retry: int | None = None
    max_size: int | None = None
    rate: int | None = None
    burst: int | None = None
    max_running: int | None = None
    keep_done: int | None = None
    key_ttl: int | None = None
    dead_letter_to: str | None = None
