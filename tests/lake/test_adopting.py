"""Archives of a database that was restored from a backup."""

from pathlib import Path
from typing import Any

import pytest
from command_line import Commands
from lake.archives import archived, manifest, publish, published
from restoring import take_back

import eventkit
from eventkit import EventkitError, lake
from eventkit.conformance.clauses import proves


@proves("D15")
def test_an_archive_goes_on_from_a_restored_database(
    url: str, location: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After `eventkit adopt`, which keeps the files that have what the database has lost."""
    if not url.startswith("sqlite"):
        pytest.skip("restoring a database of Postgres takes pg_dump")
    database = tmp_path / "shop.db"
    with eventkit.connect(url) as kit:
        publish(kit, 3)
        lake.archive(url, "orders", to=location)
    backup = database.read_bytes()
    with eventkit.connect(url) as kit:
        publish(kit, 4)
        lake.archive(url, "orders")
        [_, lost] = manifest(kit).files
    database.write_bytes(backup)
    with eventkit.connect(url) as kit:
        publish(kit, 6)
        with pytest.raises(EventkitError, match="goes further than this database.*eventkit adopt --archive orders"):
            lake.archive(url, "orders")
        [adopted] = Commands(capsys, url).json("adopt", "--archive", "orders")
        assert (adopted["before"], adopted["after"], adopted["files"]) == (7, 3, 1)
        assert lake.archive(url, "orders").events == 6
        assert archived(kit, location) == published(kit)
        assert [path.name for path in location.glob("topic=orders/_lost/*")] == [Path(lost.path).name]


@proves("D15")
def test_nothing_is_archived_of_a_database_that_goes_back_meanwhile(
    kit: Any, url: str, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read then is gone, and its offsets are other events'."""
    offsets = publish(kit, 3)
    again: list[int] = []

    def go_back(_done: int, _total: int) -> None:
        if not again:
            take_back(kit, url, offsets[0])
            again.extend(publish(kit, 5))

    with pytest.raises(EventkitError, match="gone back"):
        lake.archive(url, "orders", to=location, progress=go_back)
    assert lake.archive(url, "orders").events == 6
    assert archived(kit, location) == published(kit)
