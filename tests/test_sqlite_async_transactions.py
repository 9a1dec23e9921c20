"""``tx=`` with the connection of an asyncio application on apsw, without SQLAlchemy (G4)."""

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

import eventkit


def test_an_async_apsw_connection_shares_its_fate(tmp_path: Path) -> None:
    """Calls commit and roll back with an open transaction of the application."""

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


def test_a_refused_transaction_leaves_that_of_its_caller(tmp_path: Path) -> None:
    """After the refusal of a nested transaction, calls without ``tx=`` are still refused at once."""

    async def main() -> None:
        async with eventkit.connect_async(f"sqlite:///{tmp_path}/shop.db?busy_timeout=60") as kit:
            async with kit.transaction() as tx:
                await kit.stream("t").publish(1, tx=tx)
                with pytest.raises(eventkit.Busy, match="its own caller"):
                    async with kit.transaction():
                        pass
                async with asyncio.timeout(20):
                    with pytest.raises(eventkit.Busy, match="its own caller"):
                        await kit.stream("t").publish(2)
            assert [event.payload for event in await kit.stream("t").read()] == [1]

    asyncio.run(main())
