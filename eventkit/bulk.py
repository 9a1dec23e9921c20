"""Rows as tables of Arrow, by the fastest way there is in this process: for whoever reads millions of them.

Fifty thousand rows make a statement, so that no snapshot lasts: one that does keeps the database from clearing away.
Where rows are large, as those before them tell, fewer do, so that a table is some megabytes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import pyarrow as pa

from .errors import ForeignTransaction
from .kit import backend_of
from .operations.extract import Fetching
from .protocols import Connection

ROWS = 50_000

_FIRST = 64
_GROWTH = 16
"""Nobody knows how large rows are before there are some, nor whether the next ones are like them."""

_BYTES = 16 * 2**20

Fetch = Callable[[Fetching, Sequence[str]], Any]
"""What executes an operation that reads, with a table of some columns of its statement for an answer."""


@contextmanager
def opened(url: str) -> Iterator[Fetch]:
    """The fastest way there is to read from the database in this process."""
    backend: Any = backend_of(url)
    with ExitStack() as stack:
        fetch: Fetch | None = None
        if hasattr(backend, "arrow"):
            # Where a kit of this process has the file open, only through its library may anything else here read it.
            with suppress(ForeignTransaction):
                fetch = stack.enter_context(backend.arrow(url))
        yield fetch or by_rows(stack.enter_context(closing(backend.connect(url, create=False))))


class Portion:
    """How many rows to ask for, as far as one can tell by those that were there."""

    def __init__(self) -> None:
        self.rows = _FIRST

    def learn(self, table: Any) -> None:
        """These were some of them; the last ones tell most of the next."""
        newest = table.slice(table.num_rows * 7 // 8)
        if newest.num_rows:
            size = max(table.nbytes / table.num_rows, newest.nbytes / newest.num_rows, 1)
            self.rows = max(1, min(ROWS, _GROWTH * self.rows, int(_BYTES / size)))


def pages(read: Callable[[Any, int], Any], after: Any, last: Any, by: str) -> Iterator[tuple[Any, Any]]:
    """Tables of what *read* finds behind a value of the column *by*, each with the value up to which there is no more.

    It is asked for so many rows behind *after*, and up to *last*, which comes with the last table.
    """
    portion = Portion()
    while after != last:
        table = read(after, portion.rows)
        after = last if table.num_rows < portion.rows else table.column(by)[-1].as_py()
        yield after, table
        portion.learn(table)


def by_rows(connection: Connection) -> Fetch:
    """The way of a kit, which makes objects of rows first."""

    def fetch(operation: Fetching, columns: Sequence[str]) -> Any:
        rows = connection.execute(operation)
        places = [operation.columns.index(name) for name in columns]
        return pa.table([pa.array([row[place] for row in rows]) for place in places], list(columns))

    return fetch
