"""Copies that are repeated, refused, disturbed and killed: `eventkit.copy`."""

import asyncio
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import copying_program
import eventkit_migrations
import eventkit_sqlite
import moving
import msgspec
import pytest
from moving import Places, routes

import eventkit
from eventkit import transfer
from eventkit.cli.admin import examine
from eventkit.conformance import proves
from eventkit.errors import CopyDiffers

PROGRAM = copying_program.__file__
places = moving.places


@routes
@proves("K8")
def test_a_copy_is_repeated_without_harm(places: Places, route: tuple[str, str]) -> None:
    """A complete copy is recognised, and later additions of the source are copied."""
    here, there = (places.fresh(kind) for kind in route)
    with eventkit.connect(here) as kit:
        kit.queue("emails").enqueue("first", key="first")
        first = eventkit.copy(here, there)
        assert eventkit.copy(here, there) == first
        kit.queue("emails").enqueue("second")
    assert eventkit.copy(here, there)["eventkit_task"] == 2


@routes
@proves("K8")
def test_what_is_not_a_copy_is_not_written_to(places: Places, route: tuple[str, str]) -> None:
    """A database in use, or a copy that has changed, is refused before anything is written."""
    here, there = (places.fresh(kind) for kind in route)
    with eventkit.connect(here) as kit:
        kit.queue("emails").enqueue("first")
        kit.stream("orders").publish("order")
    with eventkit.connect(there) as used:
        used.queue("emails").enqueue("foreign")
        with pytest.raises(CopyDiffers, match=r"in eventkit_task .* downgrade") as raised:
            eventkit.copy(here, there)
        assert raised.value.table == "eventkit_task"
        assert raised.value.expected is not None
        assert raised.value.expected[0] == 1
        assert raised.value.found is not None
        assert "foreign" in raised.value.found[12]
        assert used.stream("orders").head() == 0
    eventkit_migrations.downgrade(there, "base")
    eventkit.copy(here, there)
    with eventkit.connect(there) as used, used.transaction() as tx:
        used.inbox("shop").once("mine", tx=tx)
    with pytest.raises(CopyDiffers, match=r"in eventkit_inbox the source has no row"):
        eventkit.copy(here, there)


@proves("K8")
def test_a_source_that_is_not_there_is_not_made(places: Places) -> None:
    """A misspelt URL leaves no file behind."""
    here = places.fresh("sqlite")
    with pytest.raises(eventkit.EventkitError):
        eventkit.copy(here, places.fresh("postgres"))
    assert not Path(here.removeprefix("sqlite:///")).exists()
    with pytest.raises(ValueError, match="same database"):
        eventkit.copy(here, here)


@routes
@proves("K8")
def test_a_worker_that_was_there_first_finds_what_arrives(places: Places, route: tuple[str, str]) -> None:
    """A target that was opened and found empty is as good as a new one."""
    here, there = (places.fresh(kind) for kind in route)
    with eventkit.connect(here) as kit:
        kit.queue("emails").enqueue("first")
    with eventkit.connect(there) as early:
        assert early.queue("emails").claim("worker") == []
        time.sleep(0.2)  # A claim stores where ready tasks begin: a moment ago at the earliest.
        assert early.queue("emails").claim("worker") == []
        eventkit.copy(here, there)
        assert [task.payload for task in early.queue("emails").claim("worker")] == ["first"]


@routes
@proves("K8")
def test_a_write_during_the_copy_is_noticed(
    places: Places, route: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task claimed after it was copied shows in the final comparison, and the error names a remedy."""
    here, there = (places.fresh(kind) for kind in route)
    with eventkit.connect(here) as kit:
        kit.queue("emails").enqueue("first")
        verified = transfer._verified

        def late(*arguments: Any) -> int:
            kit.queue("emails").claim("worker")
            answer: int = verified(*arguments)
            return answer

        monkeypatch.setattr("eventkit.transfer._verified", late)
        with pytest.raises(CopyDiffers, match=r"eventkit_task .*'leased'.*another process wrote.*copy again"):
            eventkit.copy(here, there)


def copy_until(reports: int, source: str, target: str, output: Path) -> int:
    """Copy in a process of its own, kill it soon after so many reports of progress, and return how many there were.

    The answer is -1 for a copy that was already complete.
    """
    with output.open("wb") as file:
        process = subprocess.Popen([sys.executable, PROGRAM, "copy", source, target], stdout=file)
    while process.poll() is None and output.read_bytes().count(b".") < reports:
        time.sleep(0.001)
    time.sleep(random.uniform(0, 0.05))
    process.kill()
    ended = process.wait()
    said = output.read_bytes()
    assert b"finished" in said or ended == -signal.SIGKILL, "a copy ended with an error"
    return -1 if b"finished" in said else said.count(b".")


def kill_often(places: Places, route: tuple[str, str], output: Path, kills: int) -> None:
    """Kill copies at random moments, repeat each until it is complete, and start again until *count* were killed."""
    source, target = (places.fresh(kind) for kind in route)
    with eventkit.connect(source) as kit:
        kit.stream("orders").publish_many(range(6000))
        kit.queue("emails").enqueue_many([eventkit.NewTask(number, key=str(number)) for number in range(6000)])
        kit.queue("emails").claim("worker", limit=500)
        with kit.transaction() as tx:
            for number in range(1000):
                kit.inbox("shop").once(str(number), tx=tx)
    reports: list[str] = []
    whole = eventkit.copy(source, target, progress=lambda table, rows: reports.append(table))
    eventkit_migrations.downgrade(target, "base")
    killed = on_the_way = 0
    while killed < kills or not on_the_way:
        reached = copy_until(random.randrange(len(reports)), source, target, output)
        if reached < 0:
            assert eventkit.copy(source, target) == whole
            eventkit_migrations.downgrade(target, "base")
        else:
            killed += 1
            on_the_way += reached > 0
        assert killed < 10 * kills, "no copy was killed on its way"
    assert eventkit.copy(source, target) == whole


@pytest.mark.parametrize(
    "route",
    [("sqlite", "postgres"), pytest.param(("postgres", "sqlite"), marks=pytest.mark.slow)],
    ids=["to-postgres", "to-sqlite"],
)
@proves("K8")
def test_a_killed_copy_is_repeated(places: Places, route: tuple[str, str], tmp_path: Path) -> None:
    """Three copies are killed at random moments."""
    kill_often(places, route, tmp_path / "output", 3)


@pytest.mark.slow
@routes
@proves("K8")
def test_two_hundred_killed_copies_are_repeated(places: Places, route: tuple[str, str], tmp_path: Path) -> None:
    """Fifty copies of each route are killed at random moments."""
    kill_often(places, route, tmp_path / "output", 50)


def fill(url: str) -> None:
    with eventkit.connect(url) as kit:
        kit.stream("orders").publish_many([{"n": n, "text": "é" * 400} for n in range(3000)])
        kit.queue("emails").enqueue_many([eventkit.NewTask(n, key=str(n), priority=n % 3) for n in range(1000)])
        kit.queue("emails").claim("worker", limit=10)


def killed_at(step: int, *arguments: object) -> None:
    ended = subprocess.run([sys.executable, PROGRAM, *map(str, arguments), str(step)], capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize(("what", "step"), [("copy", 2), ("import", 6)])
@proves("K8", "L4")
def test_half_of_a_database_is_refused(places: Places, kind: str, what: str, step: int, tmp_path: Path) -> None:
    """A killed copy can neither be opened nor copied from; repeated, it continues and completes."""
    source, target, file = places.fresh("sqlite"), places.fresh(kind), tmp_path / "export"
    fill(source)
    file.write_bytes(b"".join(transfer.read(source)))
    killed_at(step, what, source if what == "copy" else file, target)

    async def connect() -> None:
        await eventkit.connect_async(target)

    remedies = rf"run eventkit {what} again .* or remove the database \(python -m eventkit_migrations downgrade"
    for opened in [
        lambda: eventkit.connect(target),
        lambda: asyncio.run(connect()),
        lambda: eventkit.copy(target, places.fresh("sqlite")),
        lambda: list(transfer.read(target)),
    ]:
        with pytest.raises(eventkit.Unavailable, match=remedies):
            opened()
    assert [one for one in examine(target) if one.level == "bad" and re.search(remedies, one.what)]
    if what == "copy":
        eventkit.copy(source, target)
    else:
        other = tmp_path / "other"
        other.write_bytes(file.read_bytes().replace(b"text", b"other"))
        with pytest.raises(CopyDiffers, match="interrupted import was of another file"):
            transfer.write(target, other.read_bytes().splitlines())
        transfer.write(target, file.read_bytes().splitlines())
    assert b"".join(transfer.read(target)) == file.read_bytes()


@proves("L4")
def test_a_killed_backup_leaves_no_database(places: Places, tmp_path: Path) -> None:
    """A backup has its name only when it is complete, and the next one replaces the remains of the killed one."""
    source, target, part = places.fresh("sqlite"), tmp_path / "backup.db", tmp_path / "backup.db.part"
    fill(source)
    killed_at(1, "backup", source, target)
    assert part.stat().st_size
    assert not target.exists()
    eventkit_sqlite.backup(source, str(target), lambda done, total: None)
    assert list(transfer.read(f"sqlite:///{target}")) == list(transfer.read(source))
    assert list(tmp_path.glob("*.part*")) == []


@proves("L4")
def test_a_backup_that_is_given_up_leaves_nothing(places: Places, tmp_path: Path) -> None:
    """No second backup to the same file runs meanwhile, and an existing file is not overwritten."""
    source, target = places.fresh("sqlite"), tmp_path / "backup.db"
    fill(source)

    def give_up(*_: object) -> None:
        with pytest.raises(eventkit.Busy, match=r"backup\.db\.part"):
            eventkit_sqlite.backup(source, str(target), print)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        eventkit_sqlite.backup(source, str(target), give_up)
    assert list(tmp_path.glob("backup*")) == []
    with pytest.raises(FileExistsError):
        eventkit_sqlite.backup(source, str(target), lambda done, total: target.write_text("made meanwhile"))
    assert target.read_text() == "made meanwhile"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@proves("L4")
def test_a_killed_export_leaves_no_file_of_its_name(places: Places, kind: str, tmp_path: Path) -> None:
    """The next one replaces the remains of the killed one, and is complete."""
    source, target = places.fresh(kind), tmp_path / "export"
    fill(source)
    killed_at(4, "export", source, target)
    assert [file.name for file in tmp_path.glob("export*")] == ["export.part"]
    assert (tmp_path / "export.part").stat().st_size
    subprocess.run([sys.executable, PROGRAM, "export", source, target], check=True, stdout=subprocess.DEVNULL)
    assert target.read_bytes() == b"".join(transfer.read(source))
    assert [file.name for file in tmp_path.glob("export*")] == ["export"]
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("kind", "columns"), [("sqlite", 6), ("postgres", 8)])
@proves("L4")
def test_an_export_with_other_columns_is_refused(places: Places, kind: str, columns: int) -> None:
    """An export of a version with fewer or more columns is refused; no part of a row is dropped silently."""
    source, target = places.fresh("sqlite"), places.fresh(kind)
    fill(source)
    lines = [msgspec.json.decode(line) for line in transfer.read(source)]
    for line in lines:
        if row := line.get("eventkit_event"):
            assert len(row) == 7
            row[:] = (row * 2)[:columns]
    with pytest.raises(ValueError, match=f"eventkit_event has 7 columns here and {columns} in the file"):
        transfer.write(target, map(msgspec.json.encode, lines))
