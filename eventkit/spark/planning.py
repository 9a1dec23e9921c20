"""Ranges of offsets, divided into what one task of Spark reads."""

import os
from collections.abc import Iterator, Mapping
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from ..operations.extract import FindEnd
from ..protocols import Connection
from .options import ReadOptions

_LEAST, _MOST = 50_000, 500_000
"""Numbers in a part, if nobody says otherwise: some tenths of a second of work, and more of it than of beginning."""


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
    total = sum(end - start for start, end in spans.values())
    size = part_size(total) if options.min_partitions is None else max(1, -(-total // options.min_partitions))
    planned = []
    for topic, (after, last) in spans.items():
        cuts = by_offset(after, last, size)
        if options.max_records is not None:
            cuts = _by_number(connection, topic, after, last, options.max_records, list(cuts))
        planned += [Range(topic, identity, *cut) for cut in cuts]
    return planned


def part_size(total: int) -> int:
    """How many numbers make a part, so that there is one for each processor, as far as they are known here."""
    return min(_MOST, max(_LEAST, -(-total // (os.cpu_count() or 1))))


def by_offset(after: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    """What lies between two numbers, in equal parts of at most *size*."""
    parts = -(-(last - after) // size)
    bounds = [after + (last - after) * part // parts for part in range(parts + 1)]
    return pairwise(bounds)


def _by_number(
    connection: Connection, topic: str, after: int, last: int, most: int, cuts: list[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """*cuts*, with further ones where there are more than *most* events between two."""
    for begin, end in cuts:
        while begin < end:
            bound, _ = connection.execute(FindEnd(topic, begin, end, most))
            yield begin, bound
            begin = bound
