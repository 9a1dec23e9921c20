"""The commit of a collecting session: what it wakes and triggers, and enclosing transactions (C2, C3)."""

import time
from itertools import islice
from typing import Any

import pytest
from sqlalchemy import event, exc, select

import eventkit
from eventkit import EventKit

from .clauses import proves
from .collecting import collecting, events, kit_of, topic
from .flavours import Blocking, unwrapped
from .orders import Order, opened, place, placed
from .processes import PATIENCE, background
from .writes import sent


@proves("C2", "W2")
def test_a_commit_wakes_and_nothing_before_it(kit: EventKit, engine: Any) -> None:
    """It wakes all waiters for any of it, in this process and in others."""
    listening = kit.channel("c").listen()
    waiting = [
        background(lambda: next(kit.stream("t").subscribe()).payload),
        background(lambda: next(kit.stream("u").subscribe()).payload),
        background(lambda: next(kit.queue("q").work("w")).payload),
        background(lambda: kit.queue("r").claim("w", wait=PATIENCE)[0].payload),
        background(lambda: next(listening).payload),
    ]
    with collecting(engine, kit) as session:
        for payload in ("lost", "done"):
            mine = kit_of(session)
            for name in ("t", "u"):
                mine.stream(name).publish(payload)
            for name in ("q", "r"):
                mine.queue(name).enqueue(payload)
            mine.channel("c").notify(payload)
            session.add(Order(name=payload))
            session.flush()
            time.sleep(0.3)
            assert not any(future.done() for future in waiting)
            if payload == "lost":
                session.rollback()
        session.commit()
    assert [future.result(PATIENCE) for future in waiting] == ["done"] * 5


@proves("C2")
def test_what_the_commit_itself_brings_about_is_in_it(kit: EventKit, engine: Any) -> None:
    """A listener may publish during the commit, before or after the flush; one that publishes later gets an error."""
    with collecting(engine, kit) as session:
        inner = getattr(unwrapped(session), "sync_session", unwrapped(session))
        event.listen(inner, "before_commit", lambda session: topic(session).publish("before the commit"))
        event.listen(inner, "after_flush", lambda session, context: topic(session).publish("after the flush"))
        session.add(Order(name="ann"))
        topic(session).publish("first")
        session.commit()
        event.listen(inner, "after_commit", lambda session: topic(session).publish("too late"))
        with pytest.raises(exc.InvalidRequestError, match="committed"):
            session.commit()
        session.close()
    assert events(kit) == ["first", "before the commit", "after the flush", "before the commit"]


@proves("C2")
def test_a_commit_that_has_failed_can_be_asked_for_again(kit: EventKit, engine: Any) -> None:
    """Nothing is written twice or lost, whichever participant made it fail and whether it had written by then."""
    kit.queue("q").configure(max_size=1)
    kit.queue("q").enqueue("first")
    with collecting(engine, kit) as session:
        inner = getattr(unwrapped(session), "sync_session", unwrapped(session))
        failing = iter([True, False])

        def fail_once(session: Any) -> None:
            if next(failing, False):
                raise LookupError

        event.listen(inner, "before_commit", fail_once)
        session.add(Order(name="ann"))
        topic(session).publish(1)
        with pytest.raises(LookupError):
            session.commit()
        topic(session).publish(2)
        session.commit()
        topic(session).publish(3)
        kit_of(session).queue("q").enqueue("second")
        for _ in range(2):
            with pytest.raises(eventkit.QueueFull):
                session.commit()
        kit.queue("q").receive(tx=session)
        session.commit()
    assert (placed(engine), events(kit)) == (["ann"], [1, 2, 3])
    assert [info.payload for info in kit.queue("q").tasks()] == ["second"]


@proves("C2", "W2")
@pytest.mark.parametrize("ending", ["prepared and committed", "committed", "prepared and rolled back"])
def test_a_transaction_in_two_phases_writes_before_the_first(kit: EventKit, engine: Any, ending: str) -> None:
    """Databases and drivers without two-phase commit skip the test."""
    try:
        with opened(engine, twophase=True) as session:
            session.execute(select(1))
            _prepare(session)
            session.rollback()
    except (NotImplementedError, exc.DBAPIError) as error:
        pytest.skip(f"no two-phase commit with this engine: {type(error).__name__}: {error}")
    with collecting(engine, kit, twophase=True) as session:
        session.add(Order(name="ann"))
        topic(session).publish("ann")
        kit_of(session).queue("q").enqueue("ann")
        kit_of(session).channel("c").notify("ann")
        if ending.startswith("prepared"):
            _prepare(session)
        (session.rollback if ending.endswith("back") else session.commit)()
    done = ["ann"] * (not ending.endswith("back"))
    assert (placed(engine), events(kit), kit.queue("q").size(), sent(kit)) == (done, done, len(done), done)


def _prepare(session: Any) -> None:
    if isinstance(session, Blocking):
        session.run_sync(lambda session: session.prepare())
    else:
        session.prepare()


@proves("C2")
def test_a_transaction_around_the_session_decides(kit: EventKit, engine: Any) -> None:
    """Its rollback undoes what the session committed, and what the session did not commit is never written."""
    for end in ("rollback", "commit"):
        with opened(engine, "Connection") as connection:
            place(connection, end)
            with collecting(
                engine, kit, bind=unwrapped(connection), join_transaction_mode="create_savepoint"
            ) as session:
                topic(session).publish(end)
                session.commit()
            assert events(kit) == []
            getattr(connection, end)()
    with opened(engine, "Connection") as connection:
        place(connection, "flushed")
        with collecting(engine, kit, bind=unwrapped(connection), join_transaction_mode="control_fully") as session:
            topic(session).publish("never committed by its session")
            session.flush()
            connection.commit()
    assert (events(kit), placed(engine)) == (["commit"], ["commit", "flushed"])


@proves("C2", "S2")
def test_many_topics_in_racing_sessions_skip_nothing(kit: EventKit, engine: Any) -> None:
    """Each session publishes to more topics than a transaction has marks; readers of each get all events in order."""
    sessions, topics, publishers = 12, 40, 3

    def publish(publisher: int) -> None:
        for number in range(sessions):
            with collecting(engine, kit) as session:
                mine = kit_of(session)
                for name in range(topics) if number % 3 == 0 else (0, 1):
                    mine.stream(f"race {name}").publish([publisher, number], key=str(publisher))
                session.commit()

    def follow(name: int) -> list[Any]:
        expected = publishers * (sessions if name < 2 else sessions // 3)
        with kit.stream(f"race {name}").subscribe() as following:
            return [(event.offset, event.payload) for event in islice(following, expected)]

    following = [background(follow, name) for name in (0, 1, topics - 1)]
    publishing = [background(publish, publisher) for publisher in range(publishers)]
    for future in publishing:
        future.result(PATIENCE)
    for name, future in zip((0, 1, topics - 1), following, strict=True):
        seen = future.result(PATIENCE)
        assert seen == [(event.offset, event.payload) for event in kit.stream(f"race {name}").read()]
        for publisher in range(publishers):
            numbers = [number for _, (who, number) in seen if who == publisher]
            assert numbers == list(range(0, sessions, 1 if name < 2 else 3))
