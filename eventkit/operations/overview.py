"""What is asked of a database about everything in it, in numbers."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, ClassVar

import msgspec

from ..records import Consumer
from ..stats import HeldLock, Overview, QueueStats, ScheduleStats, TopicStats
from . import Operation, Rows
from .queue import MOST_COUNTED, queue_stats


class ReadOverview(Operation[Overview], frozen=True):
    """Everything in numbers, each counted up to `MOST_COUNTED`."""

    writes: ClassVar[bool] = False
    limit: int = MOST_COUNTED + 1

    def decode(self, rows: Rows) -> Overview:
        """The numbers of rows that each say of what kind they are, whose name they have, and an array of the rest."""
        found: defaultdict[str, list[tuple[str, list[Any]]]] = defaultdict(list)
        for kind, name, values in sorted(rows):
            found[kind].append((name, msgspec.json.decode(values)))
        consumers: defaultdict[str, list[list[Any]]] = defaultdict(list)
        for topic, consumer in found["consumer"]:
            consumers[topic].append(consumer)
        queues = {name: _queue(*values) for name, values in found["queue"]}
        topics = {name: _topic(values, consumers[name]) for name, values in found["topic"]}
        schedules = {name: ScheduleStats(*values) for name, values in found["schedule"]}
        locks = {name: HeldLock(*values) for name, values in found["lock"]}
        [(_, [results])] = found["result"]
        approximate = [one.approximate for one in queues.values()] + [one.approximate for one in topics.values()]
        return Overview(
            queues, topics, schedules, locks, min(results, MOST_COUNTED), results > MOST_COUNTED or any(approximate)
        )


def _queue(now: int, paused: int | bool, counts: list[int], due: list[Any], oldest: int | None) -> QueueStats:
    *due_counts, oldest_due = due
    moments = [moment for moment in (oldest, oldest_due) if moment is not None]
    return queue_stats([*counts, *due_counts], now - min(moments) if moments else None, paused)


def _topic(values: list[int], consumers: list[list[Any]]) -> TopicStats:
    head, events = values
    most = max(events, *(lag for _, _, lag, _ in consumers)) if consumers else events
    known = [
        Consumer(name, offset, min(lag, MOST_COUNTED), updated) for name, offset, lag, updated in sorted(consumers)
    ]
    return TopicStats(head, min(events, MOST_COUNTED), known, most > MOST_COUNTED)
