"""Calls while another process holds the write lock (G6, Q17, S5)."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import eventkit
from eventkit.conformance import proves
from eventkit.conformance.processes import PATIENCE, Elsewhere, another_process, background  # noqa: F401
from eventkit.conformance.threads import eventually

HELD = 1.2


@pytest.fixture(params=["sqlite+apsw", "sqlite+pysqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    url = f"{request.param}:///{tmp_path}/shop.db"
    with eventkit.connect(url) as kit:
        kit.stream("t").publish_many(list(range(5)))
        kit.queue("q").enqueue_many(list(range(5)))
    return url


@pytest.fixture
def locked(elsewhere: Elsewhere, tmp_path: Path) -> Callable[..., Any]:
    """Make another process hold the write lock: until the block is left, or for so many seconds."""

    @contextmanager
    def locked(seconds: float = HELD) -> Iterator[None]:
        marker = tmp_path / "locked"
        elsewhere.begin(hold_the_lock, f"{tmp_path}/shop.db", marker, seconds)
        deadline = time.monotonic() + PATIENCE
        while not marker.exists():
            assert time.monotonic() < deadline
            time.sleep(0.005)
        yield
        marker.unlink()
        elsewhere.end()

    return locked


def hold_the_lock(path: str, marker: Path, seconds: float) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO eventkit_event (topic, payload) VALUES ('other', '1')")
    marker.touch()
    held_until = time.monotonic() + seconds
    while marker.exists() and time.monotonic() < held_until:
        time.sleep(0.005)
    connection.execute("COMMIT")
    connection.close()


def test_readers_do_not_wait(url: str, locked: Callable[..., Any]) -> None:
    """A reading call answers at once, with the last commit."""
    with eventkit.connect(url) as kit, locked():
        began = time.monotonic()
        assert len(kit.stream("t").read()) == 5
        assert kit.stream("t").head() == 5
        assert kit.queue("q").stats().ready == 5
        assert len(kit.queue("q").peek(9)) == 5
        with kit.stream("t").subscribe() as events:
            assert [next(events).payload for _ in range(5)] == [0, 1, 2, 3, 4]
        assert time.monotonic() - began < HELD / 2


def test_writers_wait_and_succeed(url: str, locked: Callable[..., Any]) -> None:
    """The default timeout of calls and of transactions is five seconds."""
    with eventkit.connect(url) as kit:
        with locked():
            began = time.monotonic()
            writers = [background(lambda: kit.stream("t").publish("waited")) for _ in range(4)]
            with kit.transaction() as tx:
                kit.queue("q").enqueue("waited", tx=tx)
            for future in writers:
                future.result(PATIENCE)
            assert time.monotonic() - began > HELD / 2
        assert len(kit.stream("t").read()) == 9
        assert kit.queue("q").size() == 6


@pytest.mark.parametrize("flavour", ["sync", "async"])
def test_writers_get_busy_after_their_timeout(url: str, locked: Callable[..., Any], flavour: str) -> None:
    """After ``busy_timeout`` it is `Busy`, with the remedy; later the call succeeds."""
    url += "?busy_timeout=0.2"

    def blocking() -> None:
        with eventkit.connect(url) as kit:
            with locked():
                began = time.monotonic()
                with pytest.raises(eventkit.Busy, match="busy_timeout"):
                    kit.stream("t").publish("refused")
                with pytest.raises(eventkit.Busy, match="busy_timeout"), kit.transaction():
                    pass
                assert 0.4 <= time.monotonic() - began < HELD - 0.1
            kit.stream("t").publish("accepted")

    async def awaited() -> None:
        async with eventkit.connect_async(url) as kit:
            with locked():
                began = time.monotonic()
                with pytest.raises(eventkit.Busy, match="busy_timeout"):
                    await kit.stream("t").publish("refused")
                with pytest.raises(eventkit.Busy, match="busy_timeout"):
                    async with kit.transaction():
                        pass
                assert 0.4 <= time.monotonic() - began < HELD - 0.1
            await kit.stream("t").publish("accepted")

    blocking() if flavour == "sync" else asyncio.run(awaited())
    with eventkit.connect(url) as kit:
        assert [event.payload for event in kit.stream("t").read(5)][-1:] == ["accepted"]


def test_the_event_loop_goes_on(url: str, locked: Callable[..., Any]) -> None:
    """Calls that wait for the lock block neither the loop nor readers."""

    async def main() -> None:
        async with eventkit.connect_async(url) as kit:
            with locked():
                writing = [asyncio.create_task(kit.stream("t").publish(number)) for number in range(10)]
                began = last = time.monotonic()
                longest = 0.0
                while time.monotonic() < began + HELD / 2:
                    await kit.stream("t").head()
                    await asyncio.sleep(0.005)
                    longest = max(longest, time.monotonic() - last)
                    last = time.monotonic()
                assert longest < HELD / 4
                assert not any(task.done() for task in writing)
                await asyncio.gather(*writing)

    asyncio.run(main())


@pytest.mark.parametrize("flavour", ["sync", "async"])
def test_iterators_survive(url: str, locked: Callable[..., Any], flavour: str) -> None:
    """Workers and subscribers continue after their claims, acks and saves found the file locked for too long."""
    url += "?busy_timeout=0.1"

    def blocking() -> None:
        with eventkit.connect(url) as kit:
            tasks, events = kit.queue("q").work("w"), kit.stream("t").subscribe("c", save_every_n=1)

            def work() -> None:
                for number in range(5):
                    with kit.queue("q").handling(next(tasks)) as task:
                        assert task.payload == number
                        time.sleep(0.1)

            working = background(work)
            time.sleep(0.05)
            with locked(1.0):
                assert [next(events).payload for _ in range(5)] == [0, 1, 2, 3, 4]
            events.close()
            working.result(PATIENCE)
            tasks.close()

    async def awaited() -> None:
        async with eventkit.connect_async(url) as kit:
            tasks, events = kit.queue("q").work("w"), kit.stream("t").subscribe("c", save_every_n=1)

            async def work() -> None:
                for number in range(5):
                    async with kit.queue("q").handling(await anext(tasks)) as task:
                        assert task.payload == number
                        await asyncio.sleep(0.1)

            working = asyncio.create_task(work())
            await asyncio.sleep(0.05)
            with locked(1.0):
                assert [(await anext(events)).payload for _ in range(5)] == [0, 1, 2, 3, 4]
                await asyncio.sleep(0)
            await events.aclose()
            await working
            await tasks.aclose()

    blocking() if flavour == "sync" else asyncio.run(awaited())
    with eventkit.connect(url) as kit:
        assert (kit.queue("q").tasks(), kit.stream("t").offset("c")) == ([], 4)


@pytest.mark.parametrize(
    ("url", "flavour"),
    [
        ("sqlite+apsw", "sync"),
        pytest.param("sqlite+apsw", "async", marks=pytest.mark.slow),
        pytest.param("sqlite+pysqlite", "sync", marks=pytest.mark.slow),
        pytest.param("sqlite+pysqlite", "async", marks=pytest.mark.slow),
    ],
    indirect=True,
)
def test_housekeepers_and_schedulers_survive(url: str, locked: Callable[..., Any], connect: Callable[..., Any]) -> None:
    """They continue after they found the file locked for too long."""
    kit = connect(url + "?busy_timeout=0.1")
    jobs, ticks = kit.queue("jobs"), kit.queue("ticks")
    jobs.configure(keep_done=0.001)
    kit.schedules.add("tick", "@every 1s", "ticks")
    running = [background(lambda: kit.run_maintenance(every=0.05)), background(kit.run_scheduler)]
    for _ in range(2):
        fired = ticks.size()
        jobs.enqueue("done")
        jobs.ack_many(jobs.claim("w"))
        eventually(lambda: jobs.stats().done == 0)
        eventually(lambda fired=fired: ticks.size() > fired)
        with locked(2.5):
            pass
        assert not any(one.done() for one in running)
    kit.close()
    assert [one.result(PATIENCE) for one in running] == [None, None]


def test_closing_does_not_wait_for_the_lock(url: str, locked: Callable[..., Any]) -> None:
    """A call that waits for the lock while its kit is closed ends with `Closed`, long before its timeout."""
    kit = eventkit.connect(url + "?busy_timeout=60")
    with locked():
        began = time.monotonic()
        waiting = background(lambda: kit.stream("t").publish("too late"))
        time.sleep(0.1)
        kit.close()
        with pytest.raises(eventkit.Closed):
            waiting.result(PATIENCE)
        assert time.monotonic() - began < HELD - 0.1


@proves("G4")
@pytest.mark.parametrize(
    "kind", ["Session", "scoped_session", "Connection", "immediate", "driver", "AsyncSession", "async driver"]
)
@pytest.mark.parametrize("url", ["sqlite+apsw", "sqlite+pysqlite"], indirect=True)
def test_a_callers_transaction_that_finds_the_file_busy(url: str, locked: Callable[..., Any], kind: str) -> None:
    """The kit's call raises `Busy`, SQLAlchemy its OperationalError, and after a rollback both succeed."""
    path = url.partition(":///")[2]
    apsw_url = url.startswith("sqlite+apsw")
    insert = sa.text("INSERT INTO eventkit_event (topic, payload) VALUES ('t', '5')")

    def blocking() -> None:
        engine = sa.create_engine(
            f"{url}?timeout=0.1" + ("&begin=immediate" if kind == "immediate" and apsw_url else "")
        )
        tx: Any = engine.connect()
        if kind == "driver":
            tx = apsw.Connection(path) if apsw_url else sqlite3.connect(path, timeout=0.1)
        elif kind != "Connection":
            tx = scoped_session(sessionmaker(engine)) if kind == "scoped_session" else Session(engine)
        with eventkit.connect(url) as kit:
            with locked():
                for call in (
                    lambda: kit.stream("t").publish(5, tx=tx),
                    lambda: kit.queue("q").enqueue_many([5], tx=tx),
                ):
                    if kind == "driver" and apsw_url:
                        tx.execute("BEGIN")
                    with pytest.raises(eventkit.Busy, match="roll back and try again"):
                        call()
                    tx.execute("ROLLBACK") if kind == "driver" else tx.rollback()
                if kind != "driver":
                    with pytest.raises(OperationalError, match="locked"):
                        tx.execute(insert)
                    tx.rollback()
            if kind == "driver" and apsw_url:
                tx.execute("BEGIN")
            kit.stream("t").publish(5, tx=tx)
            tx.execute("COMMIT") if kind == "driver" else tx.commit()
            tx.close()
        engine.dispose()

    async def awaited() -> None:
        engine = create_async_engine(
            f"{url.replace('apsw', 'apsw_async').replace('pysqlite', 'aiosqlite')}?timeout=0.1"
        )
        tx: Any = await apsw.Connection.as_async(path) if kind == "async driver" else AsyncSession(engine)
        async with eventkit.connect_async(url) as kit:
            with locked():
                if kind == "async driver":
                    await tx.execute("BEGIN")
                with pytest.raises(eventkit.Busy, match="roll back and try again"):
                    await kit.stream("t").publish(5, tx=tx)
                if kind == "async driver":
                    await tx.execute("ROLLBACK")
                else:
                    await tx.rollback()
                    with pytest.raises(OperationalError, match="locked"):
                        await tx.execute(insert)
                    await tx.rollback()
            if kind == "async driver":
                await tx.execute("BEGIN")
            await kit.stream("t").publish(5, tx=tx)
            await (tx.execute("COMMIT") if kind == "async driver" else tx.commit())
            await (tx.aclose() if kind == "async driver" else tx.close())
        await engine.dispose()

    if kind == "async driver" and not apsw_url:
        pytest.skip("an asyncio application on the standard library has aiosqlite, which is no kind of tx=")
    asyncio.run(awaited()) if kind in ("AsyncSession", "async driver") else blocking()
    with eventkit.connect(url) as kit:
        assert [event.payload for event in kit.stream("t").read(5)] == [5]
