"""Archives of streams in Parquet files."""

import secrets
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from archive.archives import archived, assert_nothing_else, both, manifest, publish, published

import eventkit
from eventkit import EventkitError, Truncated, archive, arrow
from eventkit.archive import archiver
from eventkit.archive.lease import ArchiveLease
from eventkit.conformance.clauses import proves
from eventkit.operations.admin import ListPipelines
from eventkit.operations.bulk import ArchiveFile, ExtendArchive
from eventkit.operations.position import ReadPosition
from eventkit.testing import advance

DAY = 86_400


@proves("D11")
@both
def test_what_is_archived_is_what_was_published(
    kit: Any, url: str, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty stream, odd payloads and more days than open files are archived across runs, each day in its files."""
    monkeypatch.setattr(archiver, "_OPEN", 2)
    stream = kit.stream("orders")
    stream.configure(keep=timedelta(days=9))
    assert archive.archive(url, "orders", to=location)[2:] == (0, 0, 0, 0, 0)
    stream.publish_many([None, "\0", "🦊", 2**53 + 1, -0.0, {"b": 1, "a": [2]}, "x" * 524_286])
    for _ in range(3):
        publish(kit, 3)
        advance(kit, DAY)
    first = archive.archive(url, "orders")
    assert first == ("orders", str(location), 16, 3, 0, 0, stream.offset("archive"))
    publish(kit, 5)
    assert archive.archive(url, "orders").events == 5
    assert archive.archive(url, "orders").events == 0
    assert archived(kit, location) == published(kit)
    assert archive.check(url, "orders")[2:4] == (4, 21)


@proves("D11")
@both
def test_moments_are_those_of_the_kit(kit: Any, url: str, location: Path) -> None:
    """They have milliseconds, also where plain SQL on Postgres has written finer ones; any topic has its folder."""
    first = kit.stream("a/b").publish_many(list(range(3)))[0]
    table, moment = "eventkit_event", f"1767225600000 + id - {first}"
    if not url.startswith("sqlite"):
        table = f'"{url.partition("schema=")[2]}".{table}'
        moment = f"timestamptz '2026-01-01 00:00:00.0004+00' + (id - {first}) * interval '0.0006 s'"
    with kit.transaction() as tx:
        tx.execute(f"UPDATE {table} SET created_at = {moment}")
    archive.archive(url, "a/b", to=location)
    assert archived(kit, location, "a/b") == published(kit, "a/b")


@proves("D11")
def test_large_events_are_read_few_at_a_time(
    kit: Any, url: str, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table takes some megabytes for events of any size."""
    monkeypatch.setattr(arrow, "_FIRST", 4)
    sizes = []
    events = archiver._events
    monkeypatch.setattr(archiver, "_events", lambda *given: sizes.append(given[0].nbytes) or events(*given))
    for _ in range(5):
        kit.stream("orders").publish_many(["x" * 524_286] * 16)
    assert archive.archive(url, "orders", to=location).events == 80
    assert 8 * 2**20 < max(sizes) < 20 * 2**20
    assert archived(kit, location) == published(kit)


@proves("D11", "D12")
@both
def test_of_two_archivers_the_later_one_goes_on(kit: Any, url: str, location: Path) -> None:
    """Writes of the earlier one are refused, as is any other start than the manifest's end or a file's replacement."""
    publish(kit, 3)
    earlier = ArchiveLease(kit._connection, "orders", location, None)
    later = ArchiveLease(kit._connection, "orders", location, None)
    read = kit._connection.execute(ReadPosition("orders", 0))
    for operation in (lambda: earlier.extend(9, [], read), lambda: earlier.swap([], [])):
        with pytest.raises(EventkitError, match="another process has begun to archive stream 'orders'"):
            operation()
    files = manifest(kit).files
    one = ArchiveFile("a", "2026-01-31", 1, 9, 9, 1, 0, 0)
    assert kit._connection.execute(ExtendArchive("orders", later.epoch, 5, 9, [one], read)) is False
    with pytest.raises(EventkitError, match="1 of the files to be replaced were retired meanwhile: compact again"):
        later.swap([one], [one._replace(path="b")])
    assert (manifest(kit).covered, manifest(kit).files) == (0, files)
    later.extend(1, [], read)


@proves("D11")
@both
def test_archivers_that_race_write_each_event_once(kit: Any, url: str, location: Path) -> None:
    """Others publish meanwhile."""

    def archive_also(_: int) -> None:
        with suppress(EventkitError):
            archive.archive(url, "orders", to=location)

    publish(kit, 5)
    archive.archive(url, "orders", to=location)
    with ThreadPoolExecutor(3) as pool:
        racing = [pool.submit(archive_also, number) for number in range(12)]
        for _ in range(12):
            publish(kit, 7)
        for one in racing:
            one.result()
    archive.archive(url, "orders")
    assert archived(kit, location) == published(kit)
    assert_nothing_else(kit, location)


@proves("D13")
@both
def test_prune_drops_what_is_archived_and_nothing_else(kit: Any, url: str, location: Path) -> None:
    """Newer and unread events stay, and those that are published after the archiver's start."""
    offsets = publish(kit, 10)
    stream = kit.stream("orders")
    stream.save_offset("search", offsets[3])
    assert archive.archive(url, "orders", to=location, prune=True, older_than=DAY).pruned == 0
    assert archive.archive(url, "orders", prune=True).pruned == 4
    assert archive.archive(url, "orders", prune=True, keep_unconsumed=False).pruned == 6
    assert published(kit) == []
    assert [row[0] for row in archived(kit, location)] == offsets
    publish(kit, 2)
    assert stream.prune(keep_count=0) == 0
    come: list[int] = []

    def publish_more(_done: int, _total: int) -> None:
        come.extend(publish(kit, 2))

    came = archive.archive(url, "orders", prune=True, keep_unconsumed=False, progress=publish_more)
    assert (came.events, came.pruned) == (2, 2)
    assert [row[0] for row in published(kit)] == come != []


@proves("D13")
@both
def test_events_pruned_before_they_were_archived_are_an_error(kit: Any, url: str, location: Path) -> None:
    """The error has the range; an option continues without it."""
    publish(kit, 3)
    archive.archive(url, "orders", to=location)
    lost = publish(kit, 3)
    kit.stream("orders").prune(keep_count=1, keep_unconsumed=False)
    with pytest.raises(Truncated) as caught:
        archive.archive(url, "orders")
    assert (caught.value.first, caught.value.last) == (lost[0], lost[1])
    assert_nothing_else(kit, location)
    assert archive.archive(url, "orders", on_truncated="skip").events == 1


@proves("D15")
@pytest.mark.parametrize("damage", ["missing", "truncated", "rotten"])
def test_a_file_that_is_not_whole_is_noticed(kit: Any, url: str, location: Path, damage: str) -> None:
    """The error names the file, before events are pruned, and at each read."""
    publish(kit, 499)
    # In data that does not compress, only a checksum shows the damage.
    kit.stream("orders").publish(secrets.token_urlsafe(300_000))
    archive.archive(url, "orders", to=location)
    [file] = manifest(kit).files
    path = location / file.path
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:-10])
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0x01
        path.write_bytes(content)
    for reading in (lambda: archive.check(url, "orders"), lambda: archive.replay(url, "orders", to_stream="again")):
        with pytest.raises(EventkitError, match=r"topic=orders/date=.*parquet of the archive in"):
            reading()
    if damage != "rotten":
        with pytest.raises(EventkitError, match="put it back from a backup"):
            archive.archive(url, "orders", prune=True)
        assert len(published(kit)) == 500


@proves("D15")
def test_a_copy_of_the_database_does_not_touch_the_archive(url: str, location: Path, tmp_path: Path) -> None:
    """The copy lacks the later writes of its original."""
    copy = tmp_path / "copy.db"
    with eventkit.connect(url) as kit:
        publish(kit, 3)
        archive.archive(url, "orders", to=location)
    copy.write_bytes((tmp_path / "shop.db").read_bytes())
    with eventkit.connect(url) as kit:
        publish(kit, 3)
        archive.archive(url, "orders")
        with pytest.raises(EventkitError, match="goes further than this database.*eventkit adopt --archive orders"):
            archive.archive(f"sqlite:///{copy}", "orders")
        assert archived(kit, location) == published(kit)


@both
def test_an_interrupt_leaves_nothing_behind(kit: Any, url: str, location: Path) -> None:
    """The list of pipelines says so, until the next run is done."""
    publish(kit, 3)

    def interrupt(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    def state() -> Any:
        [pipeline] = kit._connection.execute(ListPipelines())
        return pipeline.name, pipeline.state, pipeline.rows, pipeline.lag, pipeline.error, pipeline.batch

    with pytest.raises(KeyboardInterrupt):
        archive.archive(url, "orders", to=location, progress=interrupt)
    assert_nothing_else(kit, location)
    assert state() == ("archive:orders", "failed", 0, None, "interrupted", None)
    for rows in (3, 6):
        archive.archive(url, "orders")
        assert state() == ("archive:orders", "done", rows, 0, None, kit.stream("orders").head())
        publish(kit, 3)


def test_bad_input_is_an_error_of_one_line(kit: Any, url: str, location: Path, tmp_path: Path) -> None:
    """The line names the remedy."""
    publish(kit, 1)
    file = tmp_path / "file"
    file.touch()
    lake = partial(archive.archive, url, "orders")
    replay = partial(archive.replay, url, "orders")
    refused: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (ValueError, "there is no stream 'ordres': did you mean 'orders'", lambda: archive.archive(url, "ordres")),
        (ValueError, "has no archive yet: pass the folder", lake),
        (EventkitError, "cannot be written: ", lambda: lake(to=file / "lake")),
        # The folder cannot be created; the error is not that of another archiver.
        (EventkitError, "cannot be written: (?!.*archiving the same)", lambda: lake(to="/proc/x")),
        (ValueError, "names no folder that Arrow knows of", lambda: lake(to="ftp://host/lake")),
        (ValueError, "has no archive: eventkit archive makes one", lambda: replay(to_queue="q")),
        (ValueError, "pass a target: to_stream=", replay),
        (EventkitError, "is in .*lake, not in .*elsewhere: pass that one", lambda: lake(to=tmp_path / "elsewhere")),
    ]
    for error, match, call in refused:
        if "elsewhere" in match:
            lake(to=location)
        with pytest.raises(error, match=match) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_it_takes_no_spark() -> None:
    """The import loads no PySpark, so archives need no Java."""
    code = "import sys, eventkit.archive; assert not {name for name in sys.modules if name.startswith('pyspark')}"
    subprocess.run([sys.executable, "-c", code], check=True)
