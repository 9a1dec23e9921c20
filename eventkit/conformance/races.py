"""What races and waits need: a start line, the database's own clock, and somebody who sleeps."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from eventkit import EventKit

from .threads import in_thread

T = TypeVar("T")

SOON = 4.0
"""Seconds within which a waiter must have noticed: generous, and less than any fallback poll takes."""


def line_up(kit: EventKit, racers: int) -> None:
    """Return when *racers* callers, in whatever processes, have come here."""
    line = kit.queue("the start line")
    line.enqueue(None)
    while line.size() < racers:
        time.sleep(0.002)


def database_ms(kit: EventKit) -> int:
    """The moment, in milliseconds, by the clock that decides."""
    clock = kit.queue("the clock")
    id = clock.enqueue(None).id
    task = clock.get(id)
    assert task is not None
    return task.enqueued_ms


def asleep(call: Callable[..., T], *arguments: Any, **keywords: Any) -> Future[T]:
    """Have *call* run in another thread until it most probably waits; what it comes to."""
    future = in_thread(lambda: call(*arguments, **keywords))
    time.sleep(0.15)
    return future
