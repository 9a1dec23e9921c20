"""The offsets of a query: its start, the division of a batch among tasks, and the content of its checkpoint."""

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pyspark.sql.datasource import InputPartition

from ..operations.position import FindFork, ReadPosition, VerifyPosition
from ..operations.position import Position as Proof
from ..operations.stream import FindOffset, ReadOffset
from ..operations.tables import Extent, FindEnd, ListTopics, ReadExtent, ReadIdentity
from ..protocols import Connection
from .options import DISORDER, Bounds, Place, ReadOptions

Position = dict[str, dict[str, Any]]
"""The content of a checkpoint: for each topic the fields of an `operations.position.Position`."""

_log = logging.getLogger("eventkit.spark")


class Streams:
    """The topics that the options name, in their current state in the database."""

    def __init__(self, connection: Connection, options: ReadOptions) -> None:
        self._connection = connection
        self._options = options
        self.identity = connection.execute(ReadIdentity())
        self._proved: dict[str, Proof] = {}

    def extents(self) -> dict[str, Extent]:
        """Return the extent of each topic.  A named topic must exist; a pattern also accepts none."""
        topics: Iterable[str] = self._options.topics
        if self._options.pattern is not None:
            topics = filter(self._is_read, self._connection.execute(ListTopics()))
        extents = {topic: self._connection.execute(ReadExtent(topic)) for topic in topics}
        for topic, extent in extents.items():
            if not extent.known and self._options.pattern is None:
                raise self._unknown(topic)
        return extents

    def start(self, extents: Mapping[str, Extent], otherwise: Place) -> dict[str, int]:
        """Return the offset after which to read each topic, by the options or else by *otherwise*."""
        bounds = self._options.starting
        self._check_topics("startingOffsets", bounds, extents)
        return {topic: self._begin(topic, extent, otherwise) for topic, extent in extents.items()}

    def end(self, extents: Mapping[str, Extent]) -> dict[str, int]:
        """Return the offset up to which to read each topic, by the options, at most its settled head."""
        bounds = self._options.ending
        self._check_topics("endingOffsets", bounds, extents)
        ends = {}
        for topic, extent in extents.items():
            place = bounds.places.get(topic, bounds.place)
            if bounds.moment is not None:
                ends[topic] = self._connection.execute(FindOffset(topic, bounds.moment + DISORDER))
            elif place == "earliest":
                raise ValueError("endingOffsets must be latest, or an offset: there is nothing before the earliest")
            else:
                ends[topic] = extent.head if not isinstance(place, int) else min(place - 1, extent.head)
        return ends

    def position(self, offsets: Mapping[str, int]) -> Position:
        """Return *offsets* as the content of a checkpoint, each with its proof from the database."""
        for topic, offset in offsets.items():
            if topic not in self._proved or self._proved[topic].offset != offset:
                self._proved[topic] = self._connection.execute(ReadPosition(topic, offset))
        return {topic: self._proved[topic]._asdict() for topic in offsets}

    def offsets(self, position: Position) -> dict[str, int]:
        """Read the content of a checkpoint, which must be of this database and of the topics that are read.

        If the database has gone back behind it, raise, or return the offset where the two diverge.
        """
        if not isinstance(position, dict):
            raise _foreign(position)
        return {topic: self._verified(topic, self._checked(topic, place)) for topic, place in position.items()}

    def check_loss(self, starts: Mapping[str, int], extents: Mapping[str, Extent]) -> None:
        """Raise if events to be read next were pruned, unless the options allow it."""
        if self._options.fail_on_data_loss:
            for topic, after in starts.items():
                if topic in extents:
                    check_loss(topic, after, extents[topic].pruned_to, extents[topic].head)

    def _begin(self, topic: str, extent: Extent, otherwise: Place) -> int:
        options = self._options
        if options.consumer and (saved := self._connection.execute(ReadOffset(topic, options.consumer))):
            return saved
        if options.starting.moment is not None:
            return self._connection.execute(FindOffset(topic, options.starting.moment))
        place = options.starting.places.get(topic, options.starting.place)
        place = ("earliest" if options.consumer else otherwise) if place is None else place
        if isinstance(place, int):
            return max(place - 1, 0)
        return extent.head if place == "latest" else extent.pruned_to

    def _check_topics(self, option: str, bounds: Bounds, topics: Iterable[str]) -> None:
        for topic in bounds.places:
            if topic not in topics:
                raise ValueError(f"{option} names the topic {topic!r}, which is not read: name it in subscribe as well")

    def _verified(self, topic: str, position: Proof) -> int:
        if self._connection.execute(VerifyPosition(topic, position)):
            self._proved[topic] = position
            return position.offset
        fork = self._connection.execute(FindFork(topic, position))
        if self._options.fail_on_data_loss:
            raise ValueError(
                f"the checkpoint is at offset {position.offset} of {topic!r}, but the database has gone back: event "
                f"{position.event} is gone or another one, and the common events end at {fork.offset}. A backup "
                f"was restored, or an asynchronous standby was promoted: run eventkit adopt --checkpoint to read on "
                f"from {fork.offset + 1}, or set failOnDataLoss=false, or name another checkpointLocation to restart"
            )
        _log.warning(
            "the database has gone back behind offset %s of %r: continuing from %s",
            position.offset,
            topic,
            fork.offset + 1,
        )
        return fork.offset

    def _checked(self, topic: str, place: Any) -> Proof:
        if not self._is_read(topic):
            raise ValueError(
                f"the checkpoint is at an offset of {topic!r}, which is not read any more: name it in subscribe, "
                f"or name another checkpointLocation to restart"
            )
        proof = Proof.read_back(place)
        if proof is None:
            raise _foreign({topic: place})
        check_identity(topic, proof.offset, proof.database, self.identity)
        return proof

    def _is_read(self, topic: str) -> bool:
        pattern = self._options.pattern
        return topic in self._options.topics if pattern is None else re.fullmatch(pattern, topic) is not None

    def _unknown(self, topic: str) -> ValueError:
        close = get_close_matches(topic, self._connection.execute(ListTopics()), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return ValueError(
            f"there is no topic {topic!r}: {hint}It begins with its first event; "
            f"subscribePattern waits for topics that are still to come"
        )


def _foreign(position: object) -> ValueError:
    return ValueError(f"the checkpoint holds {position!r}, not written by eventkit: name another checkpointLocation")


def check_identity(topic: str, offset: int, expected: str, found: str) -> None:
    """Raise if an offset is of another database than the current one."""
    if expected != found:
        raise ValueError(
            f"offset {offset} of {topic!r} is of another database than the current one ({expected}, not "
            f"{found}): correct the url, or name another checkpointLocation to restart"
        )


def check_loss(topic: str, after: int, pruned_to: int, head: int | None = None) -> None:
    """Raise if events after an offset were pruned."""
    if after < pruned_to:
        left = "" if head is None else f", and {pruned_to + 1} to {head} are there"
        raise ValueError(
            f"offsets {after + 1} to {pruned_to} of {topic!r} were to be read and are pruned{left}: "
            f"set failOnDataLoss=false to skip them; a named consumer keeps events until they are read"
        )


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
