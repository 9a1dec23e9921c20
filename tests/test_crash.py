"""Processes killed with SIGKILL at any moment lose no acknowledged work, and block no other process."""

import random
from collections import defaultdict
from pathlib import Path

import apsw
import pytest
from crashing import live_for_a_moment

import eventkit
from eventkit.testing import advance

PROGRAMS = ["buy", "enqueue", "work", "follow", "come_and_go"]
FACTS = ["bought", "enqueued", "claimed", "acked", "saved"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return a file with eventkit's tables and one of the application's."""
    path = str(tmp_path / "crash.db")
    with eventkit.connect(f"sqlite:///{path}") as kit, kit.transaction() as tx:
        tx.execute("CREATE TABLE purchase (number INTEGER PRIMARY KEY)")
    return path


def check(path: str, facts: dict[str, set[int]], workers: int) -> None:
    """Check all reported *facts* against the file after so many *workers* were killed."""
    connection = apsw.Connection(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    bought = {number for (number,) in connection.execute("SELECT number FROM purchase")}
    jobs = {id for (id,) in connection.execute("SELECT id FROM eventkit_task WHERE queue = 'jobs'")}
    connection.close()

    # A second is far more than a live writer needs, and short for a lock that a dead one had kept.
    with eventkit.connect(f"sqlite:///{path}?busy_timeout=1") as kit:
        kit.queue("after").enqueue("the next writer")
        published = [event.payload for event in kit.stream("purchases").read(limit=1_000_000)]
        enqueued = [task.payload for task in kit.queue("parcels").tasks(limit=1_000_000)]
        position = kit.stream("purchases").offset("follower")

    assert len(published) == len(set(published)) == len(bought)
    assert set(published) == set(enqueued) == bought
    assert facts["bought"] <= bought
    assert not facts["acked"] & jobs
    gone = facts["enqueued"] - jobs
    assert gone <= facts["claimed"]
    # Each worker may have been killed between an ack and its report.
    assert len(gone - facts["acked"]) <= workers
    assert position >= max(facts["saved"], default=0)


@pytest.mark.parametrize("rounds", [5, pytest.param(70, marks=pytest.mark.slow)])
def test_a_killed_process_loses_no_call_that_returned(path: str, rounds: int) -> None:
    """Three programs work on the file and are killed at random moments, again and again; the file is checked each time.

    More than a dozen processes are killed, and more than two hundred in the long run.
    """
    facts: dict[str, set[int]] = defaultdict(set)
    workers = turn = 0
    while turn < rounds or not all(facts[fact] for fact in FACTS):
        programs = random.sample(PROGRAMS, 3)
        workers += programs.count("work")
        for fact, number in live_for_a_moment(programs, path, hurried=turn % 4 == 3):
            facts[fact].add(number)
        check(path, facts, workers)
        turn += 1
        assert turn < 10 * rounds, f"of {FACTS} there were only {sorted(facts)}"


def test_the_tasks_of_a_killed_worker_come_back(path: str) -> None:
    """The tasks of a dead worker are handed out again when its lease has lapsed, with the next attempt."""
    held: dict[int, int] = {}
    while not held:
        live_for_a_moment(["enqueue", "work"], path)
        with eventkit.connect(f"sqlite:///{path}") as kit:
            held = {task.id: task.attempt for task in kit.queue("jobs").tasks("running", limit=1_000_000)}
    with eventkit.connect(f"sqlite:///{path}") as kit:
        jobs = kit.queue("jobs")
        jobs.purge("ready")
        assert jobs.claim("heir", limit=1000) == []
        advance(kit, 301)
        again = jobs.claim("heir", limit=1000)
        assert {task.id: task.attempt for task in again} == {id: attempt + 1 for id, attempt in held.items()}
