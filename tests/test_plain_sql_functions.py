"""The functions that plain SQL calls on Postgres: in any isolation, beside older transactions, with any settings."""

import time

import pytest
from plain_statements import ENQUEUE, NOTIFY, PUBLISH, said
from sql_sessions import Session

import eventkit
from eventkit.conformance import proves
from eventkit.conformance.processes import PATIENCE, background
from eventkit.conformance.urls import with_options


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
    """They do not depend on other settings of the caller either, and each has a comment."""
    with eventkit.connect(postgres_url) as kit, Session(postgres_url) as session:
        session.run("SET search_path = ''")
        session.run("SET DateStyle = 'SQL, DMY'")
        session.run("SET TimeZone = 'Asia/Kathmandu'")
        said(PUBLISH, session, dedup="a")
        said(ENQUEUE, session, key="a", delay=0.5)
        said(NOTIFY, session)
        assert [event.payload for event in kit.stream("t").read()] == [1]
        assert kit.queue("q").enqueue(2, key="a").created is False
        [undescribed] = session.run(
            "SELECT count(*) FROM pg_catalog.unnest('{publish,enqueue,notify}'::text[]) AS name "
            "WHERE obj_description(to_regproc('{schema}.eventkit_' || name), 'pg_proc') IS NULL"
        )
        assert undescribed == "0"


@proves("P1")
def test_the_functions_answer_with_numbers(postgres_url: str) -> None:
    """They return the offset or the id; for a known dedup id or key, that of the first."""
    with eventkit.connect(postgres_url) as kit, Session(postgres_url) as session:
        [offset] = said(PUBLISH, session, dedup="a")
        assert said(PUBLISH, session, dedup="a") == [offset] == [str(kit.stream("t").head())]
        [id] = said(ENQUEUE, session, key="a")
        assert said(ENQUEUE, session, key="a") == [id] == [str(kit.queue("q").tasks()[0].id)]
        with kit.channel("c").listen() as heard:
            assert said(NOTIFY, session) == [str(next(heard).id)]
