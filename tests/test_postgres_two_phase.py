"""Transactions committed in two phases, which Postgres does not allow to notify."""

import asyncio
import re

import psycopg
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import eventkit
from eventkit.conformance import proves
from eventkit.conformance.processes import PATIENCE, background
from eventkit.conformance.urls import with_options


@proves("W2", "G4")
def test_a_prepared_transaction_is_found_at_the_next_look(postgres_url: str) -> None:
    """It can be prepared beside sleepers, also after a savepoint, and its waiters look by themselves."""
    with eventkit.connect(with_options(postgres_url, fallback_poll=0.2)) as kit:
        emails, orders = kit.queue("emails"), kit.stream("orders")
        waiting = [
            background(lambda: emails.claim("w", wait=PATIENCE)[0].payload),
            background(lambda: next(iter(orders.subscribe())).payload),
        ]
        assert kit.queue("nothing").claim("w", wait=0.5) == []  # long enough for the others to fall asleep
        engine = create_engine(database(postgres_url))
        with Session(engine, twophase=True) as session:
            with session.begin_nested() as savepoint:
                emails.enqueue("never", tx=session)
                savepoint.rollback()
            emails.enqueue("later", tx=session)
            orders.publish("later", tx=session)
            session.prepare()
            session.commit()
        engine.dispose()
        assert [future.result(PATIENCE) for future in waiting] == ["later", "later"]


@proves("W2", "G4")
def test_an_async_one_can_be_prepared(postgres_url: str) -> None:
    """An AsyncSession works like a Session."""

    async def main() -> list[str]:
        engine = create_async_engine(database(postgres_url))
        async with eventkit.connect_async(with_options(postgres_url, fallback_poll=0.2)) as kit:
            emails = kit.queue("emails")
            waiting = asyncio.create_task(emails.claim("w", wait=PATIENCE))
            await asyncio.sleep(0.5)
            async with AsyncSession(engine, twophase=True) as session:
                await emails.enqueue("later", tx=session)
                await session.commit()
            payloads = [task.payload for task in await waiting]
        await engine.dispose()
        return payloads

    assert asyncio.run(main()) == ["later"]


@proves("W2", "G4")
def test_one_of_psycopg_itself_can_be_prepared(postgres_url: str) -> None:
    """Transactions begun with `tpc_begin` do not notify either, in both flavours."""

    async def awaited() -> None:
        async with (
            eventkit.connect_async(postgres_url) as kit,
            await psycopg.AsyncConnection.connect(plain) as tx,
        ):
            await tx.tpc_begin(tx.xid(1, "awaited", ""))
            await kit.queue("emails").enqueue("awaited", tx=tx)
            await tx.tpc_prepare()
            await tx.tpc_commit()

    plain = re.sub(r"[?&]schema=\w+$", "", postgres_url)
    with eventkit.connect(with_options(postgres_url, fallback_poll=0.2)) as kit, psycopg.connect(plain) as tx:
        waiting = background(lambda: [next(tasks).payload for tasks in [kit.queue("emails").work()] for _ in range(2)])
        assert kit.queue("nothing").claim("w", wait=0.5) == []  # long enough for the other to fall asleep
        tx.tpc_begin(tx.xid(1, "blocking", ""))
        kit.queue("emails").enqueue("blocking", tx=tx)
        tx.tpc_prepare()
        tx.tpc_commit()
        asyncio.run(awaited())
        assert waiting.result(PATIENCE) == ["blocking", "awaited"]


def database(url: str) -> str:
    """Return SQLAlchemy's URL for the database, without eventkit's options."""
    return re.sub(r"[?&]schema=\w+$", "", url).replace("postgresql", "postgresql+psycopg", 1)
