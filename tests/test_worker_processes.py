"""Tasks in processes of their own: J2."""

import os
import signal
from pathlib import Path

import databases
import pytest
import worker_program
import working
from databases import on_both
from working import Program, error_of, gone, program, state, until

from eventkit import App, EventKit
from eventkit.conformance import proves

url, kit = databases.url, databases.kit


def enqueue(kit: EventKit, task: str, **args: object) -> int:
    """Enqueue a task that runs in a process."""
    return kit.queue("apart").enqueue({"task": task, "args": args}).id


@pytest.fixture
def worker(kit: EventKit, url: str, tmp_path: Path) -> "Program":
    """Return a worker that reports its children."""
    with program(url, tmp_path) as running:
        yield running  # type: ignore[misc]


@proves("J2")
@on_both
def test_a_child_runs_tasks_and_fails_alone(kit: EventKit, worker: Program) -> None:
    """One child serves many tasks; one that dies costs only its own task, and the next gets another."""
    numbers = [enqueue(kit, "compute", number=number) for number in range(5)]
    assert [kit.results.wait(id, working.PATIENCE) for id in numbers] == [0, 2, 4, 6, 8]
    pids = {line for line in worker.lines() if line.startswith("compute")}
    assert str(worker.process.pid) not in str(pids)
    assert len(pids) <= 5
    settled = enqueue(kit, "settle")
    failed = {
        kind: enqueue(kit, "raise_there", kind=kind) for kind in ("permanent", "snooze", "local", "result", "any")
    }
    assert error_of(kit, failed["permanent"], "apart") == "for good"
    until(lambda: state(kit, failed["snooze"], "apart") == "scheduled")
    assert "of here alone" in error_of(kit, failed["local"], "apart")
    assert error_of(kit, failed["result"], "apart").startswith("SERIALIZATION_ERROR")
    assert "raise ValueError(kind)" in error_of(kit, failed["any"], "apart")
    declined = enqueue(kit, "pay_there")
    assert "card 42 was declined" in error_of(kit, declined, "apart")
    assert ("CARD_DECLINED", 1) in [(task.code, task.attempt) for task in kit.queue("apart").dead()]
    until(lambda: gone(kit, settled, "apart"))
    assert [event.payload for event in kit.stream("effects").read()] == [settled]
    assert kit.results.wait(enqueue(kit, "die", times=1), working.PATIENCE) == "lives"
    assert "SIGKILL" in error_of(kit, enqueue(kit, "die", times=100), "apart")
    crashed = error_of(kit, enqueue(kit, "die_once"), "apart")
    assert crashed.startswith("CRASHED")
    assert "exit code 7" in crashed
    assert kit.results.wait(enqueue(kit, "compute", number=21), working.PATIENCE) == 42


@proves("J2")
def test_what_never_ends_is_killed(kit: EventKit, worker: Program) -> None:
    """It is killed when its time is over, and when it is cancelled."""
    late = enqueue(kit, "spin")
    assert error_of(kit, late, "apart") == "timed out after 0.5 s"
    slow = enqueue(kit, "compute", number=1, seconds=1000)
    until(lambda: any(line.startswith("compute") for line in worker.lines()))
    [line] = [line for line in worker.lines() if line.startswith("compute")]
    until(lambda: state(kit, slow, "apart") == "running")
    assert kit.queue("apart").cancel(slow, running=True)
    until(lambda: ended(int(line.split()[1])))
    assert kit.results.wait(enqueue(kit, "compute", number=4), working.PATIENCE) == 8


@proves("J2", "J5")
def test_children_end_with_their_worker(kit: EventKit, worker: Program) -> None:
    """They end however the worker ends."""
    enqueue(kit, "compute", number=1, seconds=1000)
    until(lambda: any(line.startswith("compute") for line in worker.lines()))
    [line] = [line for line in worker.lines() if line.startswith("compute")]
    worker.send(signal.SIGKILL)
    worker.end()
    until(lambda: ended(int(line.split()[1])))


def ended(pid: int) -> bool:
    """Return whether the process has ended or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


@proves("J2")
def test_what_no_other_process_could_find_is_refused() -> None:
    app = App("sqlite:///never.db")

    @app.task(isolation="process")
    def local() -> None:
        """Return None; other processes cannot import this function."""

    with pytest.raises(ValueError, match="move it to the top level of a module"):
        app.worker()
    assert worker_program.app.worker() is not None
    assert not os.path.exists("never.db")
