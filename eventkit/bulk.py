"""Rows as tables of Arrow, by the fastest way there is in this process: for whoever reads millions of them.

Ten thousand rows make a statement, so that no snapshot lasts: one that does keeps the database from clearing away.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import pyarrow as pa

from .errors import ForeignTransaction
from .kit import backend_of
from .operations.extract import Fetching
from .protocols import Connection

ROWS = 10_000

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


def by_rows(connection: Connection) -> Fetch:
    """The way of a kit, which makes objects of rows first."""

    def fetch(operation: Fetching, columns: Sequence[str]) -> Any:
        rows = connection.execute(operation)
        places = [operation.columns.index(name) for name in columns]
        return pa.table([pa.array([row[place] for row in rows]) for place in places], list(columns))

    return fetch
