"""Checking an archive against its files, and adopting a database that was restored."""

import posixpath
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from .. import checks
from ..errors import EventkitError
from ..kit import backend_of
from ..operations.bulk import AdoptLake, ListPaths, OpenLake, ReadLake
from ..operations.position import FindFork, Position, VerifyPosition
from ..operations.tables import ReadIdentity
from ..protocols import Connection
from . import layout
from .store import Store, tables
from .turn import claim_in


class Checked(NamedTuple):
    """A complete archive: its files, the events in them, and the offset that it covers."""

    topic: str
    location: str
    files: int
    events: int
    covered: int


def check(url: str, topic: str, *, progress: Callable[[int, int], object] | None = None) -> Checked:
    """Read all files of a topic's archive from beginning to end; raise `EventkitError` for the first damaged one."""
    with closing(backend_of(url).connect(url, create=False)) as connection:
        lake = connection.execute(ReadLake(checks.name("topic", topic)))
    if lake is None:
        raise ValueError(f"topic {topic!r} has no archive: eventkit archive makes one")
    store, events, total = Store(lake.location), 0, sum(file.rows for file in lake.files)
    for file in lake.files:
        last = file.first - 1
        for table in tables(store, file):
            first, last_before = table["offset"][0].as_py(), last
            last = table["offset"][-1].as_py()
            if not last_before < first <= last <= file.last:
                raise EventkitError(f"{file.path} in {lake.location} has other offsets than the manifest: restore it")
            events += table.num_rows
            if progress is not None:
                progress(events, total)
    return Checked(topic, lake.location, len(lake.files), events, lake.covered)


class Adopted(NamedTuple):
    """An adopted database: the topic, the place, the offset reached before, and the offset after which to continue."""

    topic: str
    location: str
    before: int
    after: int
    files: int


def adopt_checkpoint(url: str, checkpoint: str | Path) -> list[Adopted]:
    """Let a Spark query continue after the last event that both its checkpoint and the database have.

    The query has to be stopped.  Rows that it has written from lost events stay where they are.  Topics in which the
    database has not gone back are unchanged.
    """
    store = Store(checkpoint)
    batches = sorted(int(name) for path in store.list("offsets") if (name := posixpath.basename(path)).isdigit())
    if not batches:
        raise ValueError(f"{store.location} is no checkpoint of a query: name the folder given as checkpointLocation")
    adopted: dict[str, Adopted] = {}
    with closing(backend_of(url).connect(url, create=False)) as connection:
        # The last micro-batch may have to be repeated, from the end of the one before it.
        for batch in batches[-2:]:
            path = f"offsets/{batch}"
            text = (store.read(path) or b"").decode()
            lines = [_adopt_line(connection, store.location, line, adopted) for line in text.split("\n")]
            if "\n".join(lines) != text:
                store.remove(f"offsets/.{batch}.crc")
                store.write(path, "\n".join(lines).encode())
    return list(adopted.values())


def adopt_archive(url: str, topic: str, *, to: str | Path | None = None) -> Adopted:
    """Let the archive of a topic continue from the database's state of it.

    Files that the database does not know have lost events: they are moved to the folder ``_lost`` of the topic.  *to*
    names the archive's folder if the database is older than the archive.
    """
    with closing(backend_of(url).connect(url, create=False)) as connection:
        lake = connection.execute(ReadLake(topic))
        if lake is None:
            if to is None:
                raise ValueError(f"topic {topic!r} has no archive in this database: pass the archive's folder with to=")
            connection.execute(OpenLake(topic, Store(to).location, None))
            lake = connection.execute(ReadLake(topic))
            assert lake is not None
        store = Store(to or lake.location)
        with store.told("cannot be adopted"):
            claim = claim_in(store, topic)
            if claim is not None and claim.database != connection.execute(ReadIdentity()):
                raise EventkitError(f"the archive of topic {topic!r} in {store.location} is one of another database")
            missing = [file.path for file in lake.files if store.size(file.path) is None]
            if missing:
                raise EventkitError(
                    f"{len(missing)} files of the manifest are not in {store.location}, such as "
                    f"{missing[0]}: they were compacted since; restore the folder as it was with the database"
                )
            known = set(connection.execute(ListPaths(topic)))
            lost = [path for path in store.list(layout.folder(topic)) if layout.epoch(path) and path not in known]
            for path in lost:
                store.move(path, f"{layout.folder(topic)}/_lost/{posixpath.basename(path)}")
            if claim is not None:
                connection.execute(AdoptLake(topic, claim.turn))
        reached = max((int(posixpath.basename(path).split("-")[1]) for path in lost), default=lake.covered)
    return Adopted(topic, store.location, reached, lake.covered, len(lost))


def _adopt_line(connection: Connection, location: str, line: str, adopted: dict[str, Adopted]) -> str:
    """Return a line of a checkpoint, with its positions replaced by those of this database."""
    try:
        places = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return line
    if not isinstance(places, dict) or not places:
        return line
    changed = False
    for topic, place in places.items():
        position = Position.read_back(place)
        if position is None:
            return line
        if position.database != connection.execute(ReadIdentity()):
            raise EventkitError(
                f"the checkpoint {location} is of another database than the one at the url: correct the url, or start "
                f"again with another checkpointLocation"
            )
        if not connection.execute(VerifyPosition(topic, position)):
            fork = connection.execute(FindFork(topic, position))
            places[topic] = fork._asdict()
            adopted[topic] = Adopted(topic, location, position.offset, fork.offset, 0)
            changed = True
    return msgspec.json.encode(places).decode() if changed else line
