"""``tx=`` on SQLite: connections of the driver, and one lock for all (G4)."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

import eventkit
from eventkit.conformance import proves
from eventkit.conformance.orders import KINDS, opened
from eventkit.conformance.processes import PATIENCE, background

INSERT = "INSERT INTO orders (name) VALUES ('business')"


@pytest.fixture(params=["sqlite+apsw", "sqlite+pysqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a file with a table of orders."""
    url = f"{request.param}:///{tmp_path}/shop.db"
    with eventkit.connect(url) as kit, kit.transaction() as tx:
        tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)")
    return url


@pytest.fixture
def kit(url: str) -> Iterator[eventkit.EventKit]:
    """Return a kit on the file."""
    with eventkit.connect(url) as kit:
        yield kit


@pytest.fixture
def driver(url: str) -> Iterator[Any]:
    """Return a connection of the driver that the kit uses, without a transaction."""
    driver = connection(url)
    yield driver
    driver.close()


def connection(url: str, **options: Any) -> Any:
    """Return a connection of the driver that *url* names; *options* are those of the standard library's."""
    scheme, _, path = url.partition(":///")
    return apsw.Connection(path) if scheme == "sqlite+apsw" else sqlite3.connect(path, **options)


def begin(driver: Any) -> None:
    """Begin a transaction, where the driver does not do so by itself."""
    if isinstance(driver, apsw.Connection):
        driver.execute("BEGIN")


@contextmanager
def begun(kind: str, url: str) -> Iterator[Any]:
    """Yield a transaction of the application that is rolled back in the end, unless it was committed."""
    if kind == "driver":
        driver = connection(url)
        begin(driver)
        yield driver
        driver.close()
    else:
        engine = sa.create_engine(url)
        with opened(engine, kind) as tx:
            yield tx
        engine.dispose()


def commit(tx: Any) -> None:
    """Commit a transaction of any kind."""
    if isinstance(tx, apsw.Connection):
        tx.execute("COMMIT")
    else:
        tx.commit()


def found(kit: eventkit.EventKit) -> tuple[int, list[Any], int]:
    """Return what was committed: the number of orders, the events, and the number of tasks."""
    with kit.transaction() as tx:
        [[orders]] = tx.execute("SELECT count(*) FROM orders").fetchall()
    return orders, [event.payload for event in kit.stream("t").read()], kit.queue("q").size()


@proves("G4")
@pytest.mark.parametrize("first", ["the order", "the event"])
def test_a_connection_of_the_driver_decides(kit: eventkit.EventKit, driver: Any, first: str) -> None:
    """The application commits all or nothing, in any order of writes, and others see nothing before."""
    for ending, done in (("ROLLBACK", 0), ("COMMIT", 1)):
        begin(driver)
        if first == "the order":
            driver.execute(INSERT)
        kit.stream("t").publish(1, tx=driver)
        kit.queue("q").enqueue(1, key="k", tx=driver)
        if first == "the event":
            driver.execute(INSERT)
        assert [event.payload for event in kit.stream("t").read()] == []
        driver.execute(ending)
        assert found(kit) == (done, [1] * done, done)


@proves("G4")
def test_savepoints_are_honoured(kit: eventkit.EventKit, driver: Any) -> None:
    """Work rolled back to a savepoint is gone, and the rest stays."""
    begin(driver)
    kit.stream("t").publish("before", tx=driver)
    driver.execute("SAVEPOINT one")
    driver.execute(INSERT)
    kit.stream("t").publish("inside", tx=driver)
    kit.queue("q").enqueue_many([1, 2], tx=driver)
    driver.execute("ROLLBACK TO one")
    kit.stream("t").publish("after", tx=driver)
    driver.execute("COMMIT")
    assert found(kit) == (0, ["before", "after"], 0)


@proves("G4", "W2")
def test_only_the_commit_wakes_waiters(kit: eventkit.EventKit, driver: Any) -> None:
    """The waiter wakes although eventkit does not see the commit."""
    events = kit.stream("t").subscribe()
    waiting = background(lambda: next(events).payload)
    begin(driver)
    kit.stream("t").publish("committed", tx=driver)
    time.sleep(0.2)
    assert not waiting.done()
    driver.execute("COMMIT")
    assert waiting.result(PATIENCE) == "committed"


@proves("G4")
def test_rows_may_be_made_into_anything(kit: eventkit.EventKit, driver: Any) -> None:
    """Row factories of the application do not apply to eventkit's statements."""
    if isinstance(driver, apsw.Connection):
        driver.row_trace = lambda cursor, row: {"first": row[0]}
    else:
        driver.row_factory = lambda cursor, row: {"first": row[0]}
    begin(driver)
    driver.execute(INSERT)
    assert kit.stream("t").publish_many([1, 2], tx=driver) == [1, 2]
    kit.queue("q").enqueue("first", tx=driver)
    [task] = kit.queue("q").claim("w", tx=driver)
    assert kit.queue("q").ack(task, tx=driver)
    assert driver.execute("SELECT count(*) FROM orders").fetchall() == [{"first": 1}]
    driver.execute("COMMIT")
    assert found(kit) == (1, [1, 2], 0)


@proves("G4")
def test_a_connection_without_a_transaction_is_refused(url: str, kit: eventkit.EventKit) -> None:
    """Each statement would otherwise be committed by itself, without the caller's commit."""
    driver = connection(url, isolation_level=None)
    with pytest.raises(ValueError, match="execute BEGIN first"):
        kit.stream("t").publish(1, tx=driver)
    driver.close()
    with kit.transaction() as tx:
        pass
    with pytest.raises(ValueError, match="execute BEGIN first"):
        kit.stream("t").publish(1, tx=tx)
    assert kit.stream("t").head() == 0


@proves("G4")
@pytest.mark.parametrize("kind", [*KINDS, "driver"])
def test_forgetting_tx_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    """A call that would wait for its own thread's transaction raises at once."""
    url = f"sqlite+apsw:///{tmp_path}/shop.db"
    with eventkit.connect(url + "?busy_timeout=50") as kit:
        with begun(kind, url) as tx:
            kit.stream("t").publish("with", tx=tx)
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
            commit(tx)
            other.result(PATIENCE)
        assert [event.payload for event in kit.stream("t").read()] == ["with", "other thread"]


@proves("G4")
def test_forgetting_tx_after_a_flush_is_refused_at_once(tmp_path: Path) -> None:
    """The application's own first write takes the lock, before it calls eventkit."""
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


@proves("G4")
def test_an_async_kit_refuses_what_blocks(url: str, driver: Any) -> None:
    """A blocking connection would block the event loop."""

    async def main() -> None:
        async with eventkit.connect_async(url) as kit:
            begin(driver)
            with pytest.raises(TypeError, match="AsyncSession"):
                await kit.stream("t").publish(1, tx=driver)
            assert await kit.stream("t").head() == 0

    asyncio.run(main())


class _Interrupting(msgspec.Struct):
    def __post_init__(self) -> None:
        raise KeyboardInterrupt


@proves("Q2")
def test_a_claim_that_is_interrupted_while_it_decodes_commits_nothing(kit: eventkit.EventKit) -> None:
    """Neither a lease nor an attempt is stored, since no caller has the tasks."""
    kit.queue("jobs").enqueue_many([{}, {}])
    with pytest.raises(KeyboardInterrupt):
        kit.queue("jobs", type=_Interrupting).claim("worker", 2)
    assert [(info.state, info.attempt) for info in kit.queue("jobs").tasks()] == [("ready", 0)] * 2
