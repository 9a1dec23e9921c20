"""A range of events as Arrow batches, read in a worker process of Spark."""

from collections.abc import Iterator
from typing import Any

from ..bulk import Fetch, opened, pages
from ..operations.extract import FetchEvents, FetchStanding
from .layouts import Layout
from .offsets import check_identity, check_loss
from .options import ReadOptions
from .planning import Range
from .refusals import plainly


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

    def read(after: int, limit: int) -> Any:
        return fetch(FetchEvents(part.topic, after, part.last, keys, since, before, limit), columns)

    for _, table in pages(read, part.after, part.last, "offset"):
        if table.num_rows:
            yield layout.batch(table, part.topic)
