"""Planning: the division of a batch's offsets among tasks of Spark."""

import os
from collections.abc import Callable, Mapping

from pyspark.sql.datasource import InputPartition

from ..operations.tables import FindEnd
from ..protocols import Connection
from .options import ReadOptions

_LEAST, _MOST = 50_000, 500_000
"""Rows in a part, by default: some tenths of a second of work, more than the overhead of a task."""

_ALL = 2**62

_PROBE = 10_000
"""Rows that are counted to estimate the density of numbers."""

Find = Callable[[int, int, int], tuple[int, int]]
"""Find the last of a number of rows after one number up to another, and count them, as `FindEnd` does."""


class Range(InputPartition):
    """The events of a topic after one offset up to another, in the database with this identity."""

    def __init__(self, topic: str, identity: str, after: int, last: int) -> None:
        self.topic = topic
        self.identity = identity
        self.after = after
        self.last = last

    def __repr__(self) -> str:
        return f"{self.topic} {self.after + 1}–{self.last}"


def ranges(
    connection: Connection, options: ReadOptions, identity: str, starts: Mapping[str, int], ends: Mapping[str, int]
) -> list[Range]:
    """Return the ranges between *starts* and *ends*, in parts.  Pruned events are skipped."""
    spans = {topic: (starts.get(topic, 0), end) for topic, end in ends.items() if starts.get(topic, 0) < end}

    def find(topic: str) -> Find:
        return lambda after, last, most: connection.execute(FindEnd(topic, after, last, most))

    most = options.max_records
    if options.min_partitions is not None:
        total = sum(find(topic)(*span, _ALL)[1] for topic, span in spans.items())
        size = max(1, total // options.min_partitions)
        most = size if most is None else min(size, most)
    total = sum(last - after for after, last in spans.values())
    planned = []
    for topic, span in spans.items():
        found = parts(find(topic), *span, total) if most is None else by_number(find(topic), *span, most)
        planned += [Range(topic, identity, *part) for part in found]
    return planned


def parts(find: Find, after: int, last: int, total: int) -> list[tuple[int, int]]:
    """Return the rows after one number up to another, of *total* numbers, in parts for the processors known here.

    Where numbers are dense, a part has a fixed count of numbers; where they are sparse, of rows, which are counted.
    """
    if last - after <= _LEAST:
        return [(after, last)]
    size = _part_size(total)
    counted: list[tuple[int, int, int | None]] = []
    while after < last:
        steps = -(-(last - after) // size)
        step = -(-(last - after) // steps)
        bound, number = find(after, last, _PROBE)
        dense = number == _PROBE and bound <= after + step
        bound = after + step if dense else bound
        counted.append((after, bound, None if dense else number))
        after = bound
    size = _part_size(sum(number or 0 for _, _, number in counted))
    found: list[tuple[int, int]] = []
    room = 0
    for begin, end, rows in counted:
        if found and rows is not None and rows <= room:
            found[-1] = (found[-1][0], end)
            room -= rows
        else:
            found.append((begin, end))
            room = 0 if rows is None else size - rows
    return found


def by_number(find: Find, after: int, last: int, most: int) -> list[tuple[int, int]]:
    """Return the rows after one number up to another, in parts of *most*."""
    found = []
    while after < last:
        bound, _ = find(after, last, most)
        found.append((after, bound))
        after = bound
    return found


def _part_size(total: int) -> int:
    return min(_MOST, max(_LEAST, -(-total // (os.cpu_count() or 1))))
