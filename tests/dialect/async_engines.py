"""Engines of the asyncio dialect for a test, and the resources they must release."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
import sqlalchemy as sa
from shop import Base, Order
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

ENDLESS = "WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t) SELECT i FROM t"
COUNT = f"SELECT count(*) FROM ({ENDLESS})"

collected = pytest.mark.filterwarnings("ignore:The garbage collector is trying to clean up:sqlalchemy.exc.SAWarning")
"""A mark for a test in which SQLAlchemy leaves a connection to the garbage collector, and warns."""

Main = Callable[[AsyncEngine], Awaitable[None]]


@asynccontextmanager
async def engine_on(path: Path, query: str = "", **options: Any) -> AsyncIterator[AsyncEngine]:
    """Yield an engine on the shop's file, and check that it releases everything."""
    engine = create_async_engine(f"sqlite+apsw_async:///{path}{query}", **options)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield engine
    await engine.dispose()
    assert await left() == []


def run(path: Path, main: Main, query: str = "", **options: Any) -> None:
    async def with_engine() -> None:
        async with engine_on(path, query, **options) as engine:
            await main(engine)

    asyncio.run(with_engine())


async def left() -> list[object]:
    """Return the connections that stay open, and the threads that stay behind."""
    deadline = time.monotonic() + 5
    while True:
        threads = [thread for thread in threading.enumerate() if thread.name == "eventkit-sqlite"]
        if not threads or time.monotonic() > deadline:
            return [*apsw.connections(), *threads]
        await asyncio.sleep(0.001)


async def names(engine: AsyncEngine) -> list[str]:
    async with engine.connect() as connection:
        return list(await connection.scalars(sa.select(Order.name).order_by(Order.id)))


def nobody_holds_a_lock(path: Path) -> bool:
    connection = apsw.Connection(str(path))
    try:
        connection.execute("BEGIN EXCLUSIVE").execute("ROLLBACK")
    except apsw.BusyError:
        return False
    finally:
        connection.close()
    return True
