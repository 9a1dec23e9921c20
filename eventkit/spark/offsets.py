"""The offsets of a query: its start, its partitions, and the content of its checkpoint."""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pyarrow.parquet import ParquetFile
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ..archive.files import Store
from ..operations.batches import Extent, ListTopics, ReadExtent, ReadIdentity
from ..operations.position import FindFork, ReadPosition, VerifyPosition
from ..operations.position import Position as Proof
from ..operations.stream import FindOffset, ReadOffset
from ..protocols import Connection
from .errors import Travelling, plainly
from .options import Bounds, ReadOptions
from .values import DISORDER, Place

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
        if self._options.pattern is not None:
            found = self._connection.execute(ListTopics())
            return {topic: self._extent(topic) for topic in found if self._is_read(topic)}
        extents = {topic: self._extent(topic) for topic in self._options.topics}
        for topic, extent in extents.items():
            if not extent.known:
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

    def _extent(self, topic: str) -> Extent:
        return self._connection.execute(ReadExtent(topic))

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


_ROWS = 10_000
"""Rows in a batch for Spark."""


class StoredSource(DataSource):
    """Files, by their paths in a location, with the credentials of the process that reads."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format, for a session in which it is registered."""
        return "eventkit_stored"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of some columns."""
        return _Reader(self.options["location"], json.loads(self.options["files"]), schema)


class _File(InputPartition):
    def __init__(self, path: str) -> None:
        self.path = path


class _Reader(Travelling, DataSourceReader):
    def __init__(self, location: str, files: list[str], schema: StructType) -> None:
        self._location = location
        self._files = files
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each file."""
        return [_File(path) for path in self._files]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the batches of a file."""
        assert isinstance(partition, _File)
        store, schema = Store(self._location), to_arrow_schema(self._schema, timezone="UTC")
        with plainly(), store.told("cannot be read"), store.open(partition.path) as stream, ParquetFile(stream) as file:
            for group in range(file.num_row_groups):
                found = file.read_row_group(group, schema.names).select(schema.names)
                yield from found.cast(schema).to_batches(_ROWS)
