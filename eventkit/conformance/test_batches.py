"""Q22: tasks that were claimed together and are worked on one after another."""

import os
import signal
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import pytest

from eventkit import EventKit

from .clauses import proves
from .processes import spawn
from .streaming import kit_on
from .threads import PATIENCE, eventually, in_thread


@proves("Q22", "O1")
@pytest.mark.parametrize("what", ["queue", "kit", "outbox"])
def test_leases_of_a_batch_are_kept_while_its_first_tasks_run(
    kit: EventKit, connect: Callable[..., Any], url: str, what: str
) -> None:
    """The batch takes longer than a lease lasts, and each task runs once, beside a worker that has nothing to do."""
    name = "outbox:b" if what == "outbox" else "b"
    kit.queue(name).configure(lease=1)
    begun: list[tuple[int, int]] = []

    def work(kit: Any, name: str, worker: int) -> None:
        queue = kit.queue(name)
        for task in kit.work(["b"], batch=6) if what == "kit" else queue.work(batch=6):
            with queue.handling(task):
                begun.append((worker, task.payload))
                time.sleep(0.4)

    def run(kit: Any, name: str, worker: int) -> None:
        def deliver(message: Any) -> None:
            begun.append((worker, message.payload))
            time.sleep(0.4)

        kit.outbox("b", deliver=deliver).run(batch=6)

    if what == "outbox":
        with kit.transaction() as tx:
            for number in range(6):
                kit.outbox("b").add(tx, number)
    else:
        kit.queue(name).enqueue_many(range(6))
    kits = [connect(url), connect(url)]
    workers = [in_thread(run if what == "outbox" else work, kits[0], name, 0)]
    eventually(lambda: begun)
    workers.append(in_thread(run if what == "outbox" else work, kits[1], name, 1))
    eventually(lambda: kit.queue(name).size() == 0)
    for each in kits:
        each.close()
    for worker in workers:
        worker.result(PATIENCE)
    assert begun == [(0, number) for number in range(6)]


def _work(url: str, flavour: str, told: Connection) -> None:
    with kit_on(url, flavour) as kit:
        queue = kit.queue("b")
        for task in queue.work(batch=4, lease=1):
            with queue.handling(task):
                told.send(task.payload)
                if task.payload == 0:
                    time.sleep(0.3)
                if task.payload == "end":
                    return


@proves("Q22")
@pytest.mark.parametrize("taken", [True, False], ids=["taken", "not taken"])
def test_what_has_lapsed_is_not_begun(kit: EventKit, url: str, flavour: str, taken: bool) -> None:
    """By a process that was stopped meanwhile: it goes on with what it claims then."""
    queue = kit.queue("b")
    queue.enqueue_many(range(4))
    receiving, sending = get_context("spawn").Pipe(duplex=False)
    with spawn(_work, url, flavour, sending) as worker:
        assert receiving.poll(PATIENCE)
        assert receiving.recv() == 0
        os.kill(worker.pid, signal.SIGSTOP)
        try:
            time.sleep(1.2)
            if taken:
                tasks = queue.claim("other", 4, wait=PATIENCE)
                assert sorted(task.payload for task in tasks) == [0, 1, 2, 3]
                assert len(queue.ack_many(tasks)) == 4
        finally:
            os.kill(worker.pid, signal.SIGCONT)
        queue.enqueue("end", priority=-1)
        told = []
        while "end" not in told:
            assert receiving.poll(PATIENCE)
            told.append(receiving.recv())
        if taken:
            assert told == ["end"]
    receiving.close()
    sending.close()
