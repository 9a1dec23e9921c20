"""Threads, start barriers for racing processes, and transactions that are rolled back."""

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import eventkit
from eventkit import EventKit, Task

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds after which a missing event is a failure."""


def in_thread(function: Callable[..., T], *arguments: object) -> Future[T]:
    """Run *function* in a thread of its own and return its future."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="conformance", daemon=True).start()
    return future


def eventually(check: Callable[[], T]) -> T:
    """Return the first answer of *check* that is true; fail after a minute."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := check()):
        assert time.monotonic() < deadline, f"it did not come true in {PATIENCE:.0f} seconds"
        time.sleep(0.01)
    return answer


def take(messages: Iterator[T], count: int) -> list[T]:
    """Return the next *count* messages, without requesting a further one; fail after a minute."""
    return in_thread(lambda: [next(messages) for _ in range(count)]).result(PATIENCE)


def each(messages: Iterator[T], count: int) -> Iterator[T]:
    """Yield the next *count* messages, each requested when the body is done with the one before."""
    for _ in range(count):
        yield from take(messages, 1)


def rest(messages: Iterable[T]) -> list[T]:
    """Return the messages until the iterator ends; fail after a minute."""
    return in_thread(lambda: list(messages)).result(PATIENCE)


class _Undo(Exception):
    """An error raised to roll back a transaction."""


@contextmanager
def rolled_back(kit: EventKit) -> Iterator[Any]:
    """Yield a transaction for ``tx=`` that is rolled back at the end of the body."""
    try:
        with kit.transaction() as tx:
            yield tx
            raise _Undo
    except _Undo:
        pass


SOON = 4.0
"""Seconds within which a waiter must wake: generous, and less than any fallback poll takes."""


def line_up(kit: EventKit, racers: int) -> None:
    """Return when *racers* callers, in any processes, have called."""
    line = kit.queue("the start line")
    line.enqueue(None)
    while line.size() < racers:
        time.sleep(0.002)


def database_ms(kit: EventKit) -> int:
    """Return the time in milliseconds by the clock that decides."""
    clock = kit.queue("the clock")
    id = clock.enqueue(None).id
    task = clock.get(id)
    assert task is not None
    return task.enqueued_ms


def asleep(call: Callable[..., T], *arguments: Any, **keywords: Any) -> Future[T]:
    """Run *call* in another thread and return its future once it most probably waits."""
    future = in_thread(lambda: call(*arguments, **keywords))
    time.sleep(0.15)
    return future


def drain_in_threads(url: str, racers: int, threads: int) -> list[list[int]]:
    """Claim and ack in several threads until the queue is empty; return the payloads of each."""
    with eventkit.connect(url) as kit:
        queue = kit.queue("jobs")
        line_up(kit, racers)

        def drain(thread: int) -> list[int]:
            done: list[int] = []
            while tasks := queue.claim(f"worker {thread}", random.randint(1, 5)):
                done += [task.payload for task in tasks]
                assert queue.ack_many(tasks) == sorted(task.id for task in tasks)
            return done

        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(drain, range(threads)))


def ack_batches(url: str, racers: int, tasks: list[Task[Any]], seed: int) -> list[int]:
    """Ack *tasks* in overlapping batches, half of them with ``tx=``; return the ids that were acked."""
    chance = random.Random(seed)
    finished: list[int] = []
    with eventkit.connect(url) as kit:
        line_up(kit, racers)
        for start in range(0, len(tasks), 5):
            batch = tasks[start : start + chance.choice((20, 20, len(tasks) // 2))]
            chance.shuffle(batch)
            with kit.transaction() if start % 2 else nullcontext() as tx:
                finished += kit.queue("jobs").ack_many(batch, tx=tx)
    return finished


def work_on(url: str, racers: int, seconds: float, seed: int) -> None:
    """Make every call that affects several tasks, for a while; all must succeed."""
    chance = random.Random(seed)
    with eventkit.connect(url) as kit:
        queue = kit.queue("jobs")
        line_up(kit, racers)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            tasks = queue.claim("worker", 20, lease=chance.choice((0.002, 0.01, 60)))
            chance.shuffle(tasks)
            match chance.randrange(7):
                case 0:
                    queue.purge(chance.choice(("ready", "running", "dead")))
                case 1:
                    queue.requeue()
                case 2:
                    for task in tasks:
                        queue.fail(task, "broken")
                case 3:
                    queue.receive(20)
                case 4:
                    queue.sweep()
                case _:
                    with kit.transaction() as tx:
                        queue.ack_many(tasks, tx=tx)
            queue.enqueue_many(
                [eventkit.NewTask(None, key=chance.choice((None, str(chance.random())))) for _ in range(10)]
            )
