"""A full disk: a clear error, no partial write, and work continues when there is space again."""

import asyncio
import os
import resource
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import apsw
import pytest

import eventkit

PAYLOAD = "x" * 2000


def fill(kit: eventkit.EventKit) -> tuple[int, str]:
    """Write pairs of an event and a task until that fails; return the number of pairs, and the error."""
    for count in range(100_000):
        try:
            with kit.transaction() as tx:
                kit.stream("events").publish(PAYLOAD, tx=tx)
                kit.queue("tasks").enqueue(PAYLOAD, tx=tx)
        except (eventkit.Unavailable, apsw.Error) as error:
            return count, f"{type(error).__name__}: {error}"
    raise AssertionError("the disk never filled")


def fill_alone(kit: eventkit.EventKit) -> list[str]:
    """Write in the library's own transactions, of one statement and of several, until each fails; return the errors."""
    calls: list[Callable[[], object]] = [
        lambda: kit.stream("alone").publish(PAYLOAD),
        lambda: kit.queue("alone").enqueue_many([PAYLOAD, PAYLOAD]),
        lambda: kit.stream("alone").publish(PAYLOAD, dedup=str(time.monotonic_ns())),
    ]
    messages = []
    for call in calls:
        with pytest.raises(eventkit.Unavailable) as caught:
            for _ in range(100_000):
                call()
        messages.append(str(caught.value))
    assert kit.queue("alone").size() % 2 == 0
    return messages


def limited(path: str, answers: Any) -> None:
    """Fill a file limited to a megabyte in every way, lift the limit, and go on."""
    kit = eventkit.connect(f"sqlite:///{path}")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    messages = fill_alone(kit)
    pairs, _ = fill(kit)

    refused: list[str] = []
    together = threading.Barrier(8)

    def publish() -> None:
        together.wait()
        # Together they exceed SQLite's cache, so some fail before the commit, and some at it.
        for size in (10, 250):
            try:
                kit.stream("threads").publish(PAYLOAD * size)
            except eventkit.Unavailable as error:
                refused.append(str(error))

    threads = [threading.Thread(target=publish) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def tasks() -> list[Any]:
        async with eventkit.connect_async(f"sqlite:///{path}") as other:
            calls = [other.stream("async").publish(PAYLOAD * size) for size in (10, 250) for _ in range(8)]
            return await asyncio.gather(*calls, return_exceptions=True)

    refused += [str(error) for error in asyncio.run(tasks()) if isinstance(error, eventkit.Unavailable)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    kit.stream("alone").publish("there is space again")
    assert [event.payload for event in kit.stream("threads").read()] == []
    assert [event.payload for event in kit.stream("async").read()] == []
    kit.close()
    answers.send((pairs, messages + refused))


def check(path: Path, pairs: int) -> None:
    """Check that the file is sound and holds complete pairs only."""
    with eventkit.connect(f"sqlite:///{path}") as kit:
        assert len(kit.stream("events").read(limit=100_000)) == kit.queue("tasks").size() == pairs
        assert kit.queue("tasks").enqueue("still working").created
    connection = apsw.Connection(str(path))
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """Where the system limits the size of files, every way to write raises and leaves no partial row."""
    path = tmp_path / "limited.db"
    context = get_context("spawn")
    answer, answers = context.Pipe(duplex=False)
    child = context.Process(target=limited, args=(str(path), answers))
    child.start()
    answers.close()
    pairs, messages = answer.recv()
    child.join()
    assert child.exitcode == 0
    assert len(messages) == 3 + 16 + 16
    for message in messages:
        assert str(path) in message
        assert "check the disk, its free space and its limits" in message
    check(path, pairs)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a file system of two megabytes."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


@pytest.mark.parametrize("fill_up", [fill, fill_alone])
def test_a_full_disk(small_disk: Path, fill_up: Callable[[eventkit.EventKit], object]) -> None:
    """The error names the full disk and the remedy; once a file is removed, the same kit works on."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 500_000)
    path = small_disk / "full.db"
    with eventkit.connect(f"sqlite:///{path}") as kit:
        fill_up(kit)
        for message in fill_alone(kit):
            assert f"the disk of {path} is full: free some space" in message
        pairs = kit.queue("tasks").size()
        ballast.unlink()
        kit.stream("alone").publish("there is space again")
    check(path, pairs)


@pytest.mark.parametrize("scheme", ["sqlite+apsw", "sqlite+pysqlite"])
def test_the_last_id_is_no_full_disk(scheme: str, tmp_path: Path) -> None:
    """SQLite reports a full disk when a table has a row with the highest id; the kit names the table and the remedy."""
    with eventkit.connect(f"{scheme}:///{tmp_path}/shop.db") as kit:
        stream = kit.stream("t")
        with kit.transaction() as tx:
            tx.execute("INSERT INTO eventkit_event (id, topic, payload) VALUES (9223372036854775807, 't', '1')")
        for publish in [lambda: stream.publish(2), lambda: stream.publish_many([2, 3])]:
            with pytest.raises(eventkit.Unavailable, match="eventkit_event .* 9223372036854775807") as raised:
                publish()
        remedy = str(raised.value).partition("and then ")[2]
        with kit.transaction() as tx:
            tx.execute("DELETE FROM eventkit_event WHERE id = 9223372036854775807")
            tx.execute(remedy)
        assert stream.publish(2) == 1
