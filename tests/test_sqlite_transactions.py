"""``tx=`` with the transactions that an application on SQLite has (G4)."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import eventkit
from eventkit.conformance.processes import PATIENCE, background

INSERT = "INSERT INTO orders (name) VALUES ('business')"


class Transaction(NamedTuple):
    """A transaction of the application."""

    tx: Any
    execute: Callable[[str], object]
    commit: Callable[[], object]
    rollback: Callable[[], object]


@pytest.fixture(params=["sqlite+apsw", "sqlite+pysqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    url = f"{request.param}:///{tmp_path}/shop.db"
    with eventkit.connect(url) as kit, kit.transaction() as tx:
        tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)")
    return url


@pytest.fixture
def kit(url: str) -> Iterator[eventkit.EventKit]:
    with eventkit.connect(url) as kit:
        yield kit


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(url)
    yield engine
    engine.dispose()


@contextmanager
def begun(kind: str, engine: sa.Engine) -> Iterator[Transaction]:
    """A transaction of the *kind*, which nothing was executed in yet."""
    if kind == "Session":
        with Session(engine) as session:
            yield Transaction(session, lambda sql: session.execute(sa.text(sql)), session.commit, session.rollback)
    elif kind == "scoped_session":
        scoped = scoped_session(sessionmaker(engine))
        yield Transaction(scoped, lambda sql: scoped.execute(sa.text(sql)), scoped.commit, scoped.rollback)
        scoped.remove()
    elif kind == "Connection":
        with engine.connect() as connection:
            yield Transaction(connection, connection.exec_driver_sql, connection.commit, connection.rollback)
    else:
        raw: Any
        if engine.dialect.driver == "apsw":
            raw = apsw.Connection(engine.url.database)
            raw.execute("BEGIN")
        else:
            raw = sqlite3.connect(engine.url.database or "")
        yield Transaction(raw, raw.execute, lambda: raw.execute("COMMIT"), lambda: raw.execute("ROLLBACK"))
        raw.close()


KINDS = pytest.mark.parametrize("kind", ["Session", "scoped_session", "Connection", "raw connection"])


def found(kit: eventkit.EventKit, engine: sa.Engine) -> tuple[int, int, int]:
    """How many business rows, events and tasks have been committed."""
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT count(*) FROM orders").scalar_one()
    return rows, len(kit.stream("t").read()), kit.queue("q").size()


@KINDS
@pytest.mark.parametrize("first", ["business", "eventkit"])
def test_calls_share_the_fate_of_the_business_rows(
    kit: eventkit.EventKit, engine: sa.Engine, kind: str, first: str
) -> None:
    """Whoever comes first: all is committed by the application, or nothing, and seen by nobody before."""

    def write(transaction: Transaction) -> None:
        if first == "business":
            transaction.execute(INSERT)
        kit.stream("t").publish(1, tx=transaction.tx)
        kit.queue("q").enqueue(1, key="k", tx=transaction.tx)
        if first == "eventkit":
            transaction.execute(INSERT)

    with begun(kind, engine) as transaction:
        write(transaction)
        assert found(kit, engine) == (0, 0, 0)
        transaction.rollback()
    assert found(kit, engine) == (0, 0, 0)
    with begun(kind, engine) as transaction:
        write(transaction)
        assert found(kit, engine) == (0, 0, 0)
        transaction.commit()
    assert found(kit, engine) == (1, 1, 1)


@KINDS
def test_savepoints_are_honoured(kit: eventkit.EventKit, engine: sa.Engine, kind: str) -> None:
    """What is rolled back to a savepoint is gone, and the rest stays."""
    with begun(kind, engine) as transaction:
        kit.stream("t").publish("before", tx=transaction.tx)
        transaction.execute("SAVEPOINT one")
        transaction.execute(INSERT)
        kit.stream("t").publish("inside", tx=transaction.tx)
        kit.queue("q").enqueue_many([1, 2], tx=transaction.tx)
        transaction.execute("ROLLBACK TO one")
        kit.stream("t").publish("after", tx=transaction.tx)
        transaction.commit()
    assert found(kit, engine) == (0, 2, 0)
    assert [event.payload for event in kit.stream("t").read()] == ["before", "after"]


def test_a_nested_session_rolls_back_alone(kit: eventkit.EventKit, engine: sa.Engine) -> None:
    with Session(engine) as session, session.begin():
        session.execute(sa.text(INSERT))
        kit.stream("t").publish("before", tx=session)
        nested = session.begin_nested()
        kit.stream("t").publish("inside", tx=session)
        nested.rollback()
        with session.begin_nested():
            kit.stream("t").publish("kept", tx=session)
    assert [event.payload for event in kit.stream("t").read()] == ["before", "kept"]


@KINDS
def test_the_commit_wakes_whoever_waits_and_nothing_before_it(
    kit: eventkit.EventKit, engine: sa.Engine, kind: str
) -> None:
    events = kit.stream("t").subscribe()
    waiting = background(lambda: next(events).payload)
    with begun(kind, engine) as transaction:
        kit.stream("t").publish("committed", tx=transaction.tx)
        time.sleep(0.2)
        assert not waiting.done()
        transaction.commit()
        assert waiting.result(PATIENCE) == "committed"


def test_a_connection_without_a_transaction_is_refused(url: str, kit: eventkit.EventKit, engine: sa.Engine) -> None:
    """Otherwise each statement would be committed by itself, behind the caller's back."""
    raw: Any
    if engine.dialect.driver == "apsw":
        raw = apsw.Connection(engine.url.database)
    else:
        raw = sqlite3.connect(engine.url.database or "", isolation_level=None)
    with pytest.raises(ValueError, match="execute BEGIN first"):
        kit.stream("t").publish(1, tx=raw)
    raw.close()
    with (
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(ValueError, match="execute BEGIN first"),
    ):
        kit.stream("t").publish(1, tx=connection)
    with kit.transaction() as tx:
        pass
    with pytest.raises(ValueError, match="execute BEGIN first"):
        kit.stream("t").publish(1, tx=tx)
    assert kit.stream("t").head() == 0


def test_what_only_leads_to_a_transaction_is_refused(kit: eventkit.EventKit, engine: sa.Engine) -> None:
    with pytest.raises(TypeError, match=r"SQLAlchemy Session, scoped_session or Connection.* not Engine"):
        kit.stream("t").publish(1, tx=engine)
    with pytest.raises(TypeError, match="not sessionmaker"):
        kit.stream("t").publish(1, tx=sessionmaker(engine))


@pytest.mark.parametrize("kind", ["Session", "scoped_session", "Connection", "raw connection"])
def test_forgetting_tx_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    """A call that would wait for the very transaction its thread has open says so instead."""
    url = f"sqlite+apsw:///{tmp_path}/shop.db"
    engine = sa.create_engine(url)
    with eventkit.connect(url + "?busy_timeout=50") as kit:
        with begun(kind, engine) as transaction:
            kit.stream("t").publish("with", tx=transaction.tx)
            began = time.monotonic()
            for forgetful in (
                lambda: kit.stream("t").publish("without"),
                lambda: kit.queue("q").enqueue_many([1, 2]),
                lambda: kit.transaction().__enter__(),
            ):
                with pytest.raises(eventkit.Busy, match="pass tx="):
                    forgetful()
            other = background(lambda: kit.stream("t").publish("other thread"))
            time.sleep(0.2)
            assert not other.done()
            assert time.monotonic() - began < 20
            transaction.commit()
            other.result(PATIENCE)
        assert [event.payload for event in kit.stream("t").read()] == ["with", "other thread"]
    engine.dispose()


def test_forgetting_tx_after_a_flush_is_refused_at_once(tmp_path: Path) -> None:
    """It is the application's own first write that takes the lock, before eventkit is asked anything."""
    url = f"sqlite+apsw:///{tmp_path}/shop.db"
    engine = sa.create_engine(url)
    with eventkit.connect(url + "?busy_timeout=50") as kit:
        with Session(engine) as session:
            session.execute(sa.text("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)"))
            began = time.monotonic()
            with pytest.raises(eventkit.Busy, match="pass tx="):
                kit.stream("t").publish(1)
            assert time.monotonic() - began < 20
        with Session(engine) as session:
            session.execute(sa.text("SELECT 1 FROM sqlite_master"))
            kit.stream("t").publish(2)
        assert [event.payload for event in kit.stream("t").read()] == [2]
    engine.dispose()


def test_many_threads_bring_their_own_sessions(kit: eventkit.EventKit, url: str) -> None:
    """Each thread's transaction stands for itself, with calls without ``tx=`` in between."""
    engine = sa.create_engine(url, connect_args={"timeout": 30})
    barrier = threading.Barrier(8)

    def run(thread: int) -> None:
        barrier.wait()
        for number in range(10):
            with Session(engine) as session:
                kit.stream("t").publish([thread, number], tx=session)
                session.execute(sa.text(INSERT))
                if number % 2:
                    session.commit()
            kit.queue("q").enqueue(number)

    for future in [background(run, thread) for thread in range(8)]:
        future.result(PATIENCE)
    assert found(kit, engine) == (40, 40, 80)
    engine.dispose()


def test_an_async_kit_refuses_what_blocks(url: str, engine: sa.Engine) -> None:
    """A sync Session or connection would hold up the event loop."""

    async def main() -> None:
        async with eventkit.connect_async(url) as kit:
            for kind in ("Session", "scoped_session", "Connection", "raw connection"):
                with begun(kind, engine) as transaction, pytest.raises(TypeError, match="AsyncSession"):
                    await kit.stream("t").publish(1, tx=transaction.tx)
            assert await kit.stream("t").head() == 0

    asyncio.run(main())
