"""Rows as Arrow tables, and the columns of a database in the form that Spark expects."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute

from .checks import SHOWN_STATES
from .codec import DecodeError, decode_headers
from .errors import ForeignTransaction
from .kit import backend_of
from .operations.tables import Fetching
from .protocols import Connection

compute: Any = pyarrow.compute
"""Arrow's functions, which are created at import time, where type checkers do not see them."""

_HALF = pa.scalar(500, pa.duration("us"))
"""Half a millisecond."""

Maker = Callable[[Any, Any, int], Any]
"""A function that makes an array of a type and a number of rows from a column of the database."""


def same(array: Any, kind: Any, rows: int) -> Any:
    """Return the same values; a column of NULLs may have been read as any type."""
    return pa.nulls(rows, kind) if array.null_count == rows else array.cast(kind)


def moment(array: Any, kind: Any, rows: int) -> Any:
    """Return times, from milliseconds, or from a database's own times, rounded down to milliseconds as everywhere."""
    if pa.types.is_timestamp(array.type):
        return compute.add(array, _HALF).cast(pa.timestamp("ms", "UTC"), safe=False).cast(kind)
    return array.cast(pa.int64()).cast(pa.timestamp("ms", "UTC")).cast(kind)


def state(array: Any, kind: Any, rows: int) -> Any:
    """Return the states of tasks, from their stored names."""
    places = compute.index_in(array.cast(pa.string()), value_set=pa.array(SHOWN_STATES, pa.string()))
    return pa.array(SHOWN_STATES.values(), kind).take(places)


def repeated(value: Any) -> Maker:
    """Return a maker of one value in each row."""
    return lambda array, kind, rows: pa.repeat(pa.scalar(value, kind), rows)


def headers(array: Any, kind: Any, rows: int) -> Any:
    """Return maps, from JSON text."""
    if array.null_count == rows:
        return pa.nulls(rows, kind)
    return pa.array([_pairs(text) for text in array.to_pylist()], kind)


def kafka_headers(array: Any, kind: Any, rows: int) -> Any:
    """Return Kafka's list of headers, from JSON text."""
    if array.null_count == rows:
        return pa.nulls(rows, kind)
    found = (_pairs(text) for text in array.to_pylist())
    return pa.array([None if one is None else [(name, value.encode()) for name, value in one] for one in found], kind)


def _pairs(text: str | None) -> list[tuple[str, str]] | None:
    if text is None:
        return None
    try:
        return list(decode_headers(text).items())
    except DecodeError:
        return None


ROWS = 50_000

_FIRST = 64
_GROWTH = 16
"""Growth is limited: the size of rows is unknown before the first ones, and the next ones may differ."""

_BYTES = 16 * 2**20

Fetch = Callable[[Fetching, Sequence[str]], Any]
"""A function that executes a reading operation, and returns a table of some columns of its statement."""


@contextmanager
def opened(url: str) -> Iterator[Fetch]:
    """Open the fastest way to read from the database in this process."""
    backend: Any = backend_of(url)
    with ExitStack() as stack:
        fetch: Fetch | None = None
        if hasattr(backend, "arrow"):
            # While a kit of this process has the file open, it may be read only through that kit's library.
            with suppress(ForeignTransaction):
                fetch = stack.enter_context(backend.arrow(url))
        yield fetch or by_rows(stack.enter_context(closing(backend.connect(url, create=False))))


class Portion:
    """The number of rows to request, estimated from earlier ones."""

    def __init__(self) -> None:
        self.rows = _FIRST

    def learn(self, table: Any) -> None:
        """Adjust the estimate to a table; its last rows count most."""
        newest = table.slice(table.num_rows * 7 // 8)
        if newest.num_rows:
            size = max(table.nbytes / table.num_rows, newest.nbytes / newest.num_rows, 1)
            self.rows = max(1, min(ROWS, _GROWTH * self.rows, int(_BYTES / size)))


def pages(read: Callable[[Any, int], Any], after: Any, last: Any, by: str) -> Iterator[tuple[Any, Any]]:
    """Yield tables that *read* returns after a value of the column *by*, each with the value that it extends to.

    *read* is called with a value and a number of rows, until *last*, which comes with the last table.
    """
    portion = Portion()
    while after != last:
        table = read(after, portion.rows)
        after = last if table.num_rows < portion.rows else table.column(by)[-1].as_py()
        yield after, table
        portion.learn(table)


def by_rows(connection: Connection) -> Fetch:
    """Return the fetch function of a kit, which makes objects of rows first."""

    def fetch(operation: Fetching, columns: Sequence[str]) -> Any:
        rows = connection.execute(operation)
        places = [operation.columns.index(name) for name in columns]
        return pa.table([pa.array([row[place] for row in rows]) for place in places], list(columns))

    return fetch
