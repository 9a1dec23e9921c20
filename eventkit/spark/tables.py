"""Tables beside the streams: tasks, dead letters, results, schedules and consumers, for analysis.

They are read page by page, so a table that changes meanwhile is not a snapshot, but each of its rows is.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import BooleanType, IntegerType, StructType

from ..arrow import Fetch, flag, headers, moment, opened, pages
from ..kit import backend_of
from ..operations.tables import FetchConsumers, FetchResults, FetchSchedules, FetchTasks, FindTaskEnd, ReadTaskNumbers
from .columns import HEADERS, MOMENT, NUMBER, TEXT, Column, Columns, Layout
from .errors import Travelling, plainly
from .options import ReadOptions
from .planning import parts

_INTEGER, _FLAG = IntegerType(), BooleanType()

_TASKS: Columns = {
    "id": Column(NUMBER, "id", nullable=False),
    "queue": Column(TEXT, "queue", nullable=False),
    "state": Column(TEXT, "state", nullable=False),
    "payload": Column(TEXT, "payload", nullable=False),
    "key": Column(TEXT, "key"),
    "headers": Column(HEADERS, "headers", headers),
    "priority": Column(_INTEGER, "priority", nullable=False),
    "attempt": Column(_INTEGER, "attempt", nullable=False),
    "max_attempts": Column(NUMBER, "max_attempts", nullable=False),
    "run_at": Column(MOMENT, "run_at", moment, nullable=False),
    "enqueued_at": Column(MOMENT, "enqueued_at", moment, nullable=False),
    "expires_at": Column(MOMENT, "expires_at", moment),
    "lease_expires_at": Column(MOMENT, "lease_expires_at", moment),
    "worker": Column(TEXT, "worker"),
    "claimed_at": Column(MOMENT, "claimed_at", moment),
    "finished_at": Column(MOMENT, "finished_at", moment),
    "reason": Column(TEXT, "reason"),
    "error": Column(TEXT, "error"),
    "result": Column(TEXT, "result"),
}

COLUMNS: dict[str, Columns] = {
    "tasks": _TASKS,
    "dead": _TASKS,
    "results": {
        "id": Column(TEXT, "id", nullable=False),
        "value": Column(TEXT, "value", nullable=False),
        "expires_at": Column(MOMENT, "expires_at", moment, nullable=False),
    },
    "schedules": {
        "name": Column(TEXT, "name", nullable=False),
        "when": Column(TEXT, "when", nullable=False),
        "tz": Column(TEXT, "tz", nullable=False),
        "queue": Column(TEXT, "queue", nullable=False),
        "payload": Column(TEXT, "payload", nullable=False),
        "headers": Column(HEADERS, "headers", headers),
        "priority": Column(_INTEGER, "priority", nullable=False),
        "max_attempts": Column(NUMBER, "max_attempts"),
        "catch_up": Column(TEXT, "catch_up", nullable=False),
        "paused": Column(_FLAG, "paused", flag, nullable=False),
        "next_at": Column(MOMENT, "next_at", moment),
        "last_at": Column(MOMENT, "last_at", moment),
        "fired": Column(NUMBER, "fired", nullable=False),
        "skipped": Column(NUMBER, "skipped", nullable=False),
    },
    "consumers": {
        "topic": Column(TEXT, "topic", nullable=False),
        "name": Column(TEXT, "name", nullable=False),
        "offset": Column(NUMBER, "offset", nullable=False),
        "lag": Column(NUMBER, "lag", nullable=False),
        "updated_at": Column(MOMENT, "updated_at", moment, nullable=False),
    },
}


class Part(InputPartition):
    """The rows after one number up to another; all of them, if the table has no numbers."""

    def __init__(self, after: int = 0, last: int = 0) -> None:
        self.after = after
        self.last = last


class TableReader(Travelling, DataSourceReader):
    """A reader of one of the tables."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._layout = Layout(COLUMNS[options.table], schema)

    @plainly()
    def partitions(self) -> Sequence[InputPartition]:
        """Return the parts of the tasks; other tables are small."""
        if COLUMNS[self._options.table] is not _TASKS:
            return [Part()]
        url = self._options.address.resolve()
        with closing(backend_of(url).connect(url, create=False)) as connection:
            after, last = connection.execute(ReadTaskNumbers())
            found = parts(lambda *span: connection.execute(FindTaskEnd(*span)), after, last, last - after)
        return [Part(*part) for part in found]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the batches of a part."""
        assert isinstance(partition, Part)
        with plainly(), opened(self._options.address.resolve()) as fetch:
            for table in self._pages(fetch, partition):
                if table.num_rows:
                    yield self._layout.batch(table)

    def _pages(self, fetch: Fetch, part: Part) -> Iterator[Any]:
        table, columns = self._options.table, list(dict.fromkeys(["id", *self._layout.sources]))
        if table == "schedules":
            yield fetch(FetchSchedules(), self._layout.sources)
        elif table == "consumers":
            yield fetch(FetchConsumers(), self._layout.sources)
        elif table == "results":
            found = pages(lambda after, limit: fetch(FetchResults(after, limit), columns), "", None, "id")
            yield from (page for _, page in found)
        else:
            state = "dead" if table == "dead" else None
            last = part.last
            found = pages(
                lambda after, limit: fetch(FetchTasks(after, last, state, limit), columns), part.after, last, "id"
            )
            yield from (page for _, page in found)
