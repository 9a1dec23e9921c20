"""A client in another process that has only SQL publishes, enqueues and notifies as the library does (P1)."""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sql_sessions import ENQUEUE, NOTIFY, PUBLISH, Session, said

import eventkit
from eventkit import EventKit
from eventkit.codec import Undecodable
from eventkit.conformance import proves
from eventkit.conformance.processes import PATIENCE, background
from eventkit.conformance.urls import with_options
from eventkit.testing import advance


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a fresh database without a fallback poll."""
    fresh = f"sqlite:///{tmp_path}/shop.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    return with_options(fresh, fallback_poll=3600)


@pytest.fixture
def kit(url: str) -> Iterator[EventKit]:
    """Return a kit on it."""
    with eventkit.connect(url) as kit:
        yield kit


@pytest.fixture
def session(kit: EventKit, url: str) -> Iterator[Session]:
    """Return a session of another process on it."""
    with Session(url) as session:
        yield session


def parts(value: Any) -> dict[str, Any]:
    """Return the fields of a record, without its number and with its moments as distances."""
    fields = {field: getattr(value, field) for field in value.__struct_fields__ if field not in ("id", "offset")}
    moments = [field for field, moment in fields.items() if field.endswith("_ms") and moment is not None]
    start = fields.get("enqueued_ms") or fields.get("created_ms") or 0
    return fields | {field: round((fields[field] - start) / 1000) for field in moments}


@proves("P1")
def test_defaults_are_those_of_the_library(kit: EventKit, session: Session) -> None:
    """An omitted column has the default of the Python call, and a given one the same value."""
    stream, queue = kit.stream("t"), kit.queue("q")
    said(PUBLISH, session, '{"a": [1, null]}')
    stream.publish({"a": [1, None]})
    said(PUBLISH, session, key="k", headers='{"trace": "1"}')
    stream.publish(1, key="k", headers={"trace": "1"})
    events = [parts(event) for event in stream.read()]
    assert events[0] == events[1]
    assert events[2] == events[3]

    said(ENQUEUE, session, '{"a": [1, null]}')
    queue.enqueue({"a": [1, None]})
    said(ENQUEUE, session, priority=5, max_attempts=7, headers='{"trace": "1"}')
    queue.enqueue(1, priority=5, max_attempts=7, headers={"trace": "1"})
    tasks = [parts(task) for task in queue.tasks()]
    assert tasks[0] == tasks[1]
    assert tasks[2] == tasks[3]

    with kit.channel("c").listen() as heard:
        said(NOTIFY, session, '{"a": [1, null]}')
        kit.channel("c").notify({"a": [1, None]})
        notifications = [parts(next(heard)) for _ in range(2)]
    assert notifications[0] == notifications[1]


LATER = {
    "sqlite": """
        INSERT INTO eventkit_task (queue, payload, state, run_at, expires_at, wake_at)
        SELECT 'q', '1', 'scheduled', now + 30000, now + 90000, now + 30000
        FROM (SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AS now)
        """,
    "postgresql": "SELECT {schema}.eventkit_enqueue('q', '1', delay => 30, expires => 90)",
}
ENDING = {
    "sqlite": """
        INSERT INTO eventkit_task (queue, payload, expires_at, wake_at)
        SELECT 'q', '2', now + 60000, now + 60000
        FROM (SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AS now)
        """,
    "postgresql": "SELECT {schema}.eventkit_enqueue('q', '2', expires_at => clock_timestamp() + interval '60 s')",
}


@proves("P1")
def test_a_task_can_be_for_later_and_expire(kit: EventKit, session: Session) -> None:
    """Delays and expiries equal those of the Python call, and pass."""
    queue = kit.queue("q")
    session.run(LATER[session.dialect])
    queue.enqueue(1, delay=30, expires=90)
    session.run(ENDING[session.dialect])
    queue.enqueue(2, expires=60)
    later, as_later, ending, as_ending = (parts(task) for task in queue.tasks())
    assert later == as_later
    assert ending == as_ending
    assert queue.next_due() is not None
    advance(kit, 31)
    assert [task.payload for task in queue.claim("w", 2)] == [2, 2]
    assert [task.payload for task in queue.receive(4)] == [1, 1]
    session.run(ENDING[session.dialect])
    advance(kit, 61)
    assert queue.claim("w") == []
    assert [task.reason for task in queue.dead()] == ["expired"]


OVERDUE = {
    "sqlite": "INSERT INTO eventkit_task (queue, payload, run_at) VALUES ('q', '1', 0)",
    "postgresql": "SELECT {schema}.eventkit_enqueue('q', '1', run_at => '1970-01-01 00:00:00.0001+00')",
}


_WRONG = {
    "sqlite": [
        "task (queue, payload, run_at) VALUES ('q', '1', '2026-01-01 00:00:00')",
        "task (queue, payload, priority) VALUES ('q', '1', 'high')",
        "task (queue, payload) VALUES ('q', x'31')",
        "task (queue, payload, run_at) VALUES ('q', '1', 1.5)",
        "task (queue, payload, wake_at) VALUES ('q', '1', 9223372036854775807)",
        "task (queue, payload, attempt) VALUES ('q', '1', 9223372036854775807)",
        "event (topic, payload, created_at) VALUES ('t', '1', '2026-01-01 00:00:00')",
        "event (topic, payload) VALUES ('t', x'31')",
        "notification (channel, payload, created_at) VALUES ('c', '1', 9223372036854775807)",
        "schedule VALUES ('s', '@every 1h', 'UTC', 'q', '1', NULL, 'high', NULL, NULL, 'all', NULL, NULL, 0, 0)",
    ],
    "postgresql": [
        "task (queue, payload, run_at) VALUES ('q', '1', '-infinity')",
        "task (queue, payload, wake_at) VALUES ('q', '1', 'infinity')",
        "task (queue, payload, enqueued_at) VALUES ('q', '1', '20000-01-01 00:00+00')",
        "task (queue, payload, attempt) VALUES ('q', '1', 2147483647)",
        "event (topic, payload, created_at) VALUES ('t', '1', 'infinity')",
        "notification (channel, payload, created_at) VALUES ('c', '1', '-infinity')",
    ],
}


@proves("P1")
def test_a_row_with_a_value_of_another_kind_is_refused(kit: EventKit, session: Session, url: str) -> None:
    """The INSERT fails, not the reader; INSERT OR IGNORE does not swallow a value of another type."""
    inserts = [f"INSERT INTO {_place(session)}eventkit_{row}" for row in _WRONG[session.dialect]]
    if session.dialect == "sqlite":
        inserts.append(f"INSERT OR IGNORE INTO eventkit_{_WRONG['sqlite'][0]}")
    for insert in inserts:
        with Session(url) as other, pytest.raises(AssertionError, match="the session ended"):
            other.run(insert)
    kit.queue("q").enqueue(2)
    kit.stream("t").publish(2)
    assert [task.payload for task in kit.queue("q").claim("w", 9)] == [2]
    assert [event.payload for event in kit.stream("t").read()] == [2]


_BROKEN = {
    "sqlite": [
        "(queue, payload) VALUES ('q', CAST(x'224dfc6c6c657222' AS TEXT))",
        "(queue, payload, headers) VALUES ('q', '1', CAST(x'7b2261223a2222fc7d' AS TEXT))",
        "(queue, payload, key) VALUES ('q', '1', CAST(x'4dfc6c6c6572' AS TEXT))",
        "(queue, payload) VALUES ('q', 'no JSON')",
    ],
    "postgresql": [
        "(queue, payload) VALUES ('q', '\"\\ud800\"')",
        "(queue, payload, headers) VALUES ('q', '1', '[1]')",
    ],
}


@proves("P1", "Q14")
@pytest.mark.parametrize("type", [Any, msgspec.Raw], ids=["decoded", "raw"])
def test_a_row_that_cannot_be_read_is_poison(kit: EventKit, session: Session, type: Any) -> None:
    """Text that is not UTF-8 or not JSON is a dead task that can be inspected; the batch around it is delivered."""
    plain, queue = kit.queue("q"), kit.queue("q", type=type)
    rows = _BROKEN[session.dialect]
    if type is msgspec.Raw:
        rows = [row for row in rows if "ud800" not in row and "no JSON" not in row]  # Raw skips decoding.
    plain.enqueue(2)
    for row in rows:
        session.run(f"INSERT INTO {_place(session)}eventkit_task {row}")
    plain.enqueue(3)
    assert [bytes(task.payload) if type is msgspec.Raw else task.payload for task in queue.claim("w", 9)] in (
        [2, 3],
        [b"2", b"3"],
    )
    assert [(info.reason, bool(info.error)) for info in plain.dead()] == [("poison", True)] * len(rows)
    assert plain.stats().running == 2
    assert len(plain.tasks()) == len(rows) + 2


@proves("G9")
def test_an_event_that_is_not_utf_8_is_undecodable(kit: EventKit, session: Session) -> None:
    """Subscribers and listeners get it as `Undecodable`, and continue after it."""
    if session.dialect != "sqlite":
        pytest.skip("a Postgres database holds nothing but text of its encoding")
    broken = "CAST(x'224dfc6c6c657222' AS TEXT)"
    with kit.channel("c").listen() as heard:
        session.run(f"INSERT INTO eventkit_event (topic, payload) VALUES ('t', {broken}), ('t', '2')")
        session.run(f"INSERT INTO eventkit_notification (channel, payload) VALUES ('c', {broken}), ('c', '2')")
        notified = [next(heard).payload for _ in range(2)]
    for first, second in (notified, [event.payload for event in kit.stream("t").read()]):
        assert isinstance(first, Undecodable)
        assert first.text == '"M\ufffdller"'
        assert second == 2


@proves("P1")
def test_what_is_long_due_is_next(kit: EventKit, session: Session) -> None:
    """A moment in the past precedes all later ones, even if the queue had no task that old."""
    queue = kit.queue("q")
    for _ in range(3):
        queue.enqueue(2)
        assert [task.payload for task in queue.receive()] == [2]
        time.sleep(0.4)
    queue.enqueue(3)
    session.run(OVERDUE[session.dialect])
    assert [task.payload for task in queue.receive(2)] == [1, 3]


@proves("P1", "W1")
def test_a_commit_wakes_at_once(kit: EventKit, session: Session) -> None:
    """Sleeping subscribers, workers and listeners wake by the commit and not before."""
    waiting = [
        background(lambda: next(iter(kit.stream("t").subscribe())).payload),
        background(lambda: next(iter(kit.queue("q").work("w"))).payload),
        background(lambda: next(kit.channel("c").listen()).payload),
    ]
    # The three are asleep, or will see the commit when they look.
    _settle()
    session.run("BEGIN")
    for statement in (PUBLISH, ENQUEUE, NOTIFY):
        said(statement, session, "5")
    _settle()
    assert not any(future.done() for future in waiting)
    session.run("COMMIT")
    assert [future.result(PATIENCE) for future in waiting] == [5, 5, 5]


def _settle() -> None:
    """Sleep, so that waiters fall asleep or wake."""
    time.sleep(0.3)


@proves("P1")
def test_unique_keys_are_unique(kit: EventKit, session: Session) -> None:
    """A key is taken for Python and SQL alike, also when the task is done; so is a dedup id."""
    queue, stream = kit.queue("q"), kit.stream("t")
    said(ENQUEUE, session, key="a")
    said(ENQUEUE, session, key="a")
    first = queue.tasks()[0].id
    assert queue.enqueue(2, key="a") == (first, False)
    queue.enqueue(3, key="b")
    said(ENQUEUE, session, key="b")
    assert [task.payload for task in queue.tasks()] == [1, 3]
    for task in queue.claim("w", 2):
        queue.ack(task)
    said(ENQUEUE, session, key="a")
    assert queue.size() == 0
    said(PUBLISH, session, dedup="a")
    said(PUBLISH, session, dedup="a")
    assert stream.publish(2, dedup="a") == stream.head()
    assert [event.payload for event in stream.read()] == [1]


@proves("P1")
def test_a_rollback_leaves_nothing(kit: EventKit, session: Session) -> None:
    """It leaves neither rows nor keys, whole or to a savepoint; writes before the savepoint stay."""
    with kit.channel("c").listen() as heard:
        session.run("BEGIN")
        said(PUBLISH, session, dedup="a")
        said(ENQUEUE, session, key="a")
        said(NOTIFY, session)
        session.run("ROLLBACK")
        session.run("BEGIN")
        session.run("SAVEPOINT s")
        said(ENQUEUE, session, 2, key="a")
        said(NOTIFY, session, 2)
        session.run("ROLLBACK TO SAVEPOINT s")
        said(PUBLISH, session, 3, dedup="a")
        said(NOTIFY, session, 3)
        session.run("COMMIT")
        assert next(heard).payload == 3
    assert [event.payload for event in kit.stream("t").read()] == [3]
    assert kit.queue("q").tasks() == []
    assert kit.queue("q").enqueue(4, key="a").created


@proves("P1")
def test_a_trigger_publishes_what_is_written(kit: EventKit, session: Session) -> None:
    """The rows of a business table become events of the same transaction, for every writer."""
    session.run("CREATE TABLE {place}shop_order (id integer PRIMARY KEY)".replace("{place}", _place(session)))
    if session.dialect == "sqlite":
        session.run(
            "CREATE TRIGGER placed AFTER INSERT ON shop_order BEGIN INSERT INTO eventkit_event (topic, payload, key) "
            "VALUES ('t', json_object('id', NEW.id), NEW.id); END"
        )
    else:
        session.run(
            "CREATE FUNCTION {schema}.placed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM "
            "{schema}.eventkit_publish('t', to_json(NEW), key => NEW.id::text); RETURN NULL; END $$"
        )
        session.run(
            "CREATE TRIGGER placed AFTER INSERT ON {schema}.shop_order FOR EACH ROW EXECUTE FUNCTION {schema}.placed()"
        )
    events = kit.stream("t").subscribe()
    waiting = background(lambda: [(event.payload, event.key) for event in islice(events, 2)])
    _settle()
    session.run(f"INSERT INTO {_place(session)}shop_order VALUES (44), (45)")
    assert waiting.result(PATIENCE) == [({"id": 44}, "44"), ({"id": 45}, "45")]


def _place(session: Session) -> str:
    return "" if session.dialect == "sqlite" else "{schema}."


@proves("P1", "S2")
def test_no_event_is_skipped(kit: EventKit, url: str) -> None:
    """A subscriber receives the commits of several writers in order, while as much is rolled back."""
    received: list[Any] = []
    subscription = kit.stream("t").subscribe()
    following = background(lambda: received.extend(_until_the_end(subscription)))
    with ThreadPoolExecutor(4) as pool:
        committed = [payload for some in pool.map(_publish_some, [url] * 4, range(4)) for payload in some]
    kit.stream("t").publish("the end")
    following.result(PATIENCE)
    offsets = [offset for offset, _ in received]
    assert offsets == sorted(set(offsets))
    assert sorted(payload for _, payload in received) == sorted(committed)


def _until_the_end(subscription: Any) -> Iterator[tuple[int, Any]]:
    for event in subscription:
        if event.payload == "the end":
            return
        yield event.offset, event.payload


def _publish_some(url: str, number: int) -> list[int]:
    """Publish in transactions of a process of its own; return what was committed."""
    chance, committed = random.Random(number), []
    with Session(url) as session:
        for start in range(number * 1000, number * 1000 + 150, 3):
            session.run("BEGIN IMMEDIATE" if session.dialect == "sqlite" else "BEGIN")
            for payload in range(start, start + 3):
                said(PUBLISH, session, payload)
            if chance.random() < 0.5:
                session.run("COMMIT")
                committed += range(start, start + 3)
            else:
                session.run("ROLLBACK")
    return committed


@proves("P1", "W2")
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_any_isolation_level_wakes(isolation: str, postgres_url: str) -> None:
    """A transaction wakes a sleeper that fell asleep after its snapshot, too."""
    url = with_options(postgres_url, fallback_poll=3600)
    with eventkit.connect(url) as kit, Session(url) as session:
        session.run(f"BEGIN ISOLATION LEVEL {isolation}")
        session.run("SELECT count(*) FROM {schema}.eventkit_task")
        waiting = background(lambda: next(iter(kit.queue("q").work("w"))).payload)
        time.sleep(0.3)  # Give the waiter time to fall asleep.
        said(ENQUEUE, session, "5")
        session.run("COMMIT")
        assert waiting.result(PATIENCE) == 5


@proves("P1", "S2")
@pytest.mark.parametrize("raw", [False, True], ids=["function", "INSERT"])
def test_a_reader_waits_for_an_older_transaction(postgres_url: str, raw: bool) -> None:
    """Events published beside an open transaction are read after it, in order; also if that one only INSERTs."""
    statement = "INSERT INTO {schema}.eventkit_event (topic, payload) VALUES ('t', '1')" if raw else None
    with eventkit.connect(postgres_url) as kit, Session(postgres_url) as session:
        stream = kit.stream("t")
        session.run("BEGIN")
        session.run(statement) if statement else said(PUBLISH, session, 1)
        stream.publish(2)
        assert stream.read() == []
        session.run("COMMIT")
        assert [event.payload for event in stream.read()] == [1, 2]


@proves("P1")
def test_the_functions_depend_on_no_search_path(postgres_url: str) -> None:
    """They do not depend on other settings of the caller either; each has a comment.

    They return the offset or the id; for a known dedup id or key, that of the first.
    """
    with eventkit.connect(postgres_url) as kit, Session(postgres_url) as session:
        session.run("SET search_path = ''")
        session.run("SET DateStyle = 'SQL, DMY'")
        session.run("SET TimeZone = 'Asia/Kathmandu'")
        [offset] = said(PUBLISH, session, dedup="a")
        assert said(PUBLISH, session, dedup="a") == [offset] == [str(kit.stream("t").head())]
        [id] = said(ENQUEUE, session, key="a", delay=0.5)
        assert said(ENQUEUE, session, key="a") == [id] == [str(kit.queue("q").tasks()[0].id)]
        with kit.channel("c").listen() as heard:
            assert said(NOTIFY, session) == [str(next(heard).id)]
        assert [event.payload for event in kit.stream("t").read()] == [1]
        assert kit.queue("q").enqueue(2, key="a").created is False
        [undescribed] = session.run(
            "SELECT count(*) FROM pg_catalog.unnest('{publish,enqueue,notify}'::text[]) AS name "
            "WHERE obj_description(to_regproc('{schema}.eventkit_' || name), 'pg_proc') IS NULL"
        )
        assert undescribed == "0"
