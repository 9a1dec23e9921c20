"""Features of `sqlite+apsw_async://` beyond the blocking dialect, whose tests it passes too: asyncio."""

import asyncio
import gc
import time
import warnings
from collections.abc import AsyncIterator
from typing import Any

import apsw
import pytest
import sqlalchemy as sa
from async_engines import COUNT, ENDLESS, collected, left, names, nobody_holds_a_lock, run
from eventkit_sqlite import dbapi
from shop import Base, Order, orders
from sqlalchemy import pool
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine


def test_the_driver_connection_is_an_async_apsw_connection(path):
    """Its calls are awaited as apsw's are, and belong to the transaction."""

    async def main(engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            await connection.execute(orders.insert(), [{"name": name} for name in "abc"])
            driver = (await connection.get_raw_connection()).driver_connection
            assert isinstance(driver, apsw.Connection)
            assert driver.is_async
            assert await driver.in_transaction
            assert [row async for row in await driver.execute("SELECT name FROM orders")] == [("a",), ("b",), ("c",)]
            cursor = driver.cursor()
            await cursor.execute("SELECT name FROM orders WHERE id > ?", (1,))
            assert await cursor.fetchall() == [("b",), ("c",)]

    run(path, main)


def test_pools_are_those_of_sqlalchemys_own_asyncio_dialect():
    """A file has a queue of connections, and a database in memory one connection for all tasks."""
    assert isinstance(create_async_engine("sqlite+apsw_async:///shop.db").pool, pool.AsyncAdaptedQueuePool)

    async def main() -> None:
        engine = create_async_engine("sqlite+apsw_async://")
        assert isinstance(engine.pool, pool.StaticPool)
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
            await connection.execute(orders.insert(), {"name": "a"})
        assert await asyncio.gather(*(names(engine) for _ in range(5))) == [["a"]] * 5
        await engine.dispose()
        assert await left() == []

    asyncio.run(main())


def test_a_creator_may_open_the_connections(path):
    """`async_creator` returns a connection of `dbapi.connect_async`, directly or awaitable."""
    options = {"async_creator": lambda: dbapi.connect_async(str(path), begin="immediate", timeout=0)}

    async def main(engine: AsyncEngine) -> None:
        async with engine.begin():
            assert not nobody_holds_a_lock(path)

    run(path, main, **options)


def test_hooks_for_new_connections_are_called(path, monkeypatch):
    """Functions in `apsw.connection_hooks` of the application run on async connections too."""
    seen: list[apsw.Connection] = []
    monkeypatch.setattr(apsw, "connection_hooks", [lambda connection: seen.append(type(connection))])
    run(path, names_only)
    assert seen == [dbapi.AsyncConnection]


async def names_only(engine: AsyncEngine) -> None:
    assert await names(engine) == []


def test_rows_are_streamed(path):
    """Rows are made as they are fetched, of an endless query too, and closing the result ends it."""

    async def main(engine: AsyncEngine) -> None:
        async with AsyncSession(engine) as session:
            result = await session.stream(sa.text(ENDLESS))
            first = [row.i async for row in _first(result, 2500)]
            assert first == list(range(1, 2501))
            assert [row.i for row in await result.fetchmany(2)] == [2501, 2502]
            await result.close()
            session.add_all([Order(name=str(number)) for number in range(2500)])
            await session.commit()
            objects = await session.stream_scalars(sa.select(Order).order_by(Order.id))
            assert [order.id async for order in objects] == list(range(1, 2501))
            partitions = (await session.stream(sa.select(Order.id).execution_options(yield_per=1000))).partitions()
            assert [len(partition) async for partition in partitions] == [1000, 1000, 500]
            with pytest.raises(sa.exc.OperationalError, match="integer overflow"):
                result = await session.stream(sa.text(f"SELECT abs(1000 - 9223372036854775807 - i) FROM ({ENDLESS})"))
                [row async for row in result]

    run(path, main)


async def _first(result: AsyncIterator[Any], count: int) -> AsyncIterator[Any]:
    for _ in range(count):
        yield await anext(result)


def test_a_stream_that_was_left_holds_nothing_up(path):
    """The lock of an unfinished read ends with its session."""

    async def main(engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            await connection.execute(orders.insert(), [{"name": str(number)} for number in range(5000)])
        async with AsyncSession(engine) as session:
            async for _ in await session.stream(sa.select(Order)):
                break
            assert not nobody_holds_a_lock(path)
        assert nobody_holds_a_lock(path)

    run(path, main)


def test_waiting_for_a_lock_does_not_block_the_loop(path):
    """Other tasks go on; the waiting one gets the lock when it is free, or an OperationalError after `timeout`."""

    async def main(engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            await connection.execute(orders.insert(), {"name": "first"})
            waiting = asyncio.create_task(insert("second"))
            turns = 0
            start = time.monotonic()
            while time.monotonic() - start < 0.2:
                await asyncio.sleep(0)
                turns += 1
            assert turns > 100
            assert not waiting.done()
        await waiting
        async with engine.begin():
            start = time.monotonic()
            with pytest.raises(sa.exc.OperationalError, match="locked") as raised:
                await insert("third")
            assert 0.9 < time.monotonic() - start < 5
            assert isinstance(raised.value.orig, apsw.BusyError)
        assert await names(engine) == ["first", "second"]

    async def insert(name: str) -> None:
        async with engine_of_mine.begin() as connection:
            await connection.execute(orders.insert(), {"name": name})

    engine_of_mine = create_async_engine(f"sqlite+apsw_async:///{path}?begin=immediate&timeout=1")

    async def with_both(engine: AsyncEngine) -> None:
        try:
            await main(engine)
        finally:
            await engine_of_mine.dispose()

    run(path, with_both, "?begin=immediate")


def test_one_engine_serves_several_loops_one_after_another(path):
    """Connections that waited in the pool while their loop was closed go on in the next one."""
    engine = create_async_engine(f"sqlite+apsw_async:///{path}", pool_size=2)

    async def write(name: str) -> None:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
            await connection.execute(orders.insert(), {"name": name})

    async def crowd(name: str) -> None:
        await write(name)
        await asyncio.gather(*(names(engine) for _ in range(5)))

    for name in "abc":
        asyncio.run(crowd(name))
    assert len(apsw.connections()) == 2
    assert asyncio.run(names(engine)) == ["a", "b", "c"]
    asyncio.run(engine.dispose())
    assert asyncio.run(left()) == []


@collected
@pytest.mark.parametrize("where", ["in the pool", "in a transaction", "in a statement"])
def test_an_engine_that_was_forgotten_leaves_nothing(path, where):
    """Neither threads nor locks remain, although its loop was closed with connections open."""

    async def main() -> None:
        engine = create_async_engine(f"sqlite+apsw_async:///{path}")
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        if where != "in the pool":
            connection = await engine.connect()
            await connection.execute(orders.insert(), {"name": "undone"})
            if where == "in a statement":
                running.append(asyncio.ensure_future(connection.execute(sa.text(COUNT))))
                await asyncio.sleep(0.05)

    running: list[object] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(main())
        running.clear()
        gc.collect()
    assert asyncio.run(left()) == []
    assert nobody_holds_a_lock(path)
