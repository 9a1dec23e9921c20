"""Workers as somebody runs them, by ``eventkit worker``, to do to them what workers suffer."""

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

from eventkit import EventKit, TaskInfo, Unavailable

T = TypeVar("T")

PATIENCE = 180.0
"""Seconds in which something has to come about, or a fleet to get something done."""

LEASE, SLOTS = 3, 20


class Run(NamedTuple):
    """One call of a function, and whether it came to its end."""

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
        """What it has logged."""
        return self._log.read_text("utf-8")

    @property
    def resident(self) -> int:
        """The bytes that it has in memory."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text("utf-8").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @property
    def ready(self) -> bool:
        """Whether it takes tasks."""
        assert self.process.poll() is None, f"{self.name} ended with {self.process.returncode}:\n{self.log[-3000:]}"
        return self._ready.exists()

    def stop(self) -> None:
        """End it as a service manager does, which has seen it begin; it must end well."""
        eventually(lambda: self.ready, f"{self.name} is ready")
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        assert code == 0, f"{self.name} ended with {code}:\n{self.log[-3000:]}"

    def kill(self) -> None:
        """End it without a warning."""
        self.process.kill()
        self.process.wait()


class Fleet:
    """Workers on one database, and what their tasks have said."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self._folder = folder
        self._said = folder / "said"
        self._said.touch()
        self.members: list[Member] = []
        self.killed: set[str] = set()
        self.past: list[Member] = []

    def begin(self, many: int) -> None:
        """Start so many workers, and return when they are ready."""
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
        self._bury(member)
        self.start()

    def revive(self) -> int:
        """Start another worker for each that was killed by one of its tasks, as a service manager does; how many."""
        dead = [member for member in self.members if member.process.poll() is not None]
        for member in dead:
            assert member.process.returncode == -signal.SIGKILL, member.log[-3000:]
            self.killed.add(member.name)
            self._bury(member)
            self.start()
        return len(dead)

    def stop(self) -> None:
        """End all workers, gently, after which no process is left that they have started."""
        for member in [*self.members]:
            member.stop()
            self._bury(member)
        eventually(lambda: not self._processes(), "no process is left")

    def kill(self) -> None:
        """End all workers that there still are."""
        for member in self.members:
            member.kill()

    def runs(self) -> dict[int, dict[int, Run]]:
        """For each task its runs, by their attempts; that no attempt was run twice is asserted."""
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
        """How often something was said so far."""
        return self._said.read_text("utf-8").count("\n")

    def check(self, kit: EventKit, numbers: int, *, lost_claims: int = 0) -> "Counter[str]":
        """Each number up to *numbers* was done, and each attempt but a task's last has a reason; how many of which.

        *lost_claims* is for how many claims the workers may not have heard the answer.
        """
        assert [kit.queue(queue).list("dead") for queue in ("default", "apart")] == [[], []]
        done = [info for queue in ("default", "apart") for info in every(kit, queue, "done")]
        runs, logs = self.runs(), "\n".join(member.log for member in self.past)
        assert {run.number for attempts in runs.values() for run in attempts.values() if run.ended} >= {*range(numbers)}
        assert runs.keys() == {info.id for info in done}
        explained = set(re.findall(r"task (\d+) (?:of queue \S+ was|failed)", logs))
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

    def _bury(self, member: Member) -> None:
        self.members.remove(member)
        self.past.append(member)

    def _processes(self) -> list[int]:
        """All processes that come from the fleet."""
        mark = f"FLEET_SAID={self._said}".encode()
        return [int(entry.parent.name) for entry in Path("/proc").glob("[0-9]*/environ") if mark in _content(entry)]


@contextmanager
def fleet(url: str, folder: Path, many: int) -> Iterator[Fleet]:
    """A `Fleet` of so many workers; whatever happens, none is left."""
    made = Fleet(url, folder)
    try:
        made.begin(many)
        yield made
    finally:
        made.kill()


def accepted(call: Callable[[], T]) -> T:
    """What *call* answers, as soon as the database lets it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except Unavailable:
            assert time.monotonic() < deadline, f"refused for {PATIENCE:.0f} s"
            time.sleep(random.uniform(0.1, 0.3))


def drained(kit: EventKit, *queues: str) -> None:
    """Return when nothing is left to be done, however much it was; that it gets less is asserted."""
    for queue in queues:
        size = kit.queue(queue).size
        while left := accepted(size):
            eventually(partial(_is_less, size, left), f"less than {left} tasks are left in {queue}")


def _is_less(size: Callable[[], int], left: int) -> bool:
    return accepted(size) < left


def every(kit: EventKit, queue: str, state: str) -> Iterator[TaskInfo[Any]]:
    """All tasks in a state."""
    after = 0
    while page := kit.queue(queue).list(state, limit=1000, after=after):
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
