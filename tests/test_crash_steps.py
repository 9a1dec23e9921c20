"""A process killed at any file-system call leaves complete transactions and nothing else."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import apsw
import crashing_steps
import pytest

import eventkit
from eventkit.testing import advance


@pytest.fixture
def template(tmp_path: Path) -> str:
    """Return a file with three tasks to do and two tables of the application's."""
    path = str(tmp_path / "steps.db")
    with eventkit.connect(f"sqlite:///{path}") as kit:
        kit.queue("jobs").enqueue_many(["first", "second", "third"])
        with kit.transaction() as tx:
            tx.execute("CREATE TABLE purchase (number INTEGER PRIMARY KEY)")
            tx.execute("CREATE TABLE effect (task INTEGER PRIMARY KEY)")
    return path


def run(template: str, steps: list[int]) -> dict[int, set[str]]:
    """Let a process die at each of the steps, on a copy of the file; return what each had reported."""
    command = [sys.executable, crashing_steps.__file__, template, *map(str, steps)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    facts: dict[int, set[str]] = defaultdict(set)
    for line in output.splitlines():
        step, fact = line.split()
        facts[int(step)].add(fact)
    return facts


def number_of_steps(template: str) -> int:
    """Return the number of steps of a run that is not killed."""
    [closed] = [fact for fact in run(template, [0])[0] if fact.startswith("closed-")]
    return int(closed.removeprefix("closed-"))


def check(path: str, facts: set[str]) -> None:
    """Check that everything reported is stored, and everything stored is complete."""
    assert "ended--9" in facts
    # A second is far more than a live writer needs, and short for a lock that a dead one had kept.
    with eventkit.connect(f"sqlite:///{path}?busy_timeout=1") as kit:
        kit.queue("after").enqueue("the next writer")
        published = [event.payload for event in kit.stream("purchases").read()]
        parcels = [task.payload for task in kit.queue("parcels").tasks()]
        batch = len(kit.stream("batch").read())
        jobs = kit.queue("jobs")
        left = jobs.tasks()
        connection = apsw.Connection(path)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        bought = [number for (number,) in connection.execute("SELECT number FROM purchase ORDER BY number")]
        effects = {task for (task,) in connection.execute("SELECT task FROM effect")}
        connection.close()

        assert bought == published == parcels
        assert {f"bought-{number}" for number in bought} >= {fact for fact in facts if fact.startswith("bought-")}
        assert batch == 3 if "published" in facts else batch in (0, 3)
        assert effects | {task.id for task in left} == {1, 2, 3}
        assert len(effects) == 3 - len(left)
        assert len(effects) == 2 if "worked" in facts else len(effects) in (0, 2)

        held = [task for task in left if task.state == "running"]
        assert len(held) == 1 if "claimed-1" in facts else len(held) in (0, 1)
        advance(kit, 301)
        again = {task.id: task.attempt for task in jobs.claim("heir", 9)}
        assert again == {task.id: task.attempt + 1 for task in left}


@pytest.mark.parametrize("share", [12, pytest.param(None, marks=pytest.mark.slow)])
def test_a_kill_at_any_step_leaves_whole_transactions(template: str, share: int | None) -> None:
    """The test kills at each step in turn; in the quick run, at a dozen of them."""
    last = number_of_steps(template)
    assert last > 40
    steps = list(range(1, last + 1)) if share is None else [1 + n * (last - 1) // (share - 1) for n in range(share)]
    facts = run(template, steps)
    for step in steps:
        check(f"{template}.{step}", facts[step])
