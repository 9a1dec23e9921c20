"""Kits that are garbage-collected without close() release their file, threads and descriptors (G1)."""

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

import eventkit
from eventkit.conformance import proves
from eventkit.conformance.processes import PATIENCE

OTHER = {"sqlite+apsw": "sqlite+pysqlite", "sqlite+pysqlite": "sqlite+apsw"}


def use(kit: eventkit.EventKit) -> None:
    """Write, handle a task and wait, so that the kit opens all its connections and threads."""
    kit.queue("q").enqueue(1)
    [task] = kit.queue("q").claim("w")
    with kit.queue("q").handling(task), kit.transaction() as tx:
        kit.stream("t").publish(1, tx=tx)
    assert kit.queue("q").claim("w", wait=0.05) == []


async def use_async(kit: eventkit.AsyncEventKit) -> None:
    await kit.queue("q").enqueue(1)
    [task] = await kit.queue("q").claim("w")
    async with kit.queue("q").handling(task), kit.transaction() as tx:
        await kit.stream("t").publish(1, tx=tx)
    assert await kit.queue("q").claim("w", wait=0.05) == []


def abandon(url: str) -> None:
    use(eventkit.connect(url))
    gc.collect()


def abandon_in_a_loop(url: str) -> None:
    async def main() -> None:
        await use_async(await eventkit.connect_async(url))
        gc.collect()

    asyncio.run(main())


def abandon_with_its_loop(url: str) -> None:
    """Abandon a kit whose event loop is closed first."""
    with asyncio.Runner() as runner:
        kits: list[Any] = [runner.run(_connected(url))]
        runner.run(use_async(kits[0]))
    kits.clear()
    gc.collect()


async def _connected(url: str) -> eventkit.AsyncEventKit:
    return await eventkit.connect_async(url)


def abandon_an_app(url: str) -> None:
    app = eventkit.App(url)
    app.task(name="job")(os.getpid)
    use(app.kit)
    del app
    gc.collect()


ABANDON: dict[str, Callable[[str], None]] = {
    "kit": abandon,
    "async kit": abandon_in_a_loop,
    "async kit after its loop": abandon_with_its_loop,
    "app": abandon_an_app,
}


def own_threads() -> set[str]:
    """Return the names of the threads of kits in this process, except the shared one that renews leases."""
    return {thread.name for thread in threading.enumerate()} & {
        "eventkit-watcher",
        "eventkit-sqlite",
        "eventkit-listener",
    }


def descriptors(folder: Path) -> list[str]:
    """Return the open files of this process in *folder*, and its watches there."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return [target for target in found if str(folder) in target or target == "anon_inode:inotify"]


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@proves("G1")
@pytest.mark.parametrize("scheme", OTHER)
@pytest.mark.parametrize("how", ABANDON)
def test_an_abandoned_kit_gives_up_its_file(scheme: str, how: str, tmp_path: Path) -> None:
    """The other library can open the file at once, and the file can be renamed."""
    with pytest.warns(ResourceWarning, match=r"shop\.db was garbage-collected without close"):
        ABANDON[how](f"{scheme}:///{tmp_path}/shop.db")
    with eventkit.connect(f"{OTHER[scheme]}:///{tmp_path}/shop.db") as kit:
        assert [event.payload for event in kit.stream("t").read()] == [1]
    wait_until(lambda: not own_threads() and not descriptors(tmp_path))
    os.rename(tmp_path / "shop.db", tmp_path / "moved.db")
    with eventkit.connect(f"{scheme}:///{tmp_path}/moved.db") as kit:
        use(kit)


@proves("G1")
def test_an_abandoned_kit_closes_its_connections(postgres: str) -> None:
    """On Postgres its threads end, and the server closes its sessions."""
    for how in (abandon, abandon_in_a_loop):
        with pytest.warns(ResourceWarning, match="was garbage-collected without close"):
            how(f"{postgres}?application_name=abandoned")
    wait_until(lambda: not own_threads())
    with psycopg.connect(postgres, autocommit=True) as observer:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'abandoned'"
        wait_until(lambda: observer.execute(query).fetchall() == [(0,)])


def test_a_handle_keeps_its_kit(tmp_path: Path) -> None:
    """A handle or an iterator works on after the last other reference to its kit is gone."""
    streams = [eventkit.connect(f"sqlite:///{tmp_path}/shop.db").stream("t")]
    gc.collect()
    assert streams[0].publish(1) == 1
    with pytest.warns(ResourceWarning):
        streams.clear()


def test_a_closed_kit_warns_of_nothing(tmp_path: Path) -> None:
    kit = eventkit.connect(f"sqlite:///{tmp_path}/shop.db")
    kit.close()
    del kit
    gc.collect()
