"""``tx=`` with an AsyncSession on ``sqlite+apsw_async`` (G4): cases of this pair of kit and engine."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import eventkit


def test_a_cancelled_call_ends_the_sessions_transaction(tmp_path: Path) -> None:
    """Like a cancelled statement of the session: nothing is written, no lock held, and a rollback makes it usable."""

    async def main() -> list[Any]:
        async with eventkit.connect_async(f"sqlite:///{tmp_path}/shop.db") as kit:
            engine = create_async_engine(f"sqlite+apsw_async:///{tmp_path}/shop.db?timeout=60")
            stream = kit.stream("t")
            async with AsyncSession(engine) as session:
                async with kit.transaction() as tx:
                    await stream.publish("other", tx=tx)
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.2):
                            await stream.publish("cancelled", tx=session)
                with pytest.raises(sa.exc.PendingRollbackError):
                    await stream.publish("too early", tx=session)
                await session.rollback()
                await stream.publish("again", tx=session)
                await session.commit()
            await engine.dispose()
            return [event.payload for event in await stream.read()]

    assert asyncio.run(main()) == ["other", "again"]


def test_a_call_that_would_wait_for_its_own_session_is_refused(tmp_path: Path) -> None:
    """It is refused at once for the task whose session holds the lock and a blocking call in its loop; others wait."""

    async def main() -> list[Any]:
        url = f"sqlite:///{tmp_path}/shop.db?busy_timeout=60"
        with eventkit.connect(url) as blocking:
            engine = create_async_engine(f"sqlite+apsw_async:///{tmp_path}/shop.db")
            async with eventkit.connect_async(url) as kit, AsyncSession(engine) as session:
                stream = kit.stream("t")
                await stream.publish("mine", tx=session)
                with pytest.raises(eventkit.Busy, match="pass tx="):
                    await stream.publish("itself")
                with pytest.raises(eventkit.Busy, match="pass tx="):
                    blocking.stream("t").publish("the loop")
                waiting = asyncio.create_task(stream.publish("another task"))
                await asyncio.sleep(0.1)
                assert not waiting.done()
                await session.commit()
                await waiting
                await stream.publish("afterwards")
                payloads = [event.payload for event in await stream.read()]
            await engine.dispose()
        return payloads

    assert asyncio.run(main()) == ["mine", "another task", "afterwards"]


def test_a_blocking_kit_refuses_the_session_within_run_sync(tmp_path: Path) -> None:
    """It could not await the connection; the message names the kit that can."""

    async def main() -> None:
        with eventkit.connect(f"sqlite:///{tmp_path}/shop.db") as kit:
            engine = create_async_engine(f"sqlite+apsw_async:///{tmp_path}/shop.db")
            async with AsyncSession(engine) as session:
                with pytest.raises(TypeError, match="connect_async"):
                    await session.run_sync(lambda blocking: kit.stream("t").publish(1, tx=blocking))
            await engine.dispose()

    asyncio.run(main())
