"""What SQLAlchemy has that is no transaction of the kit's database, and is refused as ``tx=`` (G4, G5, G13)."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session, sessionmaker

import eventkit
from eventkit import EventKit

from .clauses import proves
from .flavours import Blocking, unwrapped
from .orders import KINDS, Order, opened, placed
from .writes import events

kinds = pytest.mark.parametrize("kind", KINDS)


@proves("G4", "G5")
def test_a_session_of_several_engines_says_which(kit: EventKit, engine: Any, flavour: str) -> None:
    """Where it does not lead to the kit's database by itself, the error names what to pass, and that is taken."""
    elsewhere = _in_memory(engine, flavour)
    bound = {"no engine but for models": None, "another engine by itself": unwrapped(elsewhere)}
    for number, bind in enumerate(bound.values()):
        with opened(engine, bind=bind, binds={Order: unwrapped(engine)}) as session:
            with pytest.raises((ValueError, eventkit.ForeignTransaction), match=r"tx=session\.connection\(bind_argum"):
                kit.stream("t").publish("lost", tx=session)
            session.add(Order(name=f"order {number}"))
            tx = session.connection(bind_arguments={"mapper": Order})
            kit.stream("t").publish(number, tx=tx)
            session.rollback()
            session.add(Order(name=f"order {number}"))
            tx = session.connection(bind_arguments={"mapper": Order})
            kit.stream("t").publish(number, tx=tx)
            assert number not in events(kit)
            session.commit()
    with opened(engine, binds={Order: unwrapped(elsewhere)}) as session:
        kit.stream("t").publish("by itself", tx=session)
        session.commit()
    assert (placed(engine), events(kit)) == (["order 0", "order 1"], [0, 1, "by itself"])
    elsewhere.dispose()


@proves("G5")
@kinds
def test_another_database_is_refused(kit: EventKit, engine: Any, kind: str, flavour: str) -> None:
    """Nothing is written to either."""
    elsewhere = _in_memory(engine, flavour)
    with opened(elsewhere, kind) as tx, pytest.raises(eventkit.ForeignTransaction, match="tx= "):
        kit.stream("t").publish(1, tx=tx)
    elsewhere.dispose()
    assert events(kit) == []


def _in_memory(engine: Any, flavour: str) -> Any:
    """An engine that leads nowhere near a kit's database."""
    if flavour == "sync":
        return create_engine("sqlite://")
    pytest.importorskip("aiosqlite", reason="the other database of an async engine is aiosqlite's")
    return Blocking(create_async_engine("sqlite+aiosqlite://"), engine._loop)


@proves("G4")
def test_an_engine_that_commits_by_itself_is_refused(kit: EventKit, engine: Any) -> None:
    """There is no transaction to be part of."""
    connection = engine.connect()
    connection.execution_options(isolation_level="AUTOCOMMIT")
    with pytest.raises(ValueError, match="tx= is a connection without an open transaction"):
        kit.stream("t").publish(1, tx=connection)
    connection.close()
    assert events(kit) == []


@proves("G4", "G13")
def test_what_only_leads_to_a_transaction_is_refused(kit: EventKit, engine: Any) -> None:
    """An engine or a factory of sessions could begin one, but nobody would commit it."""
    for nothing in (engine, sessionmaker(unwrapped(engine)), Session):
        with pytest.raises(TypeError, match=r"tx= is .*Session"):
            kit.stream("t").publish(1, tx=nothing)
    assert events(kit) == []


@proves("G4")
@pytest.mark.parametrize("kind", ["Session", "Connection"])
def test_what_run_sync_shows_of_an_async_engine_is_refused(url: str, engine: Any, kind: str) -> None:
    """It looks like a sync one, but the driver beneath it has to be awaited."""
    if not isinstance(engine, Blocking):
        pytest.skip("an engine that blocks has no run_sync()")
    with opened(engine, kind) as tx, eventkit.connect(url) as kit:
        with pytest.raises(TypeError, match=r"tx= is a transaction of an async engine.* outside of run_sync\(\)"):
            tx.run_sync(lambda inside: kit.stream("t").publish(1, tx=inside))
        assert events(kit) == []


@proves("G4")
@kinds
def test_each_flavour_takes_its_own_sessions(url: str, engine: Any, flavour: str, kind: str) -> None:
    """A blocking one would hold up the event loop; an async one could not be awaited."""

    async def refuse() -> None:
        async with eventkit.connect_async(url) as kit:
            with pytest.raises(TypeError, match="tx= is a SQLAlchemy AsyncSession"):
                await kit.stream("t").publish(1, tx=tx)

    with opened(engine, kind) as tx, eventkit.connect(url) as kit:
        if flavour == "sync":
            asyncio.run(refuse())
        else:
            with pytest.raises(TypeError, match="tx= is a SQLAlchemy Session"):
                kit.stream("t").publish(1, tx=unwrapped(tx))
        assert events(kit) == []
