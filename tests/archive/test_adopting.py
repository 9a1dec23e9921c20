"""Archives of a database that was restored from a backup."""

from pathlib import Path
from typing import Any

import pytest
from archive.archives import archived, both, manifest, publish, published
from command_line import Commands
from restoring import backed_up, take_back

import eventkit
from eventkit import EventkitError, archive
from eventkit.conformance.clauses import proves


@proves("D15")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_an_archive_goes_on_from_a_restored_database(
    request: pytest.FixtureRequest, kind: str, location: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After `eventkit adopt` it does, and keeps the files with events that the database has lost."""
    # The test recreates the tables, so that it needs a schema of its own.
    url = request.getfixturevalue("url" if kind == "sqlite" else "postgres_url")
    with eventkit.connect(url) as kit:
        publish(kit, 3)
        archive.archive(url, "orders", to=location)
    restore = backed_up(url, tmp_path)
    with eventkit.connect(url) as kit:
        publish(kit, 4)
        archive.archive(url, "orders")
        [_, lost] = manifest(kit).files
    restore()
    with eventkit.connect(url) as kit:
        publish(kit, 6)
        with pytest.raises(EventkitError, match="goes further than this database.*eventkit adopt --archive orders"):
            archive.archive(url, "orders")
        [adopted] = Commands(capsys, url).json("adopt", "--archive", "orders")
        assert (adopted["before"], adopted["after"], adopted["files"]) == (7, 3, 1)
        assert archive.archive(url, "orders").events == 6
        assert archived(kit, location) == published(kit)
        assert [path.name for path in location.glob("topic=orders/_lost/*")] == [Path(lost.path).name]


@proves("D15")
@both
def test_nothing_is_archived_of_a_database_that_goes_back_meanwhile(
    kit: Any, url: str, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events read before are lost, and their offsets belong to others."""
    offsets = publish(kit, 3)
    again: list[int] = []

    def go_back(_done: int, _total: int) -> None:
        if not again:
            take_back(kit, url, offsets[0])
            again.extend(publish(kit, 5))

    with pytest.raises(EventkitError, match="gone back"):
        archive.archive(url, "orders", to=location, progress=go_back)
    assert archive.archive(url, "orders").events == 6
    assert archived(kit, location) == published(kit)
