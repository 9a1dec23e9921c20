"""fork() with SQLite files open: the child must not use, close or unlock what is the parent's (G12)."""

import asyncio
import gc
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eventkit
from eventkit.conformance.processes import PATIENCE, background, spawn

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork()")


@pytest.fixture(params=["sqlite+apsw", "sqlite+pysqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}:///{tmp_path}/shop.db"


def in_child(work: Callable[[], object], *, exit_normally: bool = False) -> int:
    """Fork, *work* in the child and return its exit status: 0 for success."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            if exit_normally:
                # A child of multiprocessing collects all garbage, too.
                gc.collect()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run code in a process of its own, so that nothing of pytest's is forked."""
    with spawn(function, *arguments) as process:
        pass
    return process.result()


def is_locked(path: str) -> bool:
    """Return whether another process finds the write lock taken; in this one the library would see its own."""
    script = "import sqlite3, sys; sqlite3.connect(sys.argv[1], 0.1).execute('BEGIN IMMEDIATE')"
    probe = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True)
    assert probe.returncode == 0 or "database is locked" in probe.stderr
    return probe.returncode != 0


def is_sound(path: str) -> bool:
    connection = sqlite3.connect(path)
    try:
        return bool(connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)])
    finally:
        connection.close()


def test_every_call_in_the_child_is_refused(url: str) -> None:
    """Every call of an inherited kit says that it was opened before fork(), and where to connect."""
    assert run(call_in_child, url) == 0


def call_in_child(url: str) -> int:
    kit = eventkit.connect(url)
    stream, queue = kit.stream("t"), kit.queue("q")
    queue.enqueue(1)
    [task] = queue.claim("w")
    events, tasks = stream.subscribe("c"), queue.work("w")

    def work() -> None:
        calls: list[Callable[[], object]] = [
            lambda: stream.publish(1),
            lambda: stream.read(),
            lambda: queue.claim("w"),
            lambda: queue.claim("w", wait=5),
            lambda: queue.ack(task),
            lambda: kit.transaction().__enter__(),
            lambda: kit.channel("c").listen(),
        ]
        for call in calls:
            with pytest.raises(eventkit.Closed, match=r"before fork\(\)"):
                call()
        assert list(events) == []
        assert list(tasks) == []
        kit.close()

    return in_child(work)


@pytest.mark.parametrize("flavour", ["sync", "async"])
def test_a_child_that_ends_takes_nothing_with_it(url: str, tmp_path: Path, flavour: str) -> None:
    """Children that close, collect and exit leave the parent's locks, its log and its waiters alone."""
    locked, heard = run(fork_in_a_transaction, url, f"{tmp_path}/shop.db", flavour)
    assert locked is True
    assert heard == "after"
    assert is_sound(f"{tmp_path}/shop.db")
    with eventkit.connect(url) as kit:
        assert [event.payload for event in kit.stream("t").read()] == ["before", "inside", "after"]


def fork_in_a_transaction(url: str, path: str, flavour: str) -> tuple[bool, str]:
    def children(kit: Any) -> None:
        held = [kit]

        def forget() -> None:
            held.clear()
            gc.collect()

        for exit_normally in (True, False):
            assert in_child(forget, exit_normally=exit_normally) == 0
        if flavour == "sync":
            assert in_child(kit.close, exit_normally=True) == 0

    async def asynchronous() -> tuple[bool, str]:
        kit = await eventkit.connect_async(url)
        await kit.stream("t").publish("before")
        waiting = asyncio.create_task(anext(await kit.channel("c").listen()))
        await asyncio.sleep(0.1)
        async with kit.transaction() as tx:
            await kit.stream("t").publish("inside", tx=tx)
            children(kit)
            locked = is_locked(path)
        await kit.stream("t").publish("after")
        await kit.channel("c").notify("after")
        heard = (await asyncio.wait_for(waiting, PATIENCE)).payload
        await kit.close()
        return locked, heard

    if flavour == "async":
        return asyncio.run(asynchronous())
    with eventkit.connect(url) as kit:
        kit.stream("t").publish("before")
        notifications = kit.channel("c").listen()
        waiting = background(lambda: next(notifications).payload)
        time.sleep(0.1)
        with kit.transaction() as tx:
            kit.stream("t").publish("inside", tx=tx)
            children(kit)
            locked = is_locked(path)
        kit.stream("t").publish("after")
        kit.channel("c").notify("after")
        return locked, waiting.result(PATIENCE)


def test_a_file_that_the_parent_had_open_is_refused(url: str, tmp_path: Path) -> None:
    """The child inherits SQLite's outdated view of its locks, so its calls raise, also while the parent writes."""
    assert run(connect_in_children, url) == 0
    assert is_sound(f"{tmp_path}/shop.db")


def connect_in_children(url: str) -> int:
    stop = threading.Event()
    kit = eventkit.connect(url)

    def publish() -> None:
        while not stop.is_set():
            kit.stream("t").publish("parent")
            kit.queue("empty").claim("w", wait=0.001)

    def connect() -> None:
        with pytest.raises(eventkit.Closed, match="connect only after the fork"):
            eventkit.connect(url)
        with pytest.raises(eventkit.Closed, match="connect only after the fork"):
            asyncio.run(connect_async())

    async def connect_async() -> None:
        await eventkit.connect_async(url)

    writers = [background(publish) for _ in range(3)]
    statuses = []
    for _ in range(10):
        time.sleep(0.01)
        statuses.append(in_child(connect))
    stop.set()
    for writer in writers:
        writer.result(PATIENCE)
    kit.stream("t").publish("after")
    kit.close()
    return sum(statuses)


def test_children_may_open_what_the_parent_has_not(url: str) -> None:
    """The child may use another file, and one that was closed before the fork."""
    assert run(connect_to_others, url) == [0, 0]
    with eventkit.connect(url) as kit:
        assert [event.payload for event in kit.stream("t").read()] == ["parent", "child"]


def connect_to_others(url: str) -> list[int]:
    def publish(url: str) -> None:
        with eventkit.connect(url) as kit:
            events = kit.stream("t").subscribe(start="latest")
            kit.stream("t").publish("child")
            assert next(events).payload == "child"

    with eventkit.connect(url) as kit:
        kit.stream("t").publish("parent")
        other = in_child(lambda: publish(url.replace("shop.db", "other.db")))
    return [other, in_child(lambda: publish(url))]
