"""What other processes do in the tests of many who handle the same tasks."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import eventkit
from eventkit import Task

from .races import line_up


def drain_in_threads(url: str, racers: int, threads: int) -> list[list[int]]:
    """Claim and ack in several threads until there is nothing left; the payloads of each."""
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
    """Ack *tasks* in overlapping batches, half of them in a transaction of one's own; the ids that it has finished."""
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
    """Do everything with tasks that touches several of them, for a while; nothing of it may fail."""
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
                    queue.purge(chance.choice(("ready", "leased", "dead")))
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
