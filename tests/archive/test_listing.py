"""Archives that are tables of Delta Lake and Apache Iceberg as well, read from the folder alone."""

import shutil
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import deltalake
import pytest
from archive.archives import archived, listed, manifest, publish, published
from pyiceberg.table import StaticTable

from eventkit import EventkitError, archive
from eventkit.archive import archiver, iceberg
from eventkit.archive.files import Store, topic_folder
from eventkit.archive.lease import Listing
from eventkit.conformance.clauses import proves
from eventkit.testing import advance

formats = pytest.mark.parametrize("format", ["delta", "iceberg"])


def versions(location: Path, format: str) -> int:
    """Return the number of commits to the table."""
    root = location / topic_folder("orders")
    if format == "delta":
        return int(deltalake.DeltaTable(str(root)).version())
    return len(StaticTable.from_metadata(str(root)).metadata.snapshots)


def files(location: Path, format: str) -> set[str]:
    """Return the files of the table, relative to the archive's folder."""
    root = location / topic_folder("orders")
    if format == "delta":
        paths = deltalake.DeltaTable(str(root)).file_uris()
    else:
        paths = [scan.file.file_path for scan in StaticTable.from_metadata(str(root)).scan().plan_files()]
    assert len(set(paths)) == len(paths)
    return {str(Path(path).relative_to(location)) for path in paths}


def sought(location: Path, format: str, offset: int) -> list[str]:
    """Return the payload at an offset, reading only the files that can have it."""
    root = str(location / topic_folder("orders"))
    if format == "delta":
        filters: Any = [("offset", "=", offset)]
        found = deltalake.DeltaTable(root).to_pyarrow_table(filters=filters)
    else:
        found = StaticTable.from_metadata(root).scan(f"offset = {offset}").to_arrow()
    payloads: list[str] = found["payload"].to_pylist()
    return payloads


@proves("D20")
@formats
def test_a_table_has_what_was_published(kit: Any, url: str, location: Path, format: Any) -> None:
    """It does after several runs, over days, and for events pruned from the database."""
    publish(kit, 5)
    archive.archive(url, "orders", to=location, format=format)
    assert listed(location, format) == published(kit)
    publish(kit, 4)
    archive.archive(url, "orders")
    advance(kit, 2 * 86_400)
    publish(kit, 3)
    archive.archive(url, "orders")
    expected = archived(kit, location)
    assert [row[:4] for row in expected] == [row[:4] for row in published(kit)]
    archive.archive(url, "orders", prune=True)
    assert listed(location, format) == expected
    for number in (0, 4, 5, -1):
        assert sought(location, format, expected[number][0]) == [expected[number][2]]


@proves("D20")
@formats
def test_files_are_swapped_in_one_commit(
    kit: Any, url: str, location: Path, format: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One replaces three small ones; a run without events commits nothing."""
    monkeypatch.setattr(archiver, "_MANY", 3)
    for _ in range(3):
        before = versions(location, format) if location.exists() else 0
        publish(kit, 3)
        came = archive.archive(url, "orders", to=location, format=format)
    assert came.compacted == 3
    assert versions(location, format) == before + 2
    assert files(location, format) == {file.path for file in manifest(kit).files}
    assert listed(location, format) == archived(kit, location) == published(kit)
    archive.archive(url, "orders")
    assert versions(location, format) == before + 2


@proves("D20")
@formats
def test_an_archive_of_files_becomes_a_table_and_stays_it(
    kit: Any, url: str, location: Path, format: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps all its events; its format cannot be changed again."""
    publish(kit, 3)
    archive.archive(url, "orders", to=location)
    monkeypatch.setitem(sys.modules, f"eventkit.archive.{format}", None)
    with pytest.raises(EventkitError, match=rf"takes .*{format}: pip install 'eventkit-db\[{format}\]'$"):
        archive.archive(url, "orders", format=format)
    monkeypatch.undo()
    archive.archive(url, "orders", format=format)
    assert listed(location, format) == published(kit)
    other: Any = {"delta": "iceberg", "iceberg": "delta"}[format]
    for refused in ("parquet", other):
        with pytest.raises(EventkitError, match=f"has format {format}, not {refused}: pass that"):
            archive.archive(url, "orders", format=refused)
    with pytest.raises(ValueError, match="format is one of parquet, delta, iceberg, not 'orc'"):
        archive.archive(url, "orders", format="orc")  # type: ignore[arg-type]


@proves("D20")
@formats
def test_a_table_that_is_lost_or_damaged_is_written_anew(kit: Any, url: str, location: Path, format: Any) -> None:
    """It is rewritten after its removal, as the error says; the archive is complete all the time."""
    publish(kit, 3)
    archive.archive(url, "orders", to=location, format=format)
    folder = location / topic_folder("orders") / {"delta": "_delta_log", "iceberg": "metadata"}[format]
    for file in folder.glob("*.json"):
        file.write_text("{")
    publish(kit, 2)
    with pytest.raises(
        EventkitError, match=f"cannot be brought in step: .*remove topic=orders/{folder.name}"
    ) as caught:
        archive.archive(url, "orders")
    assert "\n" not in str(caught.value)
    assert archive.check(url, "orders").events == 3
    shutil.rmtree(folder)
    archive.archive(url, "orders")
    assert listed(location, format) == published(kit)


@proves("D20")
@formats
def test_an_archiver_with_an_older_manifest_changes_nothing(kit: Any, url: str, location: Path, format: Any) -> None:
    """Its lease has ended between reading the manifest and committing."""
    publish(kit, 3)
    archive.archive(url, "orders", to=location, format=format)
    late, store = Listing(Store(str(location)), "orders", format), []

    def manifest_of_before() -> Any:
        found = manifest(kit).files
        if not store:
            store.append(found)
            publish(kit, 2)
            archive.archive(url, "orders")
            return found[:0]
        return found

    late.follow(manifest_of_before)
    assert listed(location, format) == published(kit)


@proves("D20")
@formats
def test_any_name_of_a_topic_works_or_is_refused(kit: Any, url: str, location: Path, format: Any) -> None:
    """Any name works or is refused in a line, before anything exists; a topic without events is an empty table."""
    publish(kit, 3, "a/b é#?")
    if format == "delta":
        with pytest.raises(EventkitError, match="folders with % in their names.*as iceberg or parquet"):
            archive.archive(url, "a/b é#?", to=location, format=format)
        assert not location.exists()
    else:
        archive.archive(url, "a/b é#?", to=location, format=format)
        assert listed(location, format, "a/b é#?") == published(kit, "a/b é#?")
    kit.stream("orders").configure(keep=timedelta(days=9))
    archive.archive(url, "orders", to=location, format=format)
    assert listed(location, format) == []


@proves("D20")
def test_versions_of_a_table_do_not_pile_up(
    kit: Any, url: str, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a commit every minute, a version remains readable for an hour."""
    monkeypatch.setattr(iceberg, "_KEPT", timedelta(0))
    monkeypatch.setitem(iceberg._SETTINGS, "write.metadata.previous-versions-max", "2")
    sizes = []
    for _ in range(8):
        publish(kit, 1)
        archive.archive(url, "orders", to=location, format="iceberg")
        sizes.append(len(list((location / "topic=orders" / "metadata").iterdir())))
    assert max(sizes) < 20
    assert listed(location, "iceberg") == published(kit)
    # The state after a kill between the two commits.
    hint = location / "topic=orders" / "metadata" / "version-hint.text"
    hint.write_text(str(int(hint.read_text()) - 1))
    archive.archive(url, "orders")
    assert listed(location, "iceberg") == published(kit)
