"""How a session's events are written to SQLite: the number of statements, and the accepted sessions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

import eventkit
from eventkit import EventKit
from eventkit.conformance import proves
from eventkit.conformance.emitting import Account
from eventkit.conformance.orders import Order, create_orders, placed
from eventkit.sqlalchemy import bind, collect


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[EventKit]:
    """Return a kit on a fresh file."""
    with eventkit.connect(f"sqlite:///{tmp_path}/shop.db") as kit:
        yield kit


@pytest.fixture
def engine(kit: EventKit, tmp_path: Path) -> Iterator[Engine]:
    """Return an engine on it."""
    engine = create_engine(f"sqlite+apsw:///{tmp_path}/shop.db")
    create_orders(engine)
    yield engine
    engine.dispose()


def _executed(engine: Engine) -> list[str]:
    """Return the list of writing statements, by their first words, that the only connection executes from now on."""
    executed: list[str] = []

    def note(statement: dict[str, Any]) -> None:
        words = statement["sql"].replace("(", " ").split()
        if words[0] in ("INSERT", "SAVEPOINT", "COMMIT"):
            executed.append(" ".join(words[:3]) if words[0] == "INSERT" else words[0])

    connection = engine.raw_connection()
    driver: Any = connection.driver_connection
    driver.trace_v2(apsw.SQLITE_TRACE_STMT, note)
    connection.close()
    return executed


@proves("C2")
def test_each_kind_takes_one_statement(kit: EventKit, engine: Engine) -> None:
    """This holds for any number of topics, queues and channels, all options, and flushes in between."""
    executed = _executed(engine)
    with Session(engine) as session:
        bind(session, kit)
        for number in range(30):
            name = str(number % 3)
            collect(session).stream(name).publish(number, key=name, dedup=str(number))
            collect(session).stream(name).publish_many([1, 2])
            collect(session).queue(name).enqueue(number, key=str(number), delay=number)
            collect(session).queue(name).enqueue_many([1, 2])
            collect(session).channel(name).notify(number)
        session.add(Order(name="ann"))
        session.flush()
        session.commit()
    assert executed == [
        "INSERT INTO suite_order",
        "INSERT INTO eventkit_event",
        "SAVEPOINT",
        "INSERT INTO eventkit_task",
        "INSERT INTO eventkit_notification",
        "COMMIT",
    ]
    assert len(kit.stream("0").read()) == 30
    assert kit.queue("0").size() == 30


@proves("C2", "C4")
@pytest.mark.parametrize("earlier", [0, 3])
def test_rows_that_emit_take_one_statement(kit: EventKit, engine: Engine, earlier: int) -> None:
    """They take one more if something was collected when the commit flushed the rest."""
    executed = _executed(engine)
    with Session(engine) as session:
        bind(session, kit)
        for number in range(earlier):
            session.add(Account(name=f"earlier {number}"))
            session.flush()
        session.add_all([Account(name=f"{number}") for number in range(50)])
        session.commit()
    assert executed.count("INSERT INTO eventkit_event") == (2 if earlier else 1)
    assert len(kit.stream("accounts").read()) == earlier + 50


@proves("C1")
def test_all_sessions_of_the_process_can_be_bound(kit: EventKit, engine: Engine) -> None:
    """Their common class binds them, unless one has its own binding; blocking and async ones are separate."""
    with eventkit.connect(str(engine.url).replace("sqlite+apsw", "sqlite")) as another:

        class Shop(Session):
            """The application's session class."""

        class AsyncShop(AsyncSession):
            """The application's async session class."""

        bind(Shop, kit)
        with pytest.raises(TypeError, match="async kit"):
            bind(AsyncShop, kit)
        assert AsyncShop.sync_session_class is Session

        class Subclass(Shop):
            """A subclass of it."""

        for sessions in (Shop, Subclass):
            with sessions(engine) as session:
                collect(session).stream("t").publish(1)
                session.commit()
        with Shop(engine) as session:
            bind(session, another)
            kit.close()
            collect(session).stream("t").publish(2)
            session.commit()
        assert [event.payload for event in another.stream("t").read()] == [1, 1, 2]
        with Session(engine) as session, pytest.raises(ValueError, match="not bound"):
            collect(session)


@proves("C1")
def test_a_binding_is_nothing_to_a_session_that_collects_nothing(kit: EventKit, engine: Engine) -> None:
    """A session on another database commits as usual too, without a further transaction."""

    class Shop(Session):
        """The application's session class."""

    bind(Shop, kit)
    with Shop(binds={Order: engine}) as session:
        session.add(Order(name="ann"))
        session.commit()
        assert not session.in_transaction()
        with pytest.raises(ValueError, match="bind_arguments"):
            collect(session)
        session.rollback()
    with Shop() as session:
        session.commit()
    assert placed(engine) == ["ann"]
