"""Compaction of small files into large ones."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from archive.archives import archived, assert_nothing_else, both, manifest, publish, published

from eventkit import archive
from eventkit.archive import archiver
from eventkit.archive.archiver import crowds
from eventkit.conformance.clauses import proves
from eventkit.operations.bulk import ArchiveFile, ListPaths
from eventkit.testing import advance


@proves("D12")
@both
def test_many_small_files_become_one(kit: Any, url: str, location: Path) -> None:
    """It holds the same events; the small ones stay for an hour, for their readers."""
    for _ in range(8):
        publish(kit, 3)
        came = archive.archive(url, "orders", to=location)
    assert came.compacted == 8
    assert len(manifest(kit).files) == 1
    assert archived(kit, location) == published(kit)
    assert len(kit._connection.execute(ListPaths("orders"))) == 9
    assert_nothing_else(kit, location)
    advance(kit, 3_601)
    archive.archive(url, "orders")
    assert len(kit._connection.execute(ListPaths("orders"))) == 1
    assert_nothing_else(kit, location)


@pytest.mark.parametrize("size", [1_000, 300_000, 5_000_000])
def test_an_event_is_written_a_few_times_at_most(size: int) -> None:
    """This holds for any number of runs, until its file is large; and there are never many files."""
    files: list[ArchiveFile] = []
    written = 0
    for number in range(2_000):
        files.append(ArchiveFile(f"{number}", "2026-01-31", number, number, 1, size, 0, 0))
        for crowd in crowds(files):
            made = ArchiveFile("m", "2026-01-31", crowd[0].first, crowd[-1].last, 1, sum(f.bytes for f in crowd), 0, 0)
            written += made.bytes
            files = sorted([file for file in files if file not in crowd] + [made], key=lambda file: file.first)
    small = [file for file in files if file.bytes < archiver.TARGET]
    assert len(small) < 60
    assert written < 8 * 2_000 * size + 2_000 * archiver._SMALL
    assert all(before.last < after.first for before, after in pairwise(files))
