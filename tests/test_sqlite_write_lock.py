"""Connections that write to one SQLite file take turns (G14)."""

import asyncio
import errno
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import eventkit_sqlite.writer
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import create_async_engine

import eventkit
from eventkit.conformance import proves
from eventkit.conformance.processes import PATIENCE, background, spawn

KINDS = ("sqlite+apsw", "sqlite+pysqlite", "async kit", "deferred", "immediate", "async engine")
INSERT = "INSERT INTO eventkit_event (topic, payload) VALUES ('t', '1')"


@pytest.fixture
def path(tmp_path: Path) -> str:
    with eventkit.connect(f"sqlite:///{tmp_path}/shop.db"):
        pass
    return f"{tmp_path}/shop.db"


@asynccontextmanager
async def writer(kind: str, path: str) -> AsyncIterator[Callable[[], AbstractAsyncContextManager[None]]]:
    """Connect; yield a function that begins a transaction, writes to it, and commits at the end."""

    @asynccontextmanager
    async def transaction() -> AsyncIterator[None]:
        if kind == "async kit":
            async with kit.transaction() as tx:
                await tx.execute(INSERT)
                yield
        elif kind.startswith("sqlite"):
            with kit.transaction() as tx:
                tx.execute(INSERT)
                yield
        elif kind == "async engine":
            async with engine.begin() as connection:
                await connection.exec_driver_sql(INSERT)
                yield
        else:
            with engine.begin() as connection:
                connection.exec_driver_sql(INSERT)
                yield

    kit: Any = None
    engine: Any = None
    if kind == "async kit":
        async with eventkit.connect_async(f"sqlite:///{path}") as kit:
            yield transaction
    elif kind.startswith("sqlite"):
        with eventkit.connect(f"{kind}:///{path}") as kit:
            yield transaction
    elif kind == "async engine":
        engine = create_async_engine(f"sqlite+apsw_async:///{path}")
        yield transaction
        await engine.dispose()
    else:
        engine = sa.create_engine(f"sqlite+apsw:///{path}?begin={kind}")
        yield transaction
        engine.dispose()


class Share(NamedTuple):
    """The work of one of several writers."""

    transactions: int
    longest_wait: float
    held: float


def write_back_to_back(kind: str, path: str, name: str, writers: int, seconds: float) -> Share:
    """Hold the lock for 2 to 20 ms again and again, once all writers are ready."""

    async def main() -> Share:
        async with writer(kind, path) as transaction:
            ready = Path(path).with_name("ready")
            ready.mkdir(exist_ok=True)
            (ready / name).touch()
            while len(os.listdir(ready)) < writers:
                await asyncio.sleep(0.005)
            count, longest, held = 0, 0.0, 0.0
            end = monotonic() + seconds
            while (asked := monotonic()) < end:
                async with transaction():
                    begun = monotonic()
                    time.sleep(random.uniform(0.002, 0.02))
                held += monotonic() - begun
                longest = max(longest, begun - asked)
                count += 1
            return Share(count, longest, held)

    return asyncio.run(main())


def check(shares: list[Share], path: str) -> None:
    counts = [share.transactions for share in shares]
    mean = sum(share.held for share in shares) / sum(counts)
    assert max(counts) <= 3 * min(counts), shares
    assert max(share.longest_wait for share in shares) <= 10 * len(shares) * mean, shares
    with eventkit.connect(f"sqlite:///{path}") as kit:
        assert kit.stream("t").head() == sum(counts)


@proves("G14")
@pytest.mark.parametrize(
    ("times", "seconds"), [(1, 2.5), pytest.param(3, 10.0, marks=pytest.mark.slow)], ids=["6 writers", "18 writers"]
)
def test_processes_have_equal_shares(path: str, times: int, seconds: float) -> None:
    """Kits and engines of either library and flavour, in a process each, take turns and are never refused."""
    kinds = KINDS * times
    processes = [
        spawn(write_back_to_back, kind, path, str(number), len(kinds), seconds) for number, kind in enumerate(kinds)
    ]
    check([process.result() for process in processes], path)


@proves("G14")
def test_threads_have_equal_shares(path: str) -> None:
    """They have equal shares within one process."""
    kinds = [kind for kind in KINDS if kind != "sqlite+pysqlite"]
    threads = [
        background(write_back_to_back, kind, path, str(number), len(kinds), 2.0) for number, kind in enumerate(kinds)
    ]
    check([thread.result(PATIENCE) for thread in threads], path)


def hold(kind: str, path: str, marker: str, seconds: float) -> None:
    """Stay in a transaction that has written."""

    async def main() -> None:
        async with writer(kind, path) as transaction, transaction():
            Path(marker).touch()
            time.sleep(seconds)

    asyncio.run(main())


@contextmanager
def held(kind: str, path: str, seconds: float = PATIENCE) -> Any:
    """Run another process that is in a transaction."""
    marker = Path(f"{path}-{kind}-holds")
    with spawn(hold, kind, path, str(marker), seconds) as process:
        await_file(marker)
        yield process


def await_file(marker: Path) -> None:
    deadline = monotonic() + PATIENCE
    while not marker.exists():
        assert monotonic() < deadline
        time.sleep(0.005)


@proves("G14")
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_process_lets_the_next_one_write(path: str, kind: str) -> None:
    """The process held the lock or waited for it."""
    with eventkit.connect(f"sqlite:///{path}?busy_timeout=50") as kit:
        with held(kind, path) as holder, spawn(hold, kind, path, f"{path}-waits", 0) as waiting:
            time.sleep(0.5)
            third = background(lambda: kit.stream("t").publish("third"))
            time.sleep(0.1)
            waiting.kill()
            time.sleep(0.1)
            assert not third.done()
            killed = monotonic()
            holder.kill()
            third.result(PATIENCE)
            assert monotonic() - killed < 5
        assert [event.payload for event in kit.stream("t").read()] == ["third"]


def die_with_children(kind: str, path: str, pids: str) -> None:
    """Fork and spawn while the lock is held, then die of SIGKILL."""

    async def main() -> None:
        async with writer(kind, path) as transaction, transaction():
            child = os.fork()
            if child == 0:
                time.sleep(PATIENCE)
                os._exit(0)
            sleeper = subprocess.Popen(
                [sys.executable, "-c", f"import time; time.sleep({PATIENCE})"], close_fds=False, stdout=2
            )
            Path(pids + "~").write_text(f"{child} {sleeper.pid}")
            Path(pids + "~").rename(pids)
            time.sleep(PATIENCE)

    asyncio.run(main())


@proves("G14")
@pytest.mark.parametrize("kind", KINDS)
def test_children_do_not_inherit_the_lock(path: str, kind: str) -> None:
    """A dying parent releases the lock although it has forked or spawned meanwhile."""
    with eventkit.connect(f"sqlite:///{path}?busy_timeout=20") as kit:
        with spawn(die_with_children, kind, path, f"{path}-pids") as parent:
            await_file(Path(f"{path}-pids"))
            parent.kill()
            children = [int(pid) for pid in Path(f"{path}-pids").read_text().split()]
            try:
                kit.stream("t").publish("after")
                for child in children:
                    os.kill(child, 0)
            finally:
                for child in children:
                    os.kill(child, signal.SIGKILL)
        assert [event.payload for event in kit.stream("t").read()] == ["after"]


@proves("G14")
@pytest.mark.parametrize("kind", KINDS)
def test_a_wait_ends_with_the_busy_timeout(path: str, kind: str) -> None:
    """The kit raises `Busy` and an engine `OperationalError`."""

    async def main() -> None:
        if "engine" in kind:
            engine = create_async_engine(f"sqlite+apsw_async:///{path}?timeout=0.3")
            with pytest.raises(OperationalError, match="locked"):
                async with engine.begin() as connection:
                    await connection.exec_driver_sql(INSERT)
            await engine.dispose()
        elif kind == "async kit":
            async with eventkit.connect_async(f"sqlite:///{path}?busy_timeout=0.3") as async_kit:
                with pytest.raises(eventkit.Busy):
                    async with async_kit.transaction():
                        pass
        elif kind.startswith("sqlite"):
            kit = eventkit.connect(f"{kind}:///{path}?busy_timeout=0.3")
            with kit, pytest.raises(eventkit.Busy), kit.transaction():
                pass
        else:
            engine = sa.create_engine(f"sqlite+apsw:///{path}?begin={kind}&timeout=0.3")
            with pytest.raises(OperationalError, match="locked"), engine.begin() as connection:
                connection.exec_driver_sql(INSERT)
            engine.dispose()

    with held("sqlite+apsw", path) as holder:
        began = monotonic()
        asyncio.run(main())
        assert 0.25 < monotonic() - began < 5
        holder.kill()


@proves("G14")
@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_transaction_that_has_read_is_refused_at_once(tmp_path: Path, mode: str) -> None:
    """Its snapshot is outdated when the writer before it commits; without a WAL, that one waits for its end."""
    path = f"{tmp_path}/shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode={mode}")
        connection.execute("CREATE TABLE eventkit_event (topic, payload)")
    engine = sa.create_engine(f"sqlite+apsw:///{path}?timeout=30")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM eventkit_event").scalar() == 0
        with held("immediate", path, 0.3) as other:
            began = monotonic()
            with pytest.raises(OperationalError, match="locked"):
                connection.exec_driver_sql(INSERT)
            assert monotonic() - began < 10
            connection.rollback()
            connection.exec_driver_sql(INSERT)
            connection.commit()
            other.result()
        assert connection.exec_driver_sql("SELECT count(*) FROM eventkit_event").scalar() == 2
    engine.dispose()


def test_only_transactions_that_write_hold_the_lock(path: str) -> None:
    """Neither a temporary table nor an isolation level of AUTOCOMMIT keeps it."""
    engine = sa.create_engine(f"sqlite+apsw:///{path}")
    with eventkit.connect(f"sqlite:///{path}") as kit, engine.connect() as connection:
        connection.exec_driver_sql("CREATE TEMP TABLE basket (item)")
        kit.stream("t").publish(1)
        connection.exec_driver_sql("INSERT INTO basket VALUES (1)")
        kit.stream("t").publish(2)
        connection.rollback()
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.exec_driver_sql(INSERT)
        kit.stream("t").publish(4)
        assert kit.stream("t").head() == 4
    engine.dispose()


def write_without_turns(path: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as connection:
        for _ in range(50):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(INSERT)
            time.sleep(0.005)
            connection.execute("COMMIT")
            time.sleep(0.002)


@proves("G14")
def test_connections_that_take_no_turns_are_respected(path: str) -> None:
    """SQLite's own lock still decides between them and the others."""
    with eventkit.connect(f"sqlite:///{path}?busy_timeout=30") as kit:
        with spawn(write_without_turns, path), spawn(write_without_turns, path):
            for number in range(50):
                kit.stream("t").publish(f"publish {number}")
                with kit.transaction() as tx:
                    kit.stream("t").publish(f"transaction {number}", tx=tx)
        payloads = [event.payload for event in kit.stream("t").read()]
        assert payloads.count(1) == 100
        assert [payload for payload in payloads if payload != 1] == [
            f"{kind} {number}" for number in range(50) for kind in ("publish", "transaction")
        ]


@proves("G14")
@pytest.mark.parametrize("why", ["cannot be opened", "has no locks", "read-only"])
def test_without_a_lock_file_writers_go_on(
    path: str, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They compete as with SQLite alone, which is logged once."""
    lock = Path(f"{path}-lock")
    lock.unlink()
    opened = os.open
    if why == "cannot be opened":
        lock.mkdir()
    elif why == "has no locks":
        monkeypatch.setattr(eventkit_sqlite.writer, "fcntl", failing(OSError(errno.ENOLCK, why)))
    else:
        refuse = failing(OSError(errno.EROFS, why))
        monkeypatch.setattr(os, "open", lambda name, *rest: (refuse if name == str(lock) else opened)(name, *rest))
    engine = sa.create_engine(f"sqlite+apsw:///{path}")
    for _ in range(2):
        with eventkit.connect(f"sqlite:///{path}") as kit:
            kit.stream("t").publish(1)
            with kit.transaction() as tx:
                kit.stream("t").publish(1, tx=tx)
            with engine.begin() as connection:
                connection.exec_driver_sql(INSERT)
            assert kit.stream("t").head() % 3 == 0
    engine.dispose()
    assert [record.getMessage().partition(" (")[0] for record in caplog.records if record.levelname == "WARNING"] == [
        f"{lock} cannot be used"
    ]


def failing(error: OSError) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise error

    return fail


def test_the_lock_file_has_the_mode_of_the_database(path: str) -> None:
    """Other users who may write to the database may use its lock."""
    os.unlink(f"{path}-lock")
    os.chmod(path, 0o640)
    with eventkit.connect(f"sqlite:///{path}") as kit:
        kit.stream("t").publish(1)
    assert stat.S_IMODE(os.stat(f"{path}-lock").st_mode) == 0o640
    assert os.stat(f"{path}-lock").st_size == 0
