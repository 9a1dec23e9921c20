"""Accepting a database that has gone back, for what remembers more than it has: checkpoints of Spark, and archives.

A backup was restored, or an asynchronous standby was promoted.  A query or an archiver that goes on by numbers alone
would skip the events that were given the lost ones' offsets, so both refuse to, until an operator has named them here.
"""

import posixpath
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..errors import EventkitError
from ..kit import backend_of
from ..operations.extract import ReadIdentity
from ..operations.lake import AdoptLake, ListPaths, OpenLake, ReadLake
from ..operations.position import FindFork, Position, VerifyPosition
from ..protocols import Connection
from . import layout
from .store import Store
from .turn import claim_in


class Adopted(NamedTuple):
    """An accepted database: the topic, the place, the offset reached before, and the offset to go on behind."""

    topic: str
    location: str
    before: int
    after: int
    files: int


def adopt_checkpoint(url: str, checkpoint: str | Path) -> list[Adopted]:
    """Let a Spark query go on behind the last event that both its checkpoint and the database have.

    The query has to be stopped.  What it has written of lost events stays where it wrote it.  Topics at which the
    database has not gone back are left as they are.
    """
    store = Store(checkpoint)
    batches = sorted(int(name) for path in store.list("offsets") if (name := posixpath.basename(path)).isdigit())
    if not batches:
        raise ValueError(f"{store.location} is no checkpoint of a query: name the folder given as checkpointLocation")
    adopted: dict[str, Adopted] = {}
    with closing(backend_of(url).connect(url, create=False)) as connection:
        # The last micro-batch may have to be repeated, from where the one before it ended.
        for batch in batches[-2:]:
            path = f"offsets/{batch}"
            text = (store.read(path) or b"").decode()
            lines = [_adopt_line(connection, store.location, line, adopted) for line in text.split("\n")]
            if "\n".join(lines) != text:
                store.remove(f"offsets/.{batch}.crc")
                store.write(path, "\n".join(lines).encode())
    return list(adopted.values())


def adopt_archive(url: str, topic: str, *, to: str | Path | None = None) -> Adopted:
    """Let the archive of a topic go on from what the database has of it.

    Files that the database does not know hold events that it has lost: they are moved to the folder ``_lost`` of the
    topic.  *to* names the archive's folder where the database is older than the archive.
    """
    with closing(backend_of(url).connect(url, create=False)) as connection:
        lake = connection.execute(ReadLake(topic))
        if lake is None:
            if to is None:
                raise ValueError(f"topic {topic!r} has no archive in this database: name the archive's folder")
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
                    f"{len(missing)} files that the database counts on are not in {store.location}, such as "
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
    """A line of a checkpoint, with the positions in it as they are in this database."""
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
                f"the checkpoint {location} is of another database than the one at the url: correct the url, or begin "
                f"anew with another checkpointLocation"
            )
        if not connection.execute(VerifyPosition(topic, position)):
            fork = connection.execute(FindFork(topic, position))
            places[topic] = fork._asdict()
            adopted[topic] = Adopted(topic, location, position.offset, fork.offset, 0)
            changed = True
    return msgspec.json.encode(places).decode() if changed else line
