"""``tx=`` with the kinds of transactions on Postgres alone: psycopg's own, and other drivers (G4, G5)."""

import asyncio
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine, exc, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import eventkit
from eventkit.conformance import proves
from eventkit.conformance.processes import PATIENCE, background

SYNC = ("psycopg", "psycopg2")
ASYNC = ("psycopg", "asyncpg")


@pytest.fixture
def database(postgres_url: str) -> str:
    """Return the URL without eventkit's options."""
    return re.sub(r"[?&]schema=\w+$", "", postgres_url)


@pytest.fixture
def elsewhere(database: str) -> Iterator[str]:
    """Return another database of the same server, with eventkit's tables too."""
    name = f"elsewhere_{secrets.token_hex(4)}"
    with psycopg.connect(database, autocommit=True) as driver:
        driver.execute(f"CREATE DATABASE {name}".encode())
        url = re.sub(r"^(\w+://[^/?]*/)[^?]*", rf"\1{name}", database)
        eventkit.connect(url).close()
        yield url
        driver.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def on(driver: str, url: str) -> str:
    """Return the URL in SQLAlchemy's form for *driver*."""
    return url.replace("postgresql", f"postgresql+{driver}", 1)


def payloads(kit: eventkit.EventKit) -> list[Any]:
    """Return the published payloads."""
    return [event.payload for event in kit.stream("t").read()]


@contextmanager
def by_itself(database: str, **options: Any) -> Iterator[Any]:
    """Yield a connection that begins a transaction with its first statement, psycopg's default."""
    with psycopg.connect(database, **options) as driver:
        yield driver


@contextmanager
def in_a_block(database: str, **options: Any) -> Iterator[Any]:
    """Yield a connection in autocommit mode, in its ``transaction()``."""
    with psycopg.connect(database, autocommit=True, **options) as driver, driver.transaction():
        yield driver


@contextmanager
def in_a_pipeline(database: str, **options: Any) -> Iterator[Any]:
    """Yield a connection that does not wait for answers."""
    with psycopg.connect(database, **options) as driver, driver.pipeline():
        yield driver


@contextmanager
def in_a_block_in_a_pipeline(database: str, **options: Any) -> Iterator[Any]:
    """Yield a connection whose BEGIN may not have been sent yet."""
    with psycopg.connect(database, autocommit=True, **options) as driver, driver.pipeline(), driver.transaction():
        yield driver


@proves("G4")
@pytest.mark.parametrize("begun", [by_itself, in_a_block, in_a_pipeline, in_a_block_in_a_pipeline])
@pytest.mark.parametrize("options", [{}, {"row_factory": dict_row}, {"cursor_factory": psycopg.ClientCursor}])
def test_a_connection_of_psycopg_decides(postgres_url: str, database: str, begun: Any, options: Any) -> None:
    """Commit, rollback and nested blocks apply to eventkit's calls, with any begin and row factory."""
    with eventkit.connect(postgres_url) as kit:
        kit.queue("bounded").configure(max_size=2)
        waiting = background(lambda: next(kit.stream("t").subscribe()).payload)
        with pytest.raises(LookupError), begun(database, **options) as tx:
            kit.stream("t").publish("undone", tx=tx)
            raise LookupError
        with begun(database, **options) as tx:
            kit.stream("t").publish("before", tx=tx)
            with pytest.raises(LookupError), tx.transaction():
                kit.stream("t").publish("inside", tx=tx)
                kit.queue("q").enqueue_many([1, 2], tx=tx)
                raise LookupError
            kit.queue("q").enqueue_many([3, 4], tx=tx)
            kit.stream("t").seek("consumer", 1, tx=tx)
            with pytest.raises(eventkit.QueueFull):
                kit.queue("bounded").enqueue_many([1, 2, 3], tx=tx)
            [task] = kit.queue("q").claim("w", tx=tx)
            assert kit.queue("q").ack(task, tx=tx)
            assert payloads(kit) == []
        assert waiting.result(PATIENCE) == "before"
        assert (payloads(kit), kit.queue("q").size()) == (["before"], 1)


@proves("G4")
def test_an_async_connection_of_psycopg_decides(postgres_url: str, database: str) -> None:
    """It does as a blocking one does."""

    async def main() -> list[Any]:
        async with eventkit.connect_async(postgres_url) as kit:
            stream = kit.stream("t")
            async with await psycopg.AsyncConnection.connect(database) as tx:
                await stream.publish("undone", tx=tx)
                await tx.rollback()
                await stream.publish_many(["first", 1], tx=tx)
                assert await stream.read() == []
            async with (
                await psycopg.AsyncConnection.connect(database, autocommit=True) as tx,
                tx.transaction(),
            ):
                await stream.publish("second", tx=tx)
            async with await psycopg.AsyncConnection.connect(database) as tx, tx.pipeline():
                await stream.seek("consumer", 1, tx=tx)
                await stream.publish_many(["third", 3], tx=tx)
            return [event.payload for event in await stream.read()]

    assert asyncio.run(main()) == ["first", 1, "second", "third", 3]


@proves("G4")
def test_a_connection_without_a_transaction_is_refused(postgres_url: str, database: str) -> None:
    """Each statement would otherwise be committed by itself, without the caller's commit."""

    async def main() -> None:
        async with (
            eventkit.connect_async(postgres_url) as kit,
            await psycopg.AsyncConnection.connect(database, autocommit=True) as tx,
        ):
            with pytest.raises(ValueError, match="without an open transaction: begin one"):
                await kit.stream("t").publish(1, tx=tx)

    asyncio.run(main())
    with eventkit.connect(postgres_url) as kit:
        with (
            psycopg.connect(database, autocommit=True) as tx,
            pytest.raises(ValueError, match="without an open transaction: begin one"),
        ):
            kit.stream("t").publish(1, tx=tx)
        with kit.transaction() as tx:
            pass
        with pytest.raises(ValueError, match="without an open transaction: begin one"):
            kit.stream("t").publish(1, tx=tx)
        assert payloads(kit) == []


@proves("G4", "G13")
def test_other_drivers_alone_are_refused(postgres_url: str, database: str) -> None:
    """SQLAlchemy has to bring them, and the message says so."""

    async def main() -> None:
        async with eventkit.connect_async(postgres_url) as kit:
            tx = await asyncpg.connect(database)
            async with tx.transaction():
                with pytest.raises(TypeError, match="not asyncpg's own connection, which must come through SQLAlchemy"):
                    await kit.stream("t").publish(1, tx=tx)
            await tx.close()

    asyncio.run(main())
    with eventkit.connect(postgres_url) as kit:
        tx = psycopg2.connect(database)
        with pytest.raises(TypeError, match="not psycopg2's own connection, which must come through SQLAlchemy"):
            kit.stream("t").publish(1, tx=tx)
        tx.close()
        assert payloads(kit) == []


@proves("G5")
@pytest.mark.parametrize("driver", [*SYNC, "psycopg alone"])
def test_another_database_of_the_server_is_refused(postgres_url: str, elsewhere: str, driver: str) -> None:
    """It is refused although it has the same tables; the caller's transaction goes on."""
    named = f"belongs to the database '{elsewhere.rpartition('/')[2].partition('?')[0]}' at .* and the kit to schema"
    with eventkit.connect(postgres_url) as kit:
        if driver == "psycopg alone":
            with psycopg.connect(elsewhere) as tx:
                with pytest.raises(eventkit.ForeignTransaction, match=named):
                    kit.stream("t").publish(1, tx=tx)
                assert tx.execute("SELECT 1").fetchone() == (1,)
        else:
            engine = create_engine(on(driver, elsewhere))
            with Session(engine) as session:
                for _ in range(2):
                    with pytest.raises(eventkit.ForeignTransaction, match=named):
                        kit.stream("t").publish(1, tx=session)
                assert session.execute(text("SELECT 1")).scalar_one() == 1
            engine.dispose()
        assert payloads(kit) == []


@proves("G5")
@pytest.mark.parametrize("driver", ASYNC)
def test_an_async_one_of_another_database_is_refused(postgres_url: str, elsewhere: str, driver: str) -> None:
    """The words are the same."""

    async def main() -> None:
        engine = create_async_engine(on(driver, elsewhere))
        async with eventkit.connect_async(postgres_url) as kit, AsyncSession(engine) as session:
            with pytest.raises(eventkit.ForeignTransaction, match="belongs to the database 'elsewhere_"):
                await kit.stream("t").publish(1, tx=session)
            assert await kit.stream("t").read() == []
        await engine.dispose()

    asyncio.run(main())


WAITS = text("SET LOCAL lock_timeout = '50ms'")
LOCK_NOT_AVAILABLE = "55P03"


@proves("G4", "G13")
@pytest.mark.parametrize("driver", SYNC)
def test_an_error_is_the_drivers_own(postgres_url: str, database: str, driver: str) -> None:
    """The transaction is aborted as after a failed statement of the caller's; a savepoint or a rollback recovers it."""
    engine = create_engine(on(driver, database))
    schema = postgres_url.partition("schema=")[2]
    own = {"psycopg": psycopg.errors.LockNotAvailable, "psycopg2": psycopg2.errors.LockNotAvailable}[driver]
    with eventkit.connect(postgres_url) as kit, Session(engine) as session:
        with psycopg.connect(database) as other:
            other.execute(f"LOCK TABLE {schema}.eventkit_event, {schema}.eventkit_task".encode())
            session.execute(WAITS)
            for call in (kit.stream("t").publish, lambda _, tx: kit.queue("q").enqueue_many([1, 2], tx=tx)):
                savepoint = session.begin_nested()
                with pytest.raises(own):
                    call("waits in vain", tx=session)
                savepoint.rollback()
        kit.stream("t").publish("free", tx=session)
        session.commit()
        assert (payloads(kit), kit.queue("q").size()) == (["free"], 0)
    engine.dispose()


@proves("G4", "G13")
@pytest.mark.parametrize("driver", ASYNC)
def test_an_error_is_the_async_drivers_own(postgres_url: str, database: str, driver: str) -> None:
    """SQLAlchemy wraps asyncpg's errors in its own, which have the server's code."""

    async def main() -> None:
        engine = create_async_engine(on(driver, database))
        schema = postgres_url.partition("schema=")[2]
        own = engine.sync_engine.dialect.loaded_dbapi.Error
        async with eventkit.connect_async(postgres_url) as kit, AsyncSession(engine) as session:
            async with await psycopg.AsyncConnection.connect(database) as other:
                await other.execute(f"LOCK TABLE {schema}.eventkit_event".encode())
                await session.execute(WAITS)
                for call in (kit.stream("t").publish, lambda _, tx: kit.stream("t").publish_many([1, 2], tx=tx)):
                    savepoint = await session.begin_nested()
                    with pytest.raises(own) as raised:
                        await call("waits in vain", tx=session)
                    assert not isinstance(raised.value, exc.SQLAlchemyError)
                    assert raised.value.sqlstate == LOCK_NOT_AVAILABLE
                    await savepoint.rollback()
            await kit.stream("t").publish("free", tx=session)
            await session.commit()
            assert [event.payload for event in await kit.stream("t").read()] == ["free"]
        await engine.dispose()

    asyncio.run(main())
