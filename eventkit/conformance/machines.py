"""What the state machines of `test_models` have in common: a kit, a clock in ticks, and moments as ticks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from eventkit.testing import advance

TICK = 100
"""Seconds in a tick: far more than a run takes, so real time never decides what is due."""


class Boom(Exception):
    """Raised in a transaction to have it rolled back."""


class Ground:
    """The database that the runs of a machine share; each run has names of its own in it."""

    def __init__(self, connect: Callable[..., Any], url: str) -> None:
        self._connect = connect
        self._url = url
        self.kit = connect(url)
        self.runs = 0

    def reopen(self) -> None:
        """Close the kit, and connect again."""
        self.kit.close()
        self.kit = self._connect(self._url)

    def anchor(self) -> datetime:
        """The database's clock, now."""
        queue = self.kit.queue("the clock")
        id = queue.enqueue(None).id
        moment: datetime = queue.get(id).enqueued_at
        queue.purge()
        return moment

    def pass_time(self, ticks: int) -> None:
        """Let *ticks* pass."""
        advance(self.kit, ticks * TICK)

    @contextmanager
    def transaction(self, commit: bool) -> Iterator[Any]:
        """A transaction that ends well, or by an exception."""
        try:
            with self.kit.transaction() as tx:
                yield tx
                if not commit:
                    raise Boom
        except Boom:
            pass


def seconds(ticks: int | None) -> int | None:
    """A duration as the library wants it."""
    return None if ticks is None else ticks * TICK


def tick(moment: datetime | None, anchor: datetime, now: int) -> int | None:
    """The tick of *moment*, at tick *now* of a run that began at *anchor*."""
    return None if moment is None else now + (moment - anchor) // timedelta(seconds=TICK)
