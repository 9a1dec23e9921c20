"""Workers started by ``eventkit worker``, as in production, and faults that befall them."""

import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from command_line import EVENTKIT, environment

from eventkit import EventKit, Unavailable
from eventkit.values import TaskInfo

T = TypeVar("T")

PATIENCE = 180.0
"""Seconds after which a missing event, or a fleet without progress, is a failure."""

LEASE, SLOTS = 3, 20


class Run(NamedTuple):
    """One call of a function, and whether it ended."""

    worker: str
    number: int
    ended: bool


class Member:
    """One worker, from its start to its end."""

    def __init__(self, name: str, url: str, folder: Path, said: Path) -> None:
        self.name = name
        self._ready = folder / f"{name}.ready"
        self._log = folder / f"{name}.log"
        options = {"concurrency": SLOTS, "processes": 1, "lease": LEASE, "name": name, "readiness-file": self._ready}
        command = [*EVENTKIT, "worker", "fleet_app:app", "--url", url]
        command += [f"--{option}={value}" for option, value in options.items()]
        paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        given = environment(FLEET_SAID=str(said), FLEET_WORKER=name, PYTHONPATH=paths)
        with self._log.open("w") as log:
            self.process = subprocess.Popen(command, env=given, cwd=folder, stderr=log)

    @property
    def log(self) -> str:
        """Return what it has logged."""
        return self._log.read_text("utf-8")

    @property
    def resident(self) -> int:
        """Return its resident bytes of memory."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text("utf-8").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @property
    def ready(self) -> bool:
        """Return whether it takes tasks."""
        assert self.process.poll() is None, f"{self.name} ended with {self.process.returncode}:\n{self.log[-3000:]}"
        return self._ready.exists()

    def stop(self) -> None:
        """Stop it as a service manager does, after its start; it must end well."""
        eventually(lambda: self.ready, f"{self.name} is ready")
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        assert code == 0, f"{self.name} ended with {code}:\n{self.log[-3000:]}"

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.process.kill()
        self.process.wait()


class Fleet:
    """Workers on one database, and the output of their tasks."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self._folder = folder
        self._said = folder / "said"
        self._said.touch()
        self.members: list[Member] = []
        self.killed: set[str] = set()
        self.past: list[Member] = []

    def begin(self, many: int) -> None:
        """Start *count* workers, and return when they are ready."""
        for _ in range(many):
            self.start()
        eventually(lambda: all(member.ready for member in self.members), "the workers are ready")

    def start(self) -> None:
        """Start one worker."""
        name = f"w{len(self.members) + len(self.past)}"
        self.members.append(Member(name, self.url, self._folder, self._said))

    def replace(self, member: Member, *, gently: bool = False) -> None:
        """End a worker, and start another one."""
        if gently:
            member.stop()
        else:
            member.kill()
            self.killed.add(member.name)
        self._retire(member)
        self.start()

    def revive(self) -> int:
        """Start another worker for each that a task killed, as a service manager does; return how many."""
        dead = [member for member in self.members if member.process.poll() is not None]
        for member in dead:
            assert member.process.returncode == -signal.SIGKILL, member.log[-3000:]
            self.killed.add(member.name)
            self._retire(member)
            self.start()
        return len(dead)

    def stop(self) -> None:
        """Stop all workers gently, and check that no process they started is left."""
        for member in [*self.members]:
            member.stop()
            self._retire(member)
        eventually(lambda: not self._processes(), "no process is left")

    def kill(self) -> None:
        """Kill the remaining workers."""
        for member in self.members:
            member.kill()

    def runs(self) -> dict[int, dict[int, Run]]:
        """Return the runs of each task by attempt, and check that no attempt ran twice."""
        runs: dict[int, dict[int, Run]] = {}
        for line in self._said.read_text("utf-8").splitlines():
            what, id, attempt, number, worker = line.split()
            of_task = runs.setdefault(int(id), {})
            if what == "begun":
                assert int(attempt) not in of_task, f"attempt {attempt} of task {id} was run twice"
                of_task[int(attempt)] = Run(worker, int(number), False)
            else:
                of_task[int(attempt)] = of_task[int(attempt)]._replace(ended=True)
        return runs

    def count(self) -> int:
        """Return how many lines the tasks have written."""
        return self._said.read_text("utf-8").count("\n")

    def check(self, kit: EventKit, numbers: int, *, lost_claims: int = 0) -> "Counter[str]":
        """Check that each number up to *numbers* was done and each earlier attempt has a reason; return the counts.

        *lost_claims* is the number of claims whose answers the workers may have lost.
        """
        assert [kit.queue(queue).tasks("dead") for queue in ("default", "apart")] == [[], []]
        done = [info for queue in ("default", "apart") for info in every(kit, queue, "done")]
        runs, logs = self.runs(), "\n".join(member.log for member in self.past)
        assert {run.number for attempts in runs.values() for run in attempts.values() if run.ended} >= {*range(numbers)}
        assert runs.keys() == {info.id for info in done}
        explained = set(re.findall(r"task (\d+) (?:of queue \S+ (?:was|had)|failed)", logs))
        reasons: Counter[str] = Counter()
        for info in done:
            of_task = runs[info.id]
            assert of_task.keys() <= {*range(1, info.attempt + 1)}
            assert of_task[info.attempt].ended, f"task {info.id} counts as done, but its last run has not ended"
            for attempt in range(1, info.attempt):
                run = of_task.get(attempt)
                if run is None:
                    reasons["not begun"] += 1
                elif run.worker in self.killed:
                    reasons["killed"] += 1
                else:
                    assert str(info.id) in explained, f"nothing says why attempt {attempt} of {info} was not the last"
                    reasons["lost or failed"] += 1
        assert reasons["not begun"] <= (len(self.killed) + lost_claims) * SLOTS
        return reasons

    def _retire(self, member: Member) -> None:
        self.members.remove(member)
        self.past.append(member)

    def _processes(self) -> list[int]:
        """Return all processes that the fleet started."""
        mark = f"FLEET_SAID={self._said}".encode()
        return [int(entry.parent.name) for entry in Path("/proc").glob("[0-9]*/environ") if mark in _content(entry)]


@contextmanager
def fleet(url: str, folder: Path, many: int) -> Iterator[Fleet]:
    """Run a `Fleet` of *count* workers; end all of them afterwards."""
    made = Fleet(url, folder)
    try:
        made.begin(many)
        yield made
    finally:
        made.kill()


def accepted(call: Callable[[], T]) -> T:
    """Return the answer of *call* as soon as the database accepts it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except Unavailable:
            assert time.monotonic() < deadline, f"refused for {PATIENCE:.0f} s"
            time.sleep(random.uniform(0.1, 0.3))


def drained(kit: EventKit, *queues: str) -> None:
    """Return when all tasks are done, and check for progress meanwhile."""
    for queue in queues:
        size = kit.queue(queue).size
        while left := accepted(size):
            eventually(partial(_is_less, size, left), f"less than {left} tasks are left in {queue}")


def _is_less(size: Callable[[], int], left: int) -> bool:
    return accepted(size) < left


def every(kit: EventKit, queue: str, state: str) -> Iterator[TaskInfo[Any]]:
    """Return all tasks in a state."""
    after = 0
    while page := kit.queue(queue).tasks(state, limit=1000, after=after):
        yield from page
        after = page[-1].id


def eventually(condition: Callable[[], object], what: str) -> None:
    """Return when *condition* holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE:.0f} s: {what}"
        time.sleep(0.02)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
