"""Whether an archive is whole."""

from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from .. import arguments
from ..errors import EventkitError
from ..kit import backend_of
from ..operations.lake import ReadLake
from .reading import tables
from .store import Store


class Checked(NamedTuple):
    """An archive that is whole: its files, the events in them, and the offset up to which it has everything."""

    topic: str
    location: str
    files: int
    events: int
    covered: int


def check(url: str, topic: str, *, progress: Callable[[int, int], object] | None = None) -> Checked:
    """Read all files of a topic's archive from beginning to end; `EventkitError` names the first that is not whole."""
    with closing(backend_of(url).connect(url, create=False)) as connection:
        lake = connection.execute(ReadLake(arguments.name("topic", topic)))
    if lake is None:
        raise ValueError(f"topic {topic!r} has no archive: eventkit archive makes one")
    store, events, total = Store(lake.location), 0, sum(file.rows for file in lake.files)
    for file in lake.files:
        last = file.first - 1
        for table in tables(store, file):
            first, last_before = table["offset"][0].as_py(), last
            last = table["offset"][-1].as_py()
            if not last_before < first <= last <= file.last:
                raise EventkitError(f"{file.path} in {lake.location} has other offsets than were written: restore it")
            events += table.num_rows
            if progress is not None:
                progress(events, total)
    return Checked(topic, lake.location, len(lake.files), events, lake.covered)
