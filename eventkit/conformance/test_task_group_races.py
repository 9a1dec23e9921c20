"""Groups of tasks under load: workers that are killed, and large backlogs (Q24, Q25)."""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import eventkit
from eventkit import EventKit, NewTask, Task

from .clauses import proves
from .processes import Process, spawn
from .threads import PATIENCE, eventually, in_thread


def _work(url: str, path: str, pause: float) -> None:
    """Run tasks for ever, and record the begin and the end of each run."""
    chance = random.Random(os.getpid())
    with eventkit.connect(url) as kit, open(path, "ab", buffering=0) as log:
        queue = kit.queue("jobs")
        while True:
            for task in queue.claim("w", chance.randint(1, 4), wait=1):
                log.write(f"begin {task.group} {task.payload} {os.getpid()}\n".encode())
                time.sleep(chance.random() * pause)
                if task.attempt == 1 and chance.random() < 0.1:
                    queue.retry(task, delay=chance.choice((0, 0.01)))
                elif queue.ack(task):
                    log.write(f"end {task.group} {task.payload}\n".encode())


def _kill_workers(kit: EventKit, url: str, path: Path, pause: float, kills: int, check: Callable[[], object]) -> None:
    """Run workers until the queue is empty, and kill some; call *check* all the time."""
    chance = random.Random(kills)
    queue = kit.queue("jobs")

    def start() -> Process:
        return spawn(_work, url, str(path), pause)

    workers = [start() for _ in range(4)]
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            check()

    watching = in_thread(watch)
    try:
        eventually(path.exists)
        for _ in range(kills):
            time.sleep(chance.random() * 0.2)
            victim = workers.pop(chance.randrange(4))
            victim.kill()
            victim.join()
            workers.append(start())
        in_thread(lambda: eventually(lambda: queue.size() == 0)).result(2 * PATIENCE)
    finally:
        ended.set()
        for worker in workers:
            worker.kill()
            worker.join()
    watching.result(PATIENCE)


def _check_order(path: Path, groups: list[str], each: int) -> None:
    """Check that each group's tasks began in order, each after the end of the one before, and that all ended."""
    began: dict[str, list[int]] = {group: [] for group in groups}
    ended: Counter[tuple[str, int]] = Counter()
    for line in path.read_text().splitlines():
        what, group, number, *_ = line.split()
        if what == "begin":
            began[group].append(int(number))
        else:
            ended[group, int(number)] += 1
    for group in groups:
        assert sorted(set(began[group])) == list(range(each)), f"tasks of {group} are lost"
        assert all(later >= earlier for earlier, later in pairwise(began[group])), f"inversion in {group}"
    assert not [one for one, number in ended.items() if number > 1]


def _race_in_order(kit: EventKit, url: str, path: Path, groups: int, each: int, kills: int, pause: float) -> None:
    queue = kit.queue("jobs")
    queue.configure(ordered=True, lease=0.5, max_attempts=1000)
    names = [f"g{n}" for n in range(groups)]
    for n in range(each):
        queue.enqueue_many([NewTask(n, group=name) for name in names])
    _kill_workers(kit, url, path, pause, kills, lambda: time.sleep(0.1))
    _check_order(path, names, each)


def _race_in_limits(kit: EventKit, url: str, path: Path, tasks: int, kills: int, pause: float) -> None:
    queue = kit.queue("jobs")
    queue.configure(group_max_running=2, lease=0.5, max_attempts=1000, fair=True)
    names = ["a", "b", "c"]
    queue.enqueue_many([NewTask(n, group=names[n % 3]) for n in range(tasks)])
    most: Counter[str | None] = Counter()

    def sample() -> None:
        running = Counter(task.group for task in queue.tasks("running", 1000))
        for group, number in running.items():
            most[group] = max(most[group], number)

    _kill_workers(kit, url, path, pause, kills, sample)
    assert set(most) == set(names)
    assert max(most.values()) == 2, most
    assert queue.size() == 0


@proves("Q24")
def test_killed_workers_keep_the_order(kit: EventKit, url: str, tmp_path: Path) -> None:
    _race_in_order(kit, url, tmp_path / "log", 6, 25, 2, 0.005)


@proves("Q25")
def test_killed_workers_keep_the_limits(kit: EventKit, url: str, tmp_path: Path) -> None:
    _race_in_limits(kit, url, tmp_path / "log", 120, 2, 0.02)


@proves("Q24")
@pytest.mark.slow
def test_many_tasks_keep_the_order_while_workers_are_killed(kit: EventKit, url: str, tmp_path: Path) -> None:
    """There are 200,000 tasks, unless EVENTKIT_GROUP_TASKS says otherwise."""
    tasks = int(os.environ.get("EVENTKIT_GROUP_TASKS", "200000"))
    groups = min(1000, max(1, tasks // 100))
    _race_in_order(kit, url, tmp_path / "log", groups, tasks // groups, 20, 0.0)


@proves("Q25")
@pytest.mark.slow
def test_limits_hold_in_many_runs_with_kills(kit: EventKit, url: str, tmp_path: Path) -> None:
    """There are 100 runs, unless EVENTKIT_GROUP_RUNS says otherwise."""
    for run in range(int(os.environ.get("EVENTKIT_GROUP_RUNS", "100"))):
        _race_in_limits(kit, url, tmp_path / f"log {run}", 60, 2, 0.02)


def _p99(queue: Any, groups: int, rounds: int) -> float:
    """Return the 99th percentile of the seconds from enqueue to claim, of tasks of other groups than the large one."""
    chance, waits = random.Random(3), list[float]()
    for _ in range(rounds):
        began = time.perf_counter()
        queue.enqueue("small", group=f"g{chance.randrange(groups)}")
        task: Task[Any] | None = None
        while task is None or task.payload != "small":
            [task] = queue.claim("w", 1)
            queue.ack(task)
        waits.append(time.perf_counter() - began)
    return sorted(waits)[int(rounds * 0.99)]


@proves("Q25")
@pytest.mark.slow
def test_a_group_of_a_million_tasks_does_not_delay_the_others(kit: EventKit) -> None:
    """Their p99 from enqueue to claim at most doubles.  EVENTKIT_GROUP_BACKLOG is the number of its tasks."""
    queue = kit.queue("jobs")
    queue.configure(fair=True)
    alone = _p99(queue, 10_000, 2000)
    for _ in range(int(os.environ.get("EVENTKIT_GROUP_BACKLOG", "1000000")) // 10_000):
        queue.enqueue_many([NewTask("large", group="large")] * 10_000)
    assert _p99(queue, 10_000, 2000) <= 2 * alone
