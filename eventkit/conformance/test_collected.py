"""Events and tasks that a session collects, and the kit that writes them."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import eventkit
from eventkit import EventKit, NewEvent, NewTask
from eventkit.sqlalchemy import bind, collect

from .clauses import proves
from .collecting import collecting, events, kit_of, topic
from .flavours import Blocking, unwrapped
from .orders import Order, opened, placed
from .writes import sent


@proves("C1", "C2")
def test_the_commit_writes_what_was_collected(kit: EventKit, engine: Any) -> None:
    """The commit writes all of it with all options, and no other transaction sees any of it earlier."""
    with collecting(engine, kit) as session:
        session.add(Order(name="ann"))
        mine = kit_of(session)
        assert mine.stream("t").publish(1, key="k", headers={"tenant": "acme"}, dedup="d") is None
        assert mine.stream("t").publish_many([2, NewEvent(3, "l")]) is None
        assert mine.queue("q").enqueue({"to": "ann"}, priority=3, max_attempts=7, key="k", headers={"a": "b"}) is None
        assert mine.queue("q").enqueue("later", delay=1000, expires=2000) is None
        assert mine.queue("r").enqueue_many([1, NewTask(2, priority=1)]) is None
        assert mine.channel("c").notify("hello", headers={"x": "y"}) is None
        session.flush()
        assert (events(kit), kit.queue("q").size(), kit.queue("r").size()) == ([], 0, 0)
        session.commit()
    assert placed(engine) == ["ann"]
    published = [(event.payload, event.key, event.headers) for event in kit.stream("t").read()]
    assert published == [(1, "k", {"tenant": "acme"}), (2, None, {}), (3, "l", {})]
    first, later = kit.queue("q").tasks()
    assert (first.payload, first.priority, first.max_attempts) == ({"to": "ann"}, 3, 7)
    assert (first.key, first.headers, first.state) == ("k", {"a": "b"}, "ready")
    assert (later.payload, later.state, later.run_ms - later.enqueued_ms) == ("later", "scheduled", 1_000_000)
    assert (later.expires_ms or 0) - later.enqueued_ms == 2_000_000
    assert [task.payload for task in kit.queue("r").claim("w", 2)] == [2, 1]
    with kit.channel("c").listen(start="earliest") as heard:
        notification = next(heard)
    assert (notification.payload, notification.headers) == ("hello", {"x": "y"})


@proves("C2")
def test_a_session_with_nothing_but_events_commits_them(kit: EventKit, engine: Any) -> None:
    """It commits them whether its transaction was begun by hand or not, and again in the next transaction."""
    with collecting(engine, kit) as session:
        topic(session).publish(1)
        session.commit()
        session.begin()
        topic(session).publish(2)
        session.commit()
        kit_of(session).queue("q").enqueue(1)
        session.commit()
        kit_of(session).channel("c").notify(1)
        session.commit()
        session.commit()
        stream = topic(session)
        for number in (3, 4):
            stream.publish(number)
            session.commit()
    assert (events(kit), kit.queue("q").size(), sent(kit)) == ([1, 2, 3, 4], 1, [1])


@proves("C2")
def test_they_are_in_the_order_of_the_calls(kit: EventKit, engine: Any) -> None:
    """The order holds across topics, for every way to publish and with flushes in between."""
    with collecting(engine, kit) as session:
        for number in range(0, 60, 6):
            topic(session, "a").publish(number)
            topic(session, "b").publish(number + 1, key="k")
            topic(session, "a").publish_many([number + 2, NewEvent(number + 3, headers={"x": "y"})])
            session.add(Order(name=str(number)))
            session.flush()
            topic(session, "b").publish(number + 4, dedup=str(number))
            topic(session, "a").publish_many([number + 5])
            kit_of(session).queue("q").enqueue(number, delay=0)
            kit_of(session).queue("q").enqueue(number + 1)
        session.commit()
    both = kit.stream("a").read() + kit.stream("b").read()
    assert [event.payload for event in sorted(both, key=lambda event: event.offset)] == list(range(60))
    assert [info.payload for info in kit.queue("q").tasks()] == [n + i for n in range(0, 60, 6) for i in (0, 1)]


@proves("C2")
def test_an_end_without_a_commit_forgets_it(kit: EventKit, engine: Any) -> None:
    """A rollback, a close or an exception after the flush discards it, and the session can be used again."""
    with collecting(engine, kit) as session:
        for number, end in enumerate((session.rollback, session.close)):
            topic(session).publish("lost")
            session.add(Order(name="lost"))
            session.flush()
            topic(session).publish("lost too")
            kit_of(session).queue("q").enqueue("lost")
            end()
            topic(session).publish(number)
            session.commit()
        topic(session).publish("lost without having touched the database")
        session.close()
        session.add(Order(name="ann"))
        session.commit()
    with pytest.raises(LookupError), collecting(engine, kit) as session:  # noqa: PT012
        topic(session).publish("lost")
        session.add(Order(name="bob"))
        session.flush()
        raise LookupError
    assert (events(kit), kit.queue("q").size(), placed(engine)) == ([0, 1], 0, ["ann"])


@proves("C2")
def test_a_flush_that_fails_takes_it_along(kit: EventKit, engine: Any) -> None:
    """Within a savepoint, what was collected before the savepoint remains."""
    with collecting(engine, kit) as session:
        session.add(Order(name="ann"))
        topic(session).publish("ann")
        session.commit()
        topic(session).publish("lost")
        session.add(Order(name="ann"))
        with pytest.raises(exc.IntegrityError):
            session.commit()
        session.rollback()
        topic(session).publish("before")
        savepoint = session.begin_nested()
        topic(session).publish("lost")
        session.add(Order(name="ann"))
        with pytest.raises(exc.IntegrityError):
            session.flush()
        savepoint.rollback()
        topic(session).publish("after")
        session.commit()
    assert (events(kit), placed(engine)) == (["ann", "before", "after"], ["ann"])


@proves("C2")
def test_a_savepoint_that_is_rolled_back_forgets_its_own(kit: EventKit, engine: Any) -> None:
    """Only its own is discarded; a released savepoint keeps it unless an enclosing savepoint is rolled back."""
    with collecting(engine, kit) as session:
        outer = session.begin_nested()
        inner = session.begin_nested()
        topic(session).publish("lost 0")
        inner.commit()
        outer.rollback()
        topic(session).publish(1)
        first = session.begin_nested()
        topic(session).publish("lost 1")
        first.rollback()
        topic(session).publish(2)
        outer = session.begin_nested()
        topic(session).publish(3)
        inner = session.begin_nested()
        topic(session).publish("lost 2")
        inner.rollback()
        topic(session).publish(4)
        outer.commit()
        outer = session.begin_nested()
        inner = session.begin_nested()
        topic(session).publish("lost 3")
        inner.commit()
        topic(session).publish("lost 4")
        outer.rollback()
        outer = session.begin_nested()
        topic(session).publish("lost 5")
        session.begin_nested()
        topic(session).publish("lost 6")
        outer.rollback()
        assert events(kit) == []
        topic(session).publish(5)
        session.commit()
    assert events(kit) == [1, 2, 3, 4, 5]


@proves("C2")
def test_savepoints_that_are_left_open_are_committed(kit: EventKit, engine: Any) -> None:
    """Every way to commit the enclosing transaction commits them."""
    for number, commit in enumerate(("session", "transaction", "savepoint")):
        with collecting(engine, kit) as session:
            transaction = session.begin()
            topic(session).publish([number, 1])
            savepoint = session.begin_nested()
            topic(session).publish([number, 2])
            session.begin_nested()
            session.add(Order(name=str(number)))
            topic(session).publish([number, 3])
            if commit == "transaction":
                transaction.commit()
            else:
                if commit == "savepoint":
                    savepoint.commit()
                    topic(session).publish([number, 4])
                session.commit()
    assert events(kit) == [[0, 1], [0, 2], [0, 3], [1, 1], [1, 2], [1, 3], [2, 1], [2, 2], [2, 3], [2, 4]]
    assert placed(engine) == ["0", "1", "2"]


@proves("C3")
def test_a_mistake_is_raised_where_it_is_made(kit: EventKit, engine: Any) -> None:
    """The call with the mistake raises and collects nothing; the session can go on."""
    with collecting(engine, kit) as session:
        mine = kit_of(session)
        mine.stream("t").publish(1)
        mistakes: dict[str, Callable[[], object]] = {
            "nan": lambda: mine.stream("t").publish(float("nan")),
            "datetime|set": lambda: mine.queue("q").enqueue({1, 2}),
            "bytes as JSON": lambda: mine.channel("c").notify("x" * 600_000),
            "1 to 255": lambda: mine.stream(""),
            "1 to 1000": lambda: mine.stream("t").publish(1, key=""),
            "delay": lambda: mine.queue("q").enqueue(1, delay="soon"),
            "str → str": lambda: mine.stream("t").publish(1, headers={"a": 1}),
            "not JSON": lambda: mine.stream("t").publish_many([1, float("inf")]),
            "a int": lambda: mine.queue("q", type=int).enqueue("one"),
        }
        for number, mistake in enumerate(mistakes.values()):
            with pytest.raises((ValueError, TypeError)):
                mistake()
            mine.stream("t").publish(number)
        session.commit()
    assert events(kit) == [1, *range(len(mistakes))]
    assert kit.queue("q").size() == 0


@proves("C3")
def test_a_queue_without_room_fails_the_commit(kit: EventKit, engine: Any) -> None:
    """Nothing is committed, and the bounds of the other queues in the transaction hold too."""
    kit.queue("small").configure(max_size=2)
    with collecting(engine, kit) as session:
        for count in (3, 2, 1):
            mine = kit_of(session)
            session.add(Order(name=str(count)))
            mine.stream("t").publish(count)
            mine.queue("large").enqueue(count)
            for _ in range(count):
                mine.queue("small").enqueue(count)
            mine.channel("c").notify(count)
            if count == 2:
                session.commit()
                continue
            with pytest.raises(eventkit.QueueFull, match="small"):
                session.commit()
            session.rollback()
    assert (placed(engine), events(kit), sent(kit)) == (["2"], [2], [2])
    assert ([info.payload for info in kit.queue("large").tasks()], kit.queue("small").size()) == ([2], 2)


@proves("C2")
def test_what_is_there_already_is_not_written_again(kit: EventKit, engine: Any) -> None:
    """A repeated dedup id of a topic or key of a queue is skipped, whether the session or an earlier commit has it."""
    kit.stream("t").publish("first", dedup="d")
    kit.queue("q").enqueue("first", key="k")
    with collecting(engine, kit) as session:
        mine = kit_of(session)
        for name in ("t", "u"):
            mine.stream(name).publish("d", dedup="d")
            mine.stream(name).publish("e", dedup="e")
            mine.stream(name).publish("again", dedup="e")
        for name in ("q", "r"):
            mine.queue(name).enqueue("k", key="k")
            mine.queue(name).enqueue("l", key="l")
            mine.queue(name).enqueue("again", key="l")
        session.commit()
        mine.queue("q").enqueue("again", key="k")
        session.commit()
    assert (events(kit, "t"), events(kit, "u")) == (["first", "e"], ["d", "e"])
    assert [info.payload for name in ("q", "r") for info in kit.queue(name).tasks()] == ["first", "l", "k", "l"]


@proves("C1")
def test_one_binding_serves_all_sessions_of_a_factory(kit: EventKit, engine: Any, flavour: str) -> None:
    """It serves the sessions of a sessionmaker, a class or a scoped session; the nearest and latest binding counts."""
    mine, bound = unwrapped(kit), unwrapped(engine)
    makers: list[Any]
    if flavour == "sync":

        class Own(Session):
            """A session class of the application."""

        makers = [
            sessionmaker(bound),
            scoped_session(sessionmaker(bound)),
            scoped_session(sessionmaker(bound, class_=Own)),
        ]
        targets: list[Any] = [makers[0], makers[1], Own]
    else:

        class OwnAsync(AsyncSession):
            """An async session class of the application."""

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
    """A factory bound to a kit that has been closed can be bound again."""
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
    """The error gives the reason, before anything is collected."""
    nothing: Any
    for nothing in (object(), engine, "Session", 5):
        with pytest.raises(TypeError, match=r"bind\(\) takes a sessionmaker"):
            bind(nothing, unwrapped(kit))
        with pytest.raises(TypeError, match=r"collect\(\) takes a Session"):
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
def test_a_session_of_several_engines_names_one_of_them(kit: EventKit, engine: Any) -> None:
    """The binding names the engine, and the error says so if it does not."""
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
