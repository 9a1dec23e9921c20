"""Processes killed with SIGKILL at any moment lose nothing they were told is done, and block nobody."""

import random
from collections import defaultdict
from pathlib import Path

import apsw
import pytest
from crashing import live_for_a_moment

import eventkit
from eventkit.testing import advance

PROGRAMS = ["buy", "enqueue", "work", "follow", "come_and_go"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file with eventkit's tables and one of the application's."""
    path = str(tmp_path / "crash.db")
    with eventkit.connect(f"sqlite:///{path}") as kit, kit.transaction() as tx:
        tx.execute("CREATE TABLE purchase (number INTEGER PRIMARY KEY)")
    return path


def check(path: str, facts: dict[str, set[int]]) -> None:
    """Hold *facts*, all that was ever reported, against what the file says now."""
    connection = apsw.Connection(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    bought = {number for (number,) in connection.execute("SELECT number FROM purchase")}
    jobs = {id for (id,) in connection.execute("SELECT id FROM eventkit_task WHERE queue = 'jobs'")}
    connection.close()

    # A second is far more than a live writer needs, and no time at all for a lock that a dead one had kept.
    with eventkit.connect(f"sqlite:///{path}?busy_timeout=1") as kit:
        kit.queue("after").enqueue("the next writer")
        published = [event.payload for event in kit.stream("purchases").read(limit=1_000_000)]
        enqueued = [task.payload for task in kit.queue("parcels").list(limit=1_000_000)]
        position = kit.stream("purchases").offset("follower")

    assert len(published) == len(set(published)) == len(bought)
    assert set(published) == set(enqueued) == bought
    assert facts["bought"] <= bought
    assert facts["enqueued"] - jobs <= facts["claimed"]
    assert not facts["acked"] & jobs
    assert position >= max(facts["saved"], default=0)


def kill_often(path: str, rounds: int, together: int) -> dict[str, set[int]]:
    """Let programs live for a moment on the file, again and again; everything they reported."""
    facts: dict[str, set[int]] = defaultdict(set)
    for _ in range(rounds):
        for fact, number in live_for_a_moment(random.sample(PROGRAMS, together), path):
            facts[fact].add(number)
        check(path, facts)
    return facts


def test_a_killed_process_loses_nothing_it_was_told(path: str) -> None:
    """A dozen processes are killed, at whatever they were doing."""
    kill_often(path, rounds=4, together=3)


@pytest.mark.slow
def test_two_hundred_killed_processes_lose_nothing_they_were_told(path: str) -> None:
    """Two hundred and ten processes are killed, and all of the programs had reported something by then."""
    facts = kill_often(path, rounds=70, together=3)
    assert all(facts[fact] for fact in ("bought", "enqueued", "claimed", "acked", "saved"))


def test_the_tasks_of_a_killed_worker_come_back(path: str) -> None:
    """What a dead worker held is handed out again when its lease has run out, with the next attempt."""
    held: set[int] = set()
    while not held:
        live_for_a_moment(["enqueue", "work"], path)
        with eventkit.connect(f"sqlite:///{path}") as kit:
            held = {task.id for task in kit.queue("jobs").list("leased", limit=1_000_000)}
    with eventkit.connect(f"sqlite:///{path}") as kit:
        jobs = kit.queue("jobs")
        jobs.purge("ready")
        assert jobs.claim("heir", limit=1000) == []
        advance(kit, 301)
        again = jobs.claim("heir", limit=1000)
        assert {task.id for task in again} == held
        assert all(task.attempt >= 2 for task in again)
