"""The content of an archive, read by its manifest, and from the folder alone."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyarrow import parquet

import eventkit
from eventkit.archive.files import topic_folder
from eventkit.operations.bulk import Archive, ListPaths, ReadArchive

both = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
"""Marks tests of statements that the two kinds of database have each."""

Row = tuple[int, str | None, str, dict[str, str], Any]
"""An event: offset, key, payload as stored, headers and moment."""


def manifest(kit: Any, topic: str = "orders") -> Archive:
    """Return the database's manifest of the archive."""
    archive: Archive = kit._connection.execute(ReadArchive(topic))
    return archive


def events(rows: Iterable[dict[str, Any]]) -> list[Row]:
    """Return the events in the rows of a table, in order."""
    found = ((row["offset"], row["key"], row["payload"], dict(row["headers"] or {}), row["created_at"]) for row in rows)
    return sorted(found, key=lambda row: row[0])


def archived(kit: Any, location: Path, topic: str = "orders") -> list[Row]:
    """Return the events in the files of the manifest."""
    found = []
    for file in manifest(kit, topic).files:
        rows = parquet.ParquetFile(location / file.path).read().to_pylist()
        assert [row["offset"] for row in rows] == sorted(row["offset"] for row in rows)
        assert (rows[0]["offset"], rows[-1]["offset"], len(rows)) == (file.first, file.last, file.rows)
        assert {row["created_at"].strftime("%Y-%m-%d") for row in rows} == {file.date}
        found += rows
    return events(found)


def listed(location: Path, format: str, topic: str = "orders") -> list[Row]:
    """Return the events as a reader gets them from the folder and its format's library alone."""
    folder = str(location / topic_folder(topic))
    if format == "delta":
        import deltalake

        table = deltalake.DeltaTable(folder).to_pyarrow_table()
    else:
        from pyiceberg.table import StaticTable

        table = StaticTable.from_metadata(folder).scan().to_arrow()
    assert set(table["topic"].to_pylist()) <= {topic}
    return events(table.to_pylist())


def published(kit: Any, topic: str = "orders") -> list[Row]:
    """Return the events in the database, in the same form."""
    found = kit.stream(topic).read(0, 10_000, on_truncated="skip")
    assert len(found) < 10_000
    return [
        (one.offset, one.key, msgspec.json.encode(one.payload).decode(), one.headers, one.created_at) for one in found
    ]


def assert_nothing_else(kit: Any, location: Path, topic: str = "orders") -> None:
    """Check that the folder has the manifest's files and replaced ones, and nothing else."""
    there = {str(file.relative_to(location)) for file in location.rglob("*") if file.is_file()}
    there = {path for path in there if not path.endswith("_lease.json")}
    known = set(kit._connection.execute(ListPaths(topic)))
    # A compaction killed after removing replaced files has not updated the manifest yet.
    assert {file.path for file in manifest(kit, topic).files} <= there <= known


def publish(kit: Any, number: int, topic: str = "orders") -> list[int]:
    """Publish some more events and return their offsets."""
    events = [
        eventkit.NewEvent({"n": n}, f"customer-{n % 3}", {"trace": str(n)} if n % 2 else None) for n in range(number)
    ]
    offsets: list[int] = kit.stream(topic).publish_many(events)
    return offsets
