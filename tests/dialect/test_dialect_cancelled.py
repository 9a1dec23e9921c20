"""Cancelled calls on `sqlite+apsw_async://` stop, and release what they used."""

import asyncio
import time

import apsw
import pytest
import sqlalchemy as sa
from async_engines import COUNT, ENDLESS, collected, left, names, nobody_holds_a_lock, run
from packaging.version import Version
from shop import Order, orders
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

leaking = pytest.mark.skipif(
    Version(sa.__version__) < Version("2.0.53"),
    reason="SQLAlchemy before 2.0.53 leaves a connection open whose opening is cancelled halfway",
)
"""A mark for a test that would leave a connection open for all tests after it."""


LONG = {
    "a query": COUNT,
    "a write": f"INSERT INTO orders (name) SELECT i FROM ({ENDLESS})",
    "a call for each row": f"SELECT sum(slow(i)) FROM ({ENDLESS})",
}


@pytest.mark.parametrize("statement", list(LONG))
def test_a_statement_that_is_cancelled_stops(path, statement):
    """It stops at once; the transaction is rolled back, the lock is free, and the session can be used from then on."""

    async def main(engine: AsyncEngine) -> None:
        async with AsyncSession(engine) as session:
            raw = (await (await session.connection()).get_raw_connection()).dbapi_connection
            await session.run_sync(lambda _: raw.create_function("slow", 1, lambda i: time.sleep(0.001) or i))
            session.add(Order(name="undone"))
            await session.flush()
            start = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await session.execute(sa.text(LONG[statement]))
            assert time.monotonic() - start < 2
            assert nobody_holds_a_lock(path)
            with pytest.raises(sa.exc.PendingRollbackError):
                await session.execute(orders.select())
            await session.rollback()
            session.add(Order(name="again"))
            await session.commit()
        assert await names(engine) == ["again"]

    run(path, main)


@pytest.mark.parametrize("begin", ["immediate", "deferred"])
def test_waiting_for_a_lock_can_be_cancelled(path, begin):
    """It ends at once, and the lock is not taken when it becomes free."""

    async def main(engine: AsyncEngine) -> None:
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), engine.begin() as connection:
                await connection.execute(orders.insert(), {"name": "late"})
        assert time.monotonic() - start < 2
        other.execute("COMMIT")
        other.close()
        assert nobody_holds_a_lock(path)
        assert await names(engine) == []

    run(path, main, f"?begin={begin}&timeout=30")


@leaking
def test_a_cancelled_transaction_is_whole_and_leaves_no_lock(path):
    """Tasks cancelled at any moment have written both of their rows or none, and released what they used."""

    async def write(engine: AsyncEngine, number: int) -> None:
        async with AsyncSession(engine) as session:
            session.add(Order(name=f"{number} a"))
            await session.flush()
            async for row in await session.stream(sa.text(f"SELECT i FROM ({ENDLESS}) LIMIT 3000")):
                if row.i == 100 * (number % 40):
                    break
            session.add(Order(name=f"{number} b"))
            await session.commit()

    async def main(engine: AsyncEngine) -> None:
        tasks = []
        for number in range(120):
            tasks.append(asyncio.create_task(write(engine, number)))
            await asyncio.sleep(0.002)
            if number % 2:
                tasks[number // 2].cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(end) for end in ends} == {type(None), asyncio.CancelledError}
        assert nobody_holds_a_lock(path)
        assert engine.pool.checkedout() == 0
        written = await names(engine)
        assert written == [f"{name.split()[0]} {part}" for name in written[::2] for part in "ab"]
        assert len(written) // 2 >= ends.count(None) > 0

    run(path, main, "?timeout=60&begin=immediate", pool_timeout=60)


@collected
@leaking
def test_opening_can_be_cancelled(path):
    """No thread and no connection stays behind."""

    async def main() -> None:
        for turns in range(20):
            engine = create_async_engine(f"sqlite+apsw_async:///{path}")
            opening = asyncio.create_task(engine.connect().start())
            for _ in range(turns):
                await asyncio.sleep(0)
            opening.cancel()
            [end] = await asyncio.gather(opening, return_exceptions=True)
            if not isinstance(end, asyncio.CancelledError):
                await end.close()
            await engine.dispose()
            assert await left() == []

    asyncio.run(main())
