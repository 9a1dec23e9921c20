"""Claims and acks of tasks in groups, beside those of a queue without."""

from collections.abc import Iterator
from itertools import count, islice
from time import perf_counter
from typing import Any

import eventkit

from .contestants import WithKit, payloads
from .databases import Database, Settings
from .processes import started
from .report import Table, at_least, ratio, thousands
from .rounds import contest

_BATCHES = {1: 2_000, 32: 16_000}
"""Tasks per claim, and tasks claimed in a round."""

_WORKS: dict[str, tuple[int, dict[str, Any], float | None]] = {
    "in groups that nothing uses": (1_000, {}, None),
    "ordered": (1_000, {"ordered": True}, 0.7),
    "fair": (10_000, {"fair": True}, 0.75),
    "at most five of a group": (1_000, {"group_max_running": 5}, None),
}
"""The number of groups, the settings of the queue, and the least part of the rate without groups."""


class Grouped(WithKit):
    """A queue whose tasks belong to groups, one after the other; or to none."""

    def __init__(self, url: str, groups: int, settings: dict[str, Any]) -> None:
        super().__init__(url)
        self._queue = self.kit.queue("work")
        self._queue.configure(**settings)
        self._groups = (f"group {number % groups}" for number in count()) if groups else None

    def fill(self, count: int) -> None:
        """Add tasks."""
        if self._groups is None:
            self._queue.enqueue_many(payloads(count))
        else:
            groups = islice(self._groups, count)
            self._queue.enqueue_many([eventkit.NewTask(one, group=next(groups)) for one in payloads(count)])

    def time(self, work: str, count: int, *size: int) -> float:
        """Return the seconds that the claims and the acks took."""
        began, left = perf_counter(), count
        while left > 0:
            tasks = self._queue.claim("worker", min(left, *size))
            left -= len(self._queue.ack_many(tasks)) if size[0] > 1 else self._queue.ack(tasks[0])
        return perf_counter() - began

    def claim_only(self) -> None:
        """See `time`."""


def measure(settings: Settings, database: Database) -> Iterator[Table]:
    """Measure claims and acks in ordered and fair queues, and with limits of groups."""
    table = Table(
        "Task groups",
        "work | groups | tasks per claim | without groups /s | with groups /s | of it (spread) | bar | reached",
        note="Tasks a second that one caller claims and acks.",
    )
    factories: dict[str, Any] = {"without": (Grouped, database.new(), 0, {})}
    factories |= {name: (Grouped, database.new(), groups, chosen) for name, (groups, chosen, _) in _WORKS.items()}
    with started(factories) as (parties, _):
        for size, number in _BATCHES.items():
            result = contest(parties, "claim_only", settings.count(number), size, rounds=settings.rounds)
            for name, (groups, _, bar) in _WORKS.items():
                part = result.ratio(name, "without")
                rates = [thousands(result.rate(party)) for party in ("without", name)]
                table.add(name, f"{groups:,}", f"{size}", *rates, ratio(part), *at_least(part and part.median, bar))
    yield table
