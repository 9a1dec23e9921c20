"""The content of an archive, read by its manifest, and from the folder alone."""

from pathlib import Path
from typing import Any

from pyarrow import parquet

import eventkit
from eventkit.archive.files import topic_folder
from eventkit.operations.bulk import Archive, ListPaths, ReadArchive


def manifest(kit: Any, topic: str = "orders") -> Archive:
    """Return the database's manifest of the archive."""
    archive: Archive = kit._connection.execute(ReadArchive(topic))
    return archive


def archived(kit: Any, location: Path, topic: str = "orders") -> list[tuple[Any, ...]]:
    """Return the events in the files of the manifest, as stored."""
    found = []
    for file in manifest(kit, topic).files:
        table = parquet.ParquetFile(location / file.path).read()
        rows = table.to_pylist()
        assert [row["offset"] for row in rows] == sorted(row["offset"] for row in rows)
        assert (rows[0]["offset"], rows[-1]["offset"], len(rows)) == (file.first, file.last, file.rows)
        assert {row["created_at"].strftime("%Y-%m-%d") for row in rows} == {file.date}
        found += [
            (row["offset"], row["key"], row["payload"], dict(row["headers"] or {}), row["created_at"]) for row in rows
        ]
    return sorted(found, key=lambda row: row[0])


def listed(location: Path, format: str, topic: str = "orders") -> list[tuple[Any, ...]]:
    """Return the events as a reader gets them from the folder and its format's library alone."""
    if format == "delta":
        import deltalake

        table = deltalake.DeltaTable(str(location / topic_folder(topic))).to_pyarrow_table()
    else:
        from pyiceberg.table import StaticTable

        table = StaticTable.from_metadata(str(location / topic_folder(topic))).scan().to_arrow()
    assert set(table["topic"].to_pylist()) <= {topic}
    return sorted(
        (row["offset"], row["key"], row["payload"], dict(row["headers"] or {}), row["created_at"])
        for row in table.to_pylist()
    )


def published(kit: Any, topic: str = "orders") -> list[tuple[Any, ...]]:
    """Return the events in the database, in the same form."""
    import msgspec

    stream, found = kit.stream(topic), []
    after = 0
    while events := stream.read(after, 10_000, on_truncated="skip"):
        after = events[-1].offset
        found += [
            (one.offset, one.key, msgspec.json.encode(one.payload).decode(), one.headers, one.created_at)
            for one in events
        ]
    return found


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
