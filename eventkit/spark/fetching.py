"""A range of events as Arrow batches, read in a worker process of Spark.

Ten thousand rows make a statement, so that no snapshot lasts: one that does keeps the database from clearing away.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import pyarrow as pa

from ..errors import ForeignTransaction
from ..kit import backend_of
from ..operations.extract import FetchEvents, Fetching, FetchStanding
from ..protocols import Connection
from .layouts import Layout
from .offsets import check_identity, check_loss
from .options import ReadOptions
from .planning import Range
from .refusals import plainly

ROWS = 10_000

Fetch = Callable[[Fetching, Sequence[str]], Any]
"""What executes an operation that reads, with a table of some columns of its statement for an answer."""


def batches(options: ReadOptions, part: Range, layout: Layout) -> Iterator[Any]:
    """The events of *part*."""
    with plainly(), opened(options.address.resolve()) as fetch:
        yield from fetched(fetch, options, part, layout)
        [identity], [pruned_to] = fetch(FetchStanding(part.topic), FetchStanding.columns).to_pydict().values()
        check_identity(part.topic, part.last, part.identity, identity)
        if options.fail_on_data_loss:
            check_loss(part.topic, part.after, pruned_to)


def fetched(fetch: Fetch, options: ReadOptions, part: Range, layout: Layout) -> Iterator[Any]:
    """The events of *part* that are there."""
    keys, since, before = list(options.keys), options.starting.moment, options.ending.moment
    columns = list(dict.fromkeys(["offset", *layout.sources]))
    after = part.after
    while after < part.last:
        table = fetch(FetchEvents(part.topic, after, part.last, keys, since, before, ROWS), columns)
        if table.num_rows:
            yield layout.batch(table, part.topic)
        after = part.last if table.num_rows < ROWS else table.column("offset")[-1].as_py()


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
