"""Which kit the sessions write to that collect: `eventkit.sqlalchemy.bind` (C1)."""

from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import eventkit
from eventkit import EventKit
from eventkit.sqlalchemy import bind, collect

from .clauses import proves
from .collecting import events, kit_of, topic
from .flavours import Blocking, unwrapped
from .orders import Order, opened, placed


@proves("C1")
def test_one_binding_serves_all_sessions_of_a_factory(kit: EventKit, engine: Any, flavour: str) -> None:
    """Of a sessionmaker, a class or a scoped session, and the nearest and latest one counts."""
    mine, bound = unwrapped(kit), unwrapped(engine)
    makers: list[Any]
    if flavour == "sync":

        class Own(Session):
            """The application's own class."""

        makers = [
            sessionmaker(bound),
            scoped_session(sessionmaker(bound)),
            scoped_session(sessionmaker(bound, class_=Own)),
        ]
        targets: list[Any] = [makers[0], makers[1], Own]
    else:

        class OwnAsync(AsyncSession):
            """The application's own class."""

        makers = [
            async_sessionmaker(bound),
            async_scoped_session(async_sessionmaker(bound), scopefunc=lambda: None),
            async_sessionmaker(bound, class_=OwnAsync),
            async_sessionmaker(bound, sync_session_class=type("Inner", (Session,), {})),
        ]
        targets = [makers[0], makers[1], OwnAsync, makers[3]]
    for number, (target, maker) in enumerate(zip(targets, makers, strict=True)):
        bind(target, mine)
        bind(target, mine)
        for _ in range(2):
            session = maker() if flavour == "sync" else Blocking(maker(), engine._loop)
            session.add(Order(name=f"{number} {_}"))
            topic(session).publish(number)
            session.commit()
            session.close()
    assert events(kit) == [number for number in range(len(makers)) for _ in range(2)]
    with opened(engine) as session, pytest.raises(ValueError, match=r"bind\(Session, kit\)"):
        topic(session).publish("nowhere")


@proves("C1")
def test_the_latest_binding_counts(kit: EventKit, connect: Any, engine: Any, flavour: str) -> None:
    """What was bound to a kit that has been closed since can be bound again."""
    make: Any = sessionmaker if flavour == "sync" else async_sessionmaker
    maker = make(unwrapped(engine))
    bind(maker, unwrapped(kit))
    kit.close()
    session: Any = maker() if flavour == "sync" else Blocking(maker(), engine._loop)
    topic(session).publish("lost")
    with pytest.raises(eventkit.Closed):
        session.commit()
    session.close()


@proves("C1")
def test_what_cannot_be_bound_is_refused(kit: EventKit, engine: Any, flavour: str) -> None:
    """With the reason, before anything is collected."""
    nothing: Any
    for nothing in (object(), engine, "Session", 5):
        with pytest.raises(TypeError, match="what is bound is a sessionmaker"):
            bind(nothing, unwrapped(kit))
        with pytest.raises(TypeError, match="what collects is a Session"):
            collect(nothing)
    with pytest.raises(TypeError, match=r"eventkit\.connect\(\)"):
        bind(sessionmaker(), "sqlite:///shop.db")  # type: ignore[arg-type]
    if flavour == "sync":
        with pytest.raises(TypeError, match="async kit"):
            bind(async_sessionmaker(), unwrapped(kit))
    else:
        maker = sessionmaker()
        bind(maker, unwrapped(kit))
        with pytest.raises(TypeError, match=r"connect_async\(\).*bind each to its own"):
            collect(maker())
    with opened(engine, autobegin=False) as session:
        bind(unwrapped(session), unwrapped(kit))
        with pytest.raises(ValueError, match=r"session\.begin\(\)"):
            topic(session).publish(1)
        session.begin()
        topic(session).publish(2)
        session.commit()
    assert events(kit) == [2]


@proves("C1")
def test_a_session_of_several_engines_is_told_which(kit: EventKit, engine: Any) -> None:
    """By the binding, and the error says so where it is not."""
    with opened(engine, bind=None, binds={Order: unwrapped(engine)}) as session:
        bind(unwrapped(session), unwrapped(kit))
        with pytest.raises(ValueError, match=r'bind_arguments=\{"mapper": Model\}'):
            topic(session).publish("nowhere")
        bind(unwrapped(session), unwrapped(kit), bind_arguments={"mapper": Order})
        for number in range(2):
            topic(session).publish(number)
            kit_of(session).queue("q").enqueue(number)
            session.add(Order(name=str(number)))
            session.commit()
    assert (events(kit), kit.queue("q").size(), placed(engine)) == ([0, 1], 2, ["0", "1"])
