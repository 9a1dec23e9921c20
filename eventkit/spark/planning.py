"""Ranges of offsets, divided into what one task of Spark reads."""

import os
from collections.abc import Callable, Mapping

from pyspark.sql.datasource import InputPartition

from ..operations.extract import FindEnd
from ..protocols import Connection
from .options import ReadOptions

_LEAST, _MOST = 50_000, 500_000
"""Rows in a part, if nobody says otherwise: some tenths of a second of work, and more of it than of beginning."""

_ALL = 2**62

_PROBE = 10_000
"""Rows that are counted to see how far apart their numbers are."""

Find = Callable[[int, int, int], tuple[int, int]]
"""Find the last of so many rows behind a number up to another, and how many there are, as `FindEnd` does."""


class Range(InputPartition):
    """The events of a topic behind one offset up to another, of the database that has this identity."""

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
    """What lies between *starts* and *ends*, in parts.  Events in between that are pruned are passed by."""
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
    """The rows behind a number up to another, of *total* numbers, in parts for the processors that are known here.

    Where numbers are dense, a part has so many numbers; where they are far apart, so many rows, as they are counted.
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
    """The rows behind a number up to another, in parts of *most*."""
    found = []
    while after < last:
        bound, _ = find(after, last, most)
        found.append((after, bound))
        after = bound
    return found


def _part_size(total: int) -> int:
    return min(_MOST, max(_LEAST, -(-total // (os.cpu_count() or 1))))
