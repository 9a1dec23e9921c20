"""How commits and replaced files are noticed (W1, W2, W3, W5)."""

import asyncio
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import eventkit_sqlite.connection
import eventkit_sqlite.watcher
import pytest
import sqlalchemy as sa
from slow_disk import SlowDisk
from sqlalchemy.orm import Session

import eventkit
from eventkit.conformance import proves
from eventkit.conformance.processes import PATIENCE, Elsewhere, another_process, background, spawn  # noqa: F401

NEVER = "fallback_poll=3600"
SOON = 5.0
"""The contract allows a second; a busy machine gets more."""


@pytest.fixture(params=["sqlite+apsw", "sqlite+pysqlite"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["inotify", "poll"])
def url(request: pytest.FixtureRequest, scheme: str, tmp_path: Path) -> str:
    """Return a file that is watched in either way, without a fallback poll."""
    return f"{scheme}:///{tmp_path}/shop.db?watch={request.param}&{NEVER}"


BOTH = pytest.mark.parametrize(
    ("scheme", "url"), [("sqlite+apsw", "inotify"), ("sqlite+pysqlite", "poll")], indirect=True
)
"""Each library and each way of watching once: the library determines what happened to a file, and the watcher, which
is independent of it, only when to look."""


@pytest.fixture
def kit(url: str) -> Iterator[eventkit.EventKit]:
    with eventkit.connect(url) as kit:
        yield kit


def watchers() -> set[threading.Thread]:
    """Return the watcher threads of this process."""
    return {thread for thread in threading.enumerate() if thread.name == "eventkit-watcher"}


# Writers of the file


def insert_event(path: str, payload: str) -> None:
    """Insert an event as a shell or another language would."""
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO eventkit_event (topic, payload) VALUES ('t', ?)", (payload,))
    connection.execute("INSERT INTO eventkit_task (queue, payload) VALUES ('q', ?)", (payload,))
    connection.execute("INSERT INTO eventkit_notification (channel, payload) VALUES ('c', ?)", (payload,))
    connection.commit()
    connection.close()


@proves("W7")
@BOTH
def test_without_a_commit_there_is_no_change(kit: eventkit.EventKit, tmp_path: Path, elsewhere: Elsewhere) -> None:
    """Reads and transactions that are rolled back are none, and commits at once are one."""
    changes, others = kit.changes(), kit.changes()
    elsewhere(insert_event, f"{tmp_path}/shop.db", "1")
    for iterator in (changes, others):
        iterator.next(PATIENCE)
        kit.stream("t").read()
        with pytest.raises(ZeroDivisionError), kit.transaction() as tx:
            kit.stream("t").publish(2, tx=tx)
            raise ZeroDivisionError
        with pytest.raises(eventkit.TimedOut):
            iterator.next(0.3)


@proves("W1")
def test_a_plain_insert_by_another_process_wakes(kit: eventkit.EventKit, tmp_path: Path, elsewhere: Elsewhere) -> None:
    """A writer of the file in any language wakes subscribers, workers and listeners."""
    iterators: list[Any] = [kit.stream("t").subscribe(), kit.queue("q").work("w"), kit.channel("c").listen()]
    for number in range(20):
        waiting = [background(lambda iterator: next(iterator).payload, iterator) for iterator in iterators]
        time.sleep(number * 0.003)
        elsewhere(insert_event, f"{tmp_path}/shop.db", str(number))
        assert [future.result(PATIENCE) for future in waiting] == [number] * 3


def empty_the_log(path: str) -> None:
    """Write the log back, truncate it, and rebuild the file, as maintenance does."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


@proves("W4")
def test_waiting_outlives_the_log(kit: eventkit.EventKit, tmp_path: Path, elsewhere: Elsewhere) -> None:
    """The log may be emptied and begun anew while waiters sleep: they go on, and miss nothing."""
    events = kit.stream("t").subscribe()
    for number in range(5):
        waiting = background(lambda: next(events).payload)
        elsewhere(empty_the_log, f"{tmp_path}/shop.db")
        elsewhere(insert_event, f"{tmp_path}/shop.db", str(number))
        assert waiting.result(PATIENCE) == number


def test_a_session_in_this_process_wakes(kit: eventkit.EventKit, scheme: str, tmp_path: Path) -> None:
    """A commit outside of eventkit is noticed as well."""
    engine = sa.create_engine(f"{scheme}:///{tmp_path}/shop.db")
    events = kit.stream("t").subscribe()
    for number in range(20):
        waiting = background(lambda: next(events).payload)
        time.sleep(number * 0.003)
        with Session(engine) as session, session.begin():
            session.execute(
                sa.text("INSERT INTO eventkit_event (topic, payload) VALUES ('t', :payload)"), {"payload": str(number)}
            )
        assert waiting.result(PATIENCE) == number
    engine.dispose()


@proves("W2")
def test_a_slow_fsync_delays_the_wake_and_loses_none(kit: eventkit.EventKit, url: str) -> None:
    """The log is written long before its commit is visible; the watcher keeps looking in between."""
    events = kit.stream("t").subscribe()
    waiting = background(lambda: [next(events).payload for _ in range(4)])
    with spawn(publish_slowly, url.replace("pysqlite", "apsw"), 4) as publisher:
        assert waiting.result(PATIENCE) == [0, 1, 2, 3]
    assert publisher.result() >= 4


def publish_slowly(url: str, count: int) -> int:
    disk = SlowDisk(0.3)
    with eventkit.connect(url + "&durability=full") as kit:
        for number in range(count):
            kit.stream("t").publish(number)
        return disk.syncs


# Cost


def test_kits_of_one_file_share_one_watcher(scheme: str, tmp_path: Path) -> None:
    """A hundred waiters of three kits, one of them async, are one thread; with the last kit it ends."""
    before = watchers()

    async def main() -> None:
        kits = [eventkit.connect(f"{scheme}:///{tmp_path}/shop.db") for _ in range(2)]
        async with eventkit.connect_async(f"{scheme}:///{tmp_path}/shop.db") as kit:
            assert watchers() <= before
            tasks = [asyncio.create_task(kit.queue("q").claim("w", wait=PATIENCE)) for _ in range(50)]
            threads = [background(list, one.channel("c").listen()) for one in kits for _ in range(25)]
            await asyncio.sleep(0.2)
            assert len(watchers() - before) == 1
            await kit.queue("q").enqueue_many(range(50))
            await asyncio.gather(*tasks)
            for one in kits:
                one.close()
            assert [future.result(PATIENCE) for future in threads] == [[]] * 50
            assert len(watchers() - before) == 1

    asyncio.run(main())
    deadline = time.monotonic() + PATIENCE
    while watchers() - before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_two_files_have_a_watcher_each(scheme: str, tmp_path: Path) -> None:
    before = watchers()
    with eventkit.connect(f"{scheme}:///{tmp_path}/a.db") as a, eventkit.connect(f"{scheme}:///{tmp_path}/b.db") as b:
        waiting = [background(list, kit.stream("t").subscribe()) for kit in (a, b)]
        time.sleep(0.2)
        assert len(watchers() - before) == 2
    for future in waiting:
        future.result(PATIENCE)


def test_unrelated_commits_wake_no_waiter(
    kit: eventkit.EventKit, url: str, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred commits to other topics and queues make no waiter look once."""
    looks: list[object] = []
    read = eventkit_sqlite.connection.read

    def counted(connection: Any, operation: Any) -> Any:
        looks.append(operation)
        return read(connection, operation)

    monkeypatch.setattr(eventkit_sqlite.connection, "read", counted)
    iterators: list[Any] = [kit.stream("t").subscribe(), kit.queue("q").work("w"), kit.channel("c").listen()]
    waiting = [background(next, iterator) for iterator in iterators]
    time.sleep(0.3)
    assert looks
    looks.clear()
    elsewhere(publish_elsewhere, url, 100)
    time.sleep(0.3)
    assert looks == []
    assert not any(future.done() for future in waiting)


def publish_elsewhere(url: str, count: int) -> None:
    with eventkit.connect(url) as kit:
        for number in range(count):
            kit.stream("other").publish(number)
            kit.queue("other").enqueue(number)
            kit.channel("other").notify(number)


# Replaced files


def rename_over(path: str) -> None:
    with eventkit.connect(f"sqlite:///{path}.new"):
        pass
    os.rename(path + ".new", path)


def copy_over(path: str) -> None:
    """Empty the existing file and write another database into it, as `cp` does."""
    with eventkit.connect(f"sqlite:///{path}.new"):
        pass
    shutil.copyfile(path + ".new", path)


VANISH: dict[str, Callable[[str], None]] = {
    "rename over": rename_over,
    "rename away": lambda path: os.rename(path, path + ".old"),
    "unlink": os.unlink,
    "unlink the log": lambda path: os.unlink(path + "-wal"),
    "rename over the log": lambda path: (
        shutil.copyfile(path + "-wal", path + ".new") and os.rename(path + ".new", path + "-wal")
    ),
    "empty": lambda path: os.truncate(path, 0),
    "cut off": lambda path: os.truncate(path, os.path.getsize(path) // 2),
    "copy over": copy_over,
    "write over": lambda path: Path(path).write_text("a text " * 10_000),
}


def vanish(how: str, path: str) -> None:
    """Replace the file from another process, because closing it in this one would drop SQLite's locks."""
    VANISH[how](path)


def wait_in_every_way(kit: eventkit.EventKit) -> "list[Future[Any]]":
    kit.queue("full").configure(max_size=1)
    kit.queue("full").enqueue(1)
    iterators: list[Any] = [
        kit.stream("t").subscribe("consumer"),
        kit.queue("q").work("w"),
        kit.channel("c").listen(),
        kit.listen("a", "b"),
    ]
    return [
        *(background(next, iterator) for iterator in iterators),
        background(lambda: kit.queue("q").claim("w", wait=PATIENCE)),
        background(lambda: kit.queue("full").enqueue(2, wait=PATIENCE)),
    ]


@proves("W5")
@BOTH
@pytest.mark.parametrize("how", VANISH)
def test_a_replaced_file_raises_in_every_waiter(
    kit: eventkit.EventKit, tmp_path: Path, how: str, elsewhere: Elsewhere
) -> None:
    """Within a second all waiters, and later waiters and writers, get `DatabaseReplaced`."""
    waiting = wait_in_every_way(kit)
    time.sleep(0.3)
    assert not any(future.done() for future in waiting)
    elsewhere(vanish, how, f"{tmp_path}/shop.db")
    began = time.monotonic()
    errors = [future.exception(SOON) for future in waiting]
    assert time.monotonic() - began < SOON
    calls: list[Callable[[], object]] = [
        lambda: kit.stream("t").publish(1),
        lambda: kit.queue("q").enqueue_many([1, 2]),
        lambda: kit.transaction().__enter__(),
        lambda: kit.queue("q").claim("w", wait=PATIENCE),
        lambda: next(iter(kit.channel("c").listen())),
    ]
    for call in calls:
        with pytest.raises(eventkit.DatabaseReplaced, match="connect again") as raised:
            call()
        errors.append(raised.value)
    assert {type(error) for error in errors} == {eventkit.DatabaseReplaced}
    # An error that two threads raise has the traceback of both.
    assert len({id(error) for error in errors}) == len(errors)


@proves("W5")
@BOTH
@pytest.mark.parametrize("how", ["rename over", "unlink the log", "copy over"])
def test_a_replaced_file_raises_in_async_waiters(url: str, tmp_path: Path, how: str, elsewhere: Elsewhere) -> None:
    async def main() -> None:
        async with eventkit.connect_async(url) as kit:
            iterators: list[Any] = [kit.stream("t").subscribe(), kit.queue("q").work(), kit.channel("c").listen()]
            waiting = [asyncio.create_task(anext(aiter(iterator))) for iterator in iterators]
            waiting.append(asyncio.create_task(kit.queue("q").claim("w", wait=PATIENCE)))
            await asyncio.sleep(0.3)
            await asyncio.to_thread(elsewhere, vanish, how, f"{tmp_path}/shop.db")
            async with asyncio.timeout(SOON):
                errors = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(error) for error in errors] == [eventkit.DatabaseReplaced] * 4
            publishing = [kit.stream("t").publish(1) for _ in range(4)]
            errors += await asyncio.gather(*publishing, return_exceptions=True)
            assert {type(error) for error in errors} == {eventkit.DatabaseReplaced}
            assert len({id(error) for error in errors}) == 8

    asyncio.run(main())


@proves("W5")
@BOTH
@pytest.mark.parametrize("how", VANISH)
def test_a_replaced_file_is_noticed_without_waiters(
    kit: eventkit.EventKit, tmp_path: Path, how: str, elsewhere: Elsewhere
) -> None:
    """Writes that find another file at the path are refused, rather than committed to an unlinked file."""
    kit.stream("t").publish(1)
    time.sleep(0.2)
    elsewhere(vanish, how, f"{tmp_path}/shop.db")
    deadline = time.monotonic() + SOON
    with pytest.raises(eventkit.DatabaseReplaced):
        while time.monotonic() < deadline:
            time.sleep(0.05)
            kit.stream("t").publish(2)


@proves("W5")
@BOTH
def test_a_restored_backup_is_noticed(kit: eventkit.EventKit, tmp_path: Path, elsewhere: Elsewhere) -> None:
    """A backup that was copied over the database has its identity, and lacks its later events."""
    path, backup = f"{tmp_path}/shop.db", f"{tmp_path}/backup.db"
    for action in [lambda: elsewhere(shutil.copyfile, path, backup), lambda: elsewhere(shutil.copyfile, backup, path)]:
        for _ in range(2):
            kit.stream("t").publish_many(range(10))
            elsewhere(empty_the_log, path)
            time.sleep(0.6)
        action()
    deadline = time.monotonic() + SOON
    with pytest.raises(eventkit.DatabaseReplaced, match="overwritten"):
        while time.monotonic() < deadline:
            time.sleep(0.05)
            kit.stream("t").publish(2)


@proves("W5")
def test_upkeep_is_no_replacement(kit: eventkit.EventKit, tmp_path: Path, elsewhere: Elsewhere) -> None:
    """Checkpoints and VACUUM, which change and shrink the file, disturb neither waiters nor writers."""
    waiting = background(lambda: kit.queue("q").claim("w", wait=PATIENCE))
    for _ in range(10):
        kit.stream("t").publish_many(["x" * 1000] * 300)
        kit.stream("t").prune(keep_count=0, keep_unconsumed=False)
        elsewhere(empty_the_log, f"{tmp_path}/shop.db")
        time.sleep(0.1)
    kit.queue("q").enqueue("at last")
    assert [task.payload for task in waiting.result(PATIENCE)] == ["at last"]


# Passing errors of the watcher


def test_a_passing_error_of_the_watcher_is_gone_with_its_waiters(kit: eventkit.EventKit, tmp_path: Path) -> None:
    """Waiters get `Unavailable` while the folder cannot be reached; later waiters wake as usual."""
    path, aside = str(tmp_path), f"{tmp_path}.aside"
    waiting = wait_in_every_way(kit)
    time.sleep(0.3)
    os.rename(path, aside)
    os.symlink(path, path)  # A symbolic link loop, which even root cannot follow.
    try:
        for future in waiting:
            with pytest.raises(eventkit.Unavailable, match="cannot be reached .*: check"):
                future.result(SOON)
        for call in [lambda: kit.queue("q").claim("w", wait=PATIENCE), lambda: kit.stream("t").publish(1)]:
            with pytest.raises(eventkit.Unavailable, match="cannot be reached"):
                call()
    finally:
        os.unlink(path)
        os.rename(aside, path)
    again = background(lambda: kit.queue("q").claim("w", wait=PATIENCE))
    time.sleep(0.3)
    kit.queue("q").enqueue("later")
    assert [task.payload for task in again.result(PATIENCE)] == ["later"]


@proves("W4")
def test_any_error_of_the_watcher_is_translated(kit: eventkit.EventKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """On any error of the thread, waiters get `Unavailable`, and the next one has a new thread."""
    events = kit.channel("c").listen()
    waiting = background(next, events)
    time.sleep(0.2)
    with monkeypatch.context() as patched:
        patched.setattr(eventkit_sqlite.watcher, "_data_version", lambda connection: 1 // 0)
        kit.channel("c").notify(1)
        with pytest.raises(eventkit.Unavailable, match="ZeroDivisionError"):
            waiting.result(SOON)
    waiting = background(next, kit.channel("c").listen())
    time.sleep(0.2)
    kit.channel("c").notify(2)
    assert waiting.result(PATIENCE).payload == 2


def test_connecting_again_finds_the_new_file(url: str, tmp_path: Path) -> None:
    """Once the old kit is closed and its log removed, a new one uses the file at the path."""
    old = eventkit.connect(url)
    old.stream("t").publish("old")
    waiting = background(next, iter(old.channel("c").listen()))
    time.sleep(0.1)
    rename_over(f"{tmp_path}/shop.db")
    with pytest.raises(eventkit.DatabaseReplaced):
        waiting.result(SOON)
    old.close()
    # SQLite has left the log behind, and would use it for the new file.
    for leftover in ("shop.db-wal", "shop.db-shm"):
        (tmp_path / leftover).unlink(missing_ok=True)
    with eventkit.connect(url) as new:
        assert new.stream("t").read() == []
        events = new.stream("t").subscribe()
        again = background(lambda: next(events).payload)
        new.stream("t").publish("new")
        assert again.result(PATIENCE) == "new"
