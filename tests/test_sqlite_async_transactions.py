"""``tx=`` with the transactions that an asyncio application on SQLite has (G4)."""

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import eventkit

INSERT = "INSERT INTO orders (name) VALUES ('business')"


def test_an_async_session_shares_its_fate(tmp_path: Path) -> None:
    """AsyncSession and AsyncConnection of an engine on aiosqlite serve a kit on the standard library's driver."""
    url = f"sqlite+pysqlite:///{tmp_path}/shop.db"

    async def main() -> list[Any]:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")
        async with eventkit.connect_async(url) as kit:
            stream, queue = kit.stream("t"), kit.queue("q")
            async with AsyncSession(engine) as session:
                await stream.publish("undone", tx=session)
                await queue.enqueue_many([1, 2], tx=session)
                await session.rollback()
            async with AsyncSession(engine) as session, session.begin():
                await session.execute(sa.text("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)"))
                await session.execute(sa.text(INSERT))
                await stream.publish("session", tx=session)
                nested = await session.begin_nested()
                await stream.publish("nested", tx=session)
                await queue.enqueue(1, key="k", tx=session)
                await nested.rollback()
                assert await stream.read() == []
            async with engine.connect() as connection:
                await queue.enqueue(2, tx=connection)
                [task] = await queue.claim("w", tx=connection)
                await queue.ack(task, tx=connection)
                await stream.publish("connection", tx=connection)
                await connection.commit()
            assert await queue.list() == []
            payloads = [event.payload for event in await stream.read()]
        await engine.dispose()
        return payloads

    assert asyncio.run(main()) == ["session", "connection"]


def test_an_async_apsw_connection_shares_its_fate(tmp_path: Path) -> None:
    """What an asyncio application on apsw itself has open serves as well."""

    async def main() -> list[Any]:
        async with eventkit.connect_async(f"sqlite:///{tmp_path}/shop.db") as kit:
            stream = kit.stream("t")
            connection = await apsw.Connection.as_async(f"{tmp_path}/shop.db")
            with pytest.raises(ValueError, match="execute BEGIN first"):
                await stream.publish(0, tx=connection)
            for end in ("ROLLBACK", "COMMIT"):
                await connection.execute("BEGIN IMMEDIATE")
                await stream.publish(end, tx=connection)
                await stream.publish_many([1, 2], tx=connection)
                assert await stream.read() == []
                await connection.execute(end)
            await connection.aclose()
            return [event.payload for event in await stream.read()]

    assert asyncio.run(main()) == ["COMMIT", 1, 2]
