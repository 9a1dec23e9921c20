"""Q18: claims look no further back than a mark, and no mark hides a task."""

import random
import time
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from psycopg import IsolationLevel

import eventkit
from eventkit import NewTask
from eventkit.conformance import proves
from eventkit.conformance.processes import background, spawn

ISOLATIONS = [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ]

HIDDEN = """
    SELECT t.state, t.wake_at - low.wake_at
    FROM
        eventkit_task AS t
        CROSS JOIN (SELECT min(wake_at) AS wake_at FROM eventkit_low_water WHERE queue = 'work') AS low
    WHERE
        t.queue = 'work' AND t.state IN ('scheduled', 'leased', 'ready') AND t.wake_at < low.wake_at - interval '0.5 s'
"""
"""Tasks that claims do not find, in one snapshot.  On a busy machine, a statement may store its mark late."""


def connected(url: str) -> Any:
    """Return a connection to the kit's schema."""
    [schema] = parse_qs(urlsplit(url).query)["schema"]
    return psycopg.connect(url.partition("?")[0], autocommit=True, options=f"-c search_path={schema}")


def change(url: str, seed: int, seconds: float) -> int:
    """Make every kind of change of a moment, in transactions of up to a second; return how many were committed."""
    chance = random.Random(seed)
    committed = 0
    with eventkit.connect(url) as kit, psycopg.connect(url.partition("?")[0]) as driver:
        queue = kit.queue("work")
        end = time.monotonic() + seconds
        held: list[Any] = []
        while time.monotonic() < end:
            driver.isolation_level = chance.choice(ISOLATIONS)
            with suppress(psycopg.errors.SerializationFailure), driver.transaction():
                for _ in range(chance.randrange(1, 4)):
                    moments: dict[str, Any] = {}
                    if chance.random() < 0.7:
                        moments["delay"] = chance.choice([-1, 0, 0.001, 0.01, 0.05])
                    if chance.random() < 0.7:
                        moments["expires"] = chance.choice([-1, 0.01, 0.1, 5])
                    queue.enqueue_many([NewTask(seed, **moments)] * 2, tx=driver)
                    queue.enqueue(seed, tx=driver, **moments)
                for task in held:
                    step = chance.choice(["ack", "retry", "snooze", "release", "extend"])
                    if step in ("retry", "snooze"):
                        getattr(queue, step)(task, delay=chance.choice([0, 0.001, 0.05]), tx=driver)
                    elif step == "extend":
                        queue.extend(task, 2, tx=driver)
                    else:
                        getattr(queue, step)(task, tx=driver)
                held = queue.claim("worker", 3, lease=2, tx=driver) if chance.random() < 0.5 else []
                time.sleep(chance.choice([0, 0, 0.001, 0.02, 0.9]))
                committed += 1
            held += queue.claim("worker", 3, lease=0.5)
            if chance.random() < 0.3:
                queue.sweep()
    return committed


@proves("Q18", "Q8")
@pytest.mark.parametrize("seconds", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_no_mark_hides_a_moment(postgres_url: str, seconds: float) -> None:
    """No snapshot hides one, for tasks enqueued, released and claimed at once, in transactions short and long."""
    hidden: set[Any] = set()
    looks = 0
    with eventkit.connect(postgres_url) as kit, connected(postgres_url) as driver:
        kit.queue("work").enqueue("first")
        processes = [spawn(change, postgres_url, seed, seconds) for seed in range(4)]
        finished = background(lambda: [process.result() for process in processes])
        while not finished.done():
            hidden.update(driver.execute(HIDDEN).fetchall())
            looks += 1
    assert hidden == set()
    assert min(finished.result()) > 5
    assert looks > 50


def raised(queue: Any) -> None:
    """Make claims raise the mark to this moment, and skip the full look for the next second."""
    for _ in range(3):
        time.sleep(0.11)
        queue.claim("raising", 1)


@proves("Q8", "Q18")
@pytest.mark.parametrize("way", ["enqueue", "retry", "snooze", "release", "function"])
def test_what_has_expired_when_it_is_written_dies_at_once(postgres_url: str, way: str) -> None:
    """Its moment lies before the mark, and is set to now."""
    with eventkit.connect(postgres_url) as kit, connected(postgres_url) as driver:
        queue = kit.queue("work")
        queue.configure(dead_letter_to="graveyard")
        if way in ("enqueue", "function"):
            raised(queue)
            if way == "enqueue":
                queue.enqueue("expired", expires=-1)
            else:
                driver.execute("SELECT eventkit_enqueue('work', '1', expires => -1)")
        else:
            queue.enqueue("expires", expires=0.2)
            [task] = queue.claim("worker")
            raised(queue)
            assert getattr(queue, way)(task, **({} if way == "release" else {"delay": 0}))
        assert queue.claim("worker") == []
        assert driver.execute("SELECT state FROM eventkit_task WHERE queue = 'work'").fetchall() == [("dead",)]
        assert kit.queue("graveyard").size() == 1


@proves("Q18")
@pytest.mark.parametrize("moments", [{}, {"delay": 0.001}, {"expires": 0.1}], ids=["ready", "delayed", "expiring"])
def test_a_claim_in_an_old_snapshot_raises_no_mark(postgres_url: str, moments: dict[str, float]) -> None:
    """It does not see later commits, and would hide them from the next claims."""
    with eventkit.connect(postgres_url) as kit, psycopg.connect(postgres_url.partition("?")[0]) as old:
        queue = kit.queue("work")
        raised(queue)
        old.isolation_level = IsolationLevel.REPEATABLE_READ
        old.execute("SELECT count(*) FROM pg_class")
        queue.enqueue("since", **moments)
        time.sleep(0.2)
        assert queue.claim("old", tx=old) == []
        old.commit()
        found = queue.claim("worker")
        assert [task.payload for task in found] == ([] if "expires" in moments else ["since"])
        assert kit.queue("work").stats().dead == ("expires" in moments)
        with connected(postgres_url) as driver:
            state = driver.execute("SELECT state FROM eventkit_task WHERE queue = 'work'").fetchall()
        assert state == [("dead" if "expires" in moments else "leased",)]


@proves("Q18")
def test_a_mark_is_lowered_as_far_as_the_oldest_new_task(postgres_url: str) -> None:
    """The first task of a priority opens all of it, because an older one may be enqueued at the same moment."""
    with eventkit.connect(postgres_url) as kit, connected(postgres_url) as driver:
        kit.queue("work").enqueue_many([NewTask("now", priority=1), NewTask("older", priority=2, delay=-60)])
        assert dict(driver.execute("SELECT priority, isfinite(run_at) FROM eventkit_low_water")) == {1: False, 2: True}
