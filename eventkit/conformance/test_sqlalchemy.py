"""Transactions of SQLAlchemy as ``tx=``."""

import asyncio
import time
from itertools import product
from typing import Any

import pytest
from sqlalchemy import create_engine, exc, inspect, select
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session, sessionmaker

import eventkit
from eventkit import EventKit

from .clauses import proves
from .flavours import Blocking, unwrapped
from .orders import KINDS, Order, opened, place, placed
from .processes import PATIENCE, background
from .writes import WRITES, events, prepare, sent, visible

kinds = pytest.mark.parametrize("kind", KINDS)


@proves("G4")
@kinds
def test_every_call_is_part_of_what_sqlalchemy_has_begun(kit: EventKit, engine: Any, kind: str) -> None:
    """A rollback, or one to a savepoint inside a commit, undoes each call; others see it from the commit on."""
    for name, write in WRITES.items():
        task = prepare(kit, name)
        before = visible(kit)
        with opened(engine, kind) as tx:
            assert write(kit, task, tx) is not False, name
            tx.rollback()
            assert (visible(kit), sent(kit)) == (before, []), name
            savepoint = tx.begin_nested()
            assert write(kit, task, tx) is not False, name
            savepoint.rollback()
            place(tx, name)
            tx.commit()
            assert (visible(kit), sent(kit)) == (before, []), name
            assert write(kit, task, tx) is not False, name
            assert visible(kit) == before, name
            tx.commit()
        assert (visible(kit), sent(kit)) != (before, []), name
    assert placed(engine) == list(WRITES)


@proves("G4")
@kinds
def test_rows_and_events_share_a_fate(kit: EventKit, engine: Any, kind: str) -> None:
    """The application commits all or nothing, in any order and begun in any way, and others see none of it before."""
    done: list[str] = []
    ways = product((True, False), (True, False), ("rollback", "close", "commit"))
    for by_hand, order_first, ending in ways:
        name = f"{by_hand} {order_first} {ending}"
        with opened(engine, kind) as tx:
            if by_hand:
                tx.begin()
            if order_first:
                place(tx, name)
            kit.stream("t").publish(name, tx=tx)
            assert kit.queue("q").enqueue(name, key=name, tx=tx).created
            if not order_first:
                place(tx, name)
            assert (events(kit), kit.queue("q").size()) == (done, len(done)), name
            if ending != "close":
                getattr(tx, ending)()
        if ending == "commit":
            done.append(name)
        assert (placed(engine), events(kit), kit.queue("q").size()) == (done, done, len(done)), name


@proves("G4")
@kinds
def test_savepoints_of_sqlalchemy_are_honoured(kit: EventKit, engine: Any, kind: str) -> None:
    """In nested savepoints, the rolled-back part is gone, and the rest stays."""
    with opened(engine, kind) as tx:
        kit.stream("t").publish("before", tx=tx)
        outer = tx.begin_nested()
        place(tx, "outer")
        inner = tx.begin_nested()
        kit.stream("t").publish("inner", tx=tx)
        kit.queue("q").enqueue_many([1, 2], tx=tx)
        inner.commit()
        outer.rollback()
        kept = tx.begin_nested()
        place(tx, "kept")
        kit.stream("t").publish("kept", tx=tx)
        kept.commit()
        kit.stream("t").publish("after", tx=tx)
        tx.commit()
    assert (placed(engine), events(kit), kit.queue("q").size()) == (["kept"], ["before", "kept", "after"], 0)


@proves("G4", "W2")
@kinds
def test_a_session_wakes_others_with_its_commit(kit: EventKit, engine: Any, kind: str) -> None:
    """Nothing wakes them before it."""
    waiting = background(lambda: next(kit.stream("t").subscribe()).payload)
    with opened(engine, kind) as tx:
        kit.stream("t").publish("undone", tx=tx)
        tx.rollback()
        kit.stream("t").publish("done", tx=tx)
        time.sleep(0.3)
        assert not waiting.done()
        tx.commit()
        assert waiting.result(PATIENCE) == "done"


@proves("G4")
def test_a_flush_that_fails_takes_the_event_with_it(kit: EventKit, engine: Any) -> None:
    """The session refuses everything until it is rolled back, then both can be done again."""
    with opened(engine) as session:
        session.add(Order(name="ann"))
        session.commit()
        kit.stream("t").publish("first try", tx=session)
        session.add(Order(name="ann"))
        with pytest.raises(exc.IntegrityError):
            session.flush()
        with pytest.raises(exc.PendingRollbackError):
            kit.stream("t").publish("too early", tx=session)
        session.rollback()
        session.add(Order(name="bob"))
        kit.stream("t").publish("second try", tx=session)
        session.commit()
    assert (placed(engine), events(kit)) == (["ann", "bob"], ["second try"])


@proves("G4")
def test_a_flush_that_fails_in_a_savepoint_takes_only_that(kit: EventKit, engine: Any) -> None:
    """The event before the savepoint is committed, the one in it is not."""
    with opened(engine) as session:
        session.add(Order(name="ann"))
        kit.stream("t").publish("before", tx=session)
        savepoint = session.begin_nested()
        kit.stream("t").publish("beside", tx=session)
        session.add(Order(name="ann"))
        with pytest.raises(exc.IntegrityError):
            session.flush()
        savepoint.rollback()
        kit.stream("t").publish("after", tx=session)
        session.commit()
    assert (placed(engine), events(kit)) == (["ann"], ["before", "after"])


@proves("G4")
def test_publishing_leaves_the_objects_of_a_session_alone(kit: EventKit, engine: Any) -> None:
    """Publishing flushes and expires nothing and begins nothing after the commit, with either setting."""
    for expire_on_commit in (True, False):
        with opened(engine, expire_on_commit=expire_on_commit) as session:
            order = Order(name=f"order {expire_on_commit}")
            session.add(order)
            kit.stream("t").publish("unflushed", tx=session)
            assert inspect(order).pending
            session.flush()
            kit.stream("t").publish(order.id, tx=session)
            assert not inspect(order).expired
            session.commit()
            assert inspect(order).expired is expire_on_commit
            kit.stream("t").head()
            assert not session.in_transaction()
            ids = session.execute(select(Order.id).order_by(Order.id)).scalars().all()
            assert events(kit)[-2:] == ["unflushed", ids[-1]]


@proves("G4")
@pytest.mark.parametrize("ending", ["prepared and committed", "committed", "prepared and rolled back", "rolled back"])
def test_a_transaction_in_two_phases(kit: EventKit, engine: Any, ending: str) -> None:
    """Where SQLAlchemy offers two phases, both contain events and tasks, although another call waits."""
    _skip_without_two_phases(engine)
    waiting = background(lambda: kit.queue("q").claim("w", wait=PATIENCE))
    assert kit.queue("nothing").claim("w", wait=0.5) == []  # long enough for the other call to fall asleep
    with opened(engine, twophase=True) as session:
        savepoint = session.begin_nested()
        kit.queue("q").enqueue("never", tx=session)
        savepoint.rollback()
        session.add(Order(name="ann"))
        kit.queue("q").enqueue("ann", key="k", tx=session)
        kit.stream("t").publish_many(["ann", "bob"], tx=session)
        kit.channel("c").notify("ann", tx=session)
        if ending.startswith("prepared"):
            _prepare(session)
            assert events(kit) == []
        (session.commit if ending.endswith("committed") else session.rollback)()
    done = ending.endswith("committed")
    if not done:
        kit.queue("q").enqueue("other")
    [task] = waiting.result(PATIENCE)
    assert task.payload == ("ann" if done else "other")
    assert (placed(engine), events(kit)) == ((["ann"], ["ann", "bob"]) if done else ([], []))


def _prepare(session: Any) -> None:
    if isinstance(session, Blocking):
        session.run_sync(lambda session: session.prepare())
    else:
        session.prepare()


def _skip_without_two_phases(engine: Any) -> None:
    """Skip the test if SQLAlchemy offers no two-phase commit with this engine."""
    try:
        with opened(engine, twophase=True) as session:
            place(session, "alone")
            _prepare(session)
            session.rollback()
    except (NotImplementedError, exc.DBAPIError) as error:
        pytest.skip(f"no two-phase commit with this engine: {type(error).__name__}: {error}")


@proves("G4")
def test_a_connection_goes_back_to_the_pool_clean(kit: EventKit, engine: Any) -> None:
    """Uncommitted work is rolled back, and the next user is served, also after the pool was emptied."""
    for kind in KINDS:
        with opened(engine, kind) as tx:
            kit.stream("t").publish("left", tx=tx)
        with opened(engine, kind) as tx:
            kit.stream("t").publish(kind, tx=tx)
            tx.commit()
        engine.dispose()
    with opened(engine, "Connection") as connection:
        kit.stream("t").publish("left", tx=connection)
        connection.invalidate()
        connection.rollback()
        kit.stream("t").publish("reconnected", tx=connection)
        connection.commit()
    assert events(kit) == [*KINDS, "reconnected"]


@proves("G4")
def test_a_failing_call_leaves_a_session_as_it_was(kit: EventKit, engine: Any) -> None:
    """Earlier writes stay, the call leaves none, and the session can go on."""
    queue = kit.queue("q")
    queue.configure(max_size=2)
    with opened(engine) as session:
        session.add(Order(name="ann"))
        session.flush()
        queue.enqueue(1, tx=session)
        with pytest.raises(eventkit.QueueFull):
            queue.enqueue_many([2, 3], tx=session)
        with pytest.raises(ValueError, match="nan"):
            queue.enqueue(float("nan"), tx=session)
        queue.enqueue(4, tx=session)
        session.commit()
    assert (placed(engine), [info.payload for info in queue.tasks()]) == (["ann"], [1, 4])


@proves("G4", "G12")
def test_threads_bring_their_own_sessions(kit: EventKit, engine: Any) -> None:
    """Each session's transaction is separate, with calls without ``tx=`` in between."""

    def run(thread: int) -> None:
        for number in range(6):
            with opened(engine) as session:
                kit.stream("t").publish([thread, number], tx=session)
                session.add(Order(name=f"{thread} {number}"))
                session.flush()
                if number % 2:
                    session.commit()
            kit.queue("q").enqueue(number)

    for future in [background(run, thread) for thread in range(4)]:
        future.result(PATIENCE)
    kept = [[thread, number] for thread in range(4) for number in (1, 3, 5)]
    assert sorted(events(kit)) == kept
    assert (sorted(placed(engine)), kit.queue("q").size()) == ([f"{t} {n}" for t, n in kept], 24)


@proves("G4", "G5")
def test_a_session_of_several_engines_says_which(kit: EventKit, engine: Any, flavour: str) -> None:
    """If the session does not lead to the kit's database, the error names the argument, which is then accepted."""
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
    """Return an engine on a database other than the kit's."""
    if flavour == "sync":
        return create_engine("sqlite://")
    pytest.importorskip("aiosqlite", reason="the other database of an async engine is aiosqlite's")
    return Blocking(create_async_engine("sqlite+aiosqlite://"), engine._loop)


@proves("G4")
def test_an_engine_that_commits_by_itself_is_refused(kit: EventKit, engine: Any) -> None:
    """It has no transaction for the call to join."""
    connection = engine.connect()
    connection.execution_options(isolation_level="AUTOCOMMIT")
    with pytest.raises(ValueError, match="tx= is a connection without an open transaction"):
        kit.stream("t").publish(1, tx=connection)
    connection.close()
    assert events(kit) == []


@proves("G4", "G13")
def test_what_only_leads_to_a_transaction_is_refused(kit: EventKit, engine: Any) -> None:
    """An engine or a session factory could begin a transaction, but would not commit it."""
    for nothing in (engine, sessionmaker(unwrapped(engine)), Session):
        with pytest.raises(TypeError, match=r"tx= is .*Session"):
            kit.stream("t").publish(1, tx=nothing)
    assert events(kit) == []


@proves("G4")
@pytest.mark.parametrize("kind", ["Session", "Connection"])
def test_what_run_sync_shows_of_an_async_engine_is_refused(url: str, engine: Any, kind: str) -> None:
    """It looks like a sync one, but its driver has to be awaited."""
    if not isinstance(engine, Blocking):
        pytest.skip("an engine that blocks has no run_sync()")
    with opened(engine, kind) as tx, eventkit.connect(url) as kit:
        with pytest.raises(TypeError, match=r"tx= is a transaction of an async engine.* outside of run_sync\(\)"):
            tx.run_sync(lambda inside: kit.stream("t").publish(1, tx=inside))
        assert events(kit) == []


@proves("G4")
@kinds
def test_each_flavour_takes_its_own_sessions(url: str, engine: Any, flavour: str, kind: str) -> None:
    """A blocking session would block the event loop; an async one could not be awaited."""

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
