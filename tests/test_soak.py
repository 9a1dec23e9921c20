"""Minutes of mixed load: the log, the memory and the threads do not grow."""

import os
import threading
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import eventkit

MINUTES = 2.0


def _resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _produce(url: str, until: float) -> None:
    with eventkit.connect(url) as kit:
        while time.time() < until:
            kit.queue("soak").enqueue_many([{"n": n} for n in range(20)])
            kit.stream("soak").publish_many(["an event"] * 20)
            kit.channel("soak").notify("look")
            kit.stream("soak").prune(keep_count=10_000, keep_unconsumed=False)
            kit.channel("soak").prune(keep_count=100)
            time.sleep(0.005)


def _consume(url: str, until: float, answers: Any) -> None:
    """Work, follow, listen and wait at once; return memory and threads after a quarter of the time, and at the end."""
    kit = eventkit.connect(url)

    def work() -> None:
        for task in kit.queue("soak").work(batch=10):
            with kit.queue("soak").handling(task):
                pass

    def follow() -> None:
        for _ in kit.stream("soak").subscribe("follower", on_truncated="skip"):
            pass

    def listen() -> None:
        for _ in kit.channel("soak").listen():
            pass

    def stay() -> None:
        """Read without events: the reader must not keep the log from being truncated."""
        for _ in kit.stream("quiet").subscribe("idler"):
            pass

    threads = [threading.Thread(target=target) for target in (work, follow, listen, stay)]
    for thread in threads:
        thread.start()
    time.sleep(max(0.0, (until - time.time()) / 4))
    early = _resident(), threading.active_count()
    time.sleep(max(0.0, until - time.time()))
    answers.send((early, (_resident(), threading.active_count())))
    kit.close()
    for thread in threads:
        thread.join()


@pytest.mark.slow
def test_nothing_grows(tmp_path: Path) -> None:
    """Under a mixed load of several processes the log stays small, and so do memory and threads."""
    url = f"sqlite:///{tmp_path}/soak.db"
    eventkit.connect(url).close()
    until = time.time() + MINUTES * 60
    context = get_context("spawn")
    answer, answers = context.Pipe(duplex=False)
    processes = [context.Process(target=_produce, args=(url, until)) for _ in range(2)]
    processes.append(context.Process(target=_consume, args=(url, until, answers)))
    for process in processes:
        process.start()
    largest = 0
    log = tmp_path / "soak.db-wal"
    while time.time() < until:
        largest = max(largest, log.stat().st_size if log.exists() else 0)
        time.sleep(0.5)
    early, late = answer.recv()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert largest < 64_000_000
    assert late[0] < early[0] * 1.3 + 10_000_000
    assert late[1] <= early[1]
