"""Programs that are killed, and the facts they report before.

Each runs for ever on one file, and reports a fact as one line on standard output as soon as the library has
acknowledged it.  Every reported fact must still hold after the kill.

Standard output is a file: a pipe would fill up after a few thousand facts, and the program would be killed
while it blocks on the pipe.
"""

import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO

import eventkit

PATIENCE = 60.0
"""Seconds after which a program that has reported nothing is a failure."""


def report(fact: str, number: int) -> None:
    """Report that *fact* holds, in one write, so that a line is complete or missing."""
    os.write(1, f"{fact} {number}\n".encode())


def pause() -> None:
    """Sleep, so that a kill can strike here."""
    time.sleep(random.uniform(0, 0.002))


def buy(path: str) -> None:
    """Write a business row, an event and a task in one SQLAlchemy transaction, purchase after purchase, with pauses."""
    from sqlalchemy import create_engine, text
    from sqlalchemy.orm import Session

    kit = eventkit.connect(f"sqlite:///{path}")
    engine = create_engine(f"sqlite+apsw:///{path}?timeout=30")
    report("started", 0)
    purchases, parcels = kit.stream("purchases"), kit.queue("parcels")
    for count in itertools.count():
        number = os.getpid() * 1_000_000 + count
        with Session(engine) as session, session.begin():
            session.execute(text("INSERT INTO purchase VALUES (:number)"), {"number": number})
            pause()
            purchases.publish(number, tx=session)
            pause()
            parcels.enqueue(number, tx=session)
            pause()
        report("bought", number)
        pause()


def enqueue(path: str) -> None:
    """Enqueue tasks one by one and in batches."""
    kit = eventkit.connect(f"sqlite:///{path}?busy_timeout=30")
    report("started", 0)
    jobs = kit.queue("jobs")
    while True:
        report("enqueued", jobs.enqueue({"some": "work"}).id)
        for task in jobs.enqueue_many([1, 2, 3]):
            report("enqueued", task.id)


def work(path: str) -> None:
    """Claim and ack tasks, by hand and in `handling`; the watcher is attached whenever the queue is empty."""
    kit = eventkit.connect(f"sqlite:///{path}?busy_timeout=30")
    report("started", 0)
    jobs = kit.queue("jobs")
    for task in jobs.work("worker", batch=4):
        report("claimed", task.id)
        if random.random() < 0.5:
            with jobs.handling(task):
                pause()
            report("acked", task.id)
        elif jobs.ack(task):
            report("acked", task.id)


def follow(path: str) -> None:
    """Follow a subscription and save every offset by hand."""
    kit = eventkit.connect(f"sqlite:///{path}?busy_timeout=30")
    report("started", 0)
    purchases = kit.stream("purchases")
    for event in purchases.subscribe("follower", save_every_n=0, save_every_s=0, exclusive=False):
        purchases.save_offset("follower", event.offset)
        report("saved", event.offset)


def come_and_go(path: str) -> None:
    """Open and close kits, so that some are killed while the log is written back."""
    while True:
        with eventkit.connect(f"sqlite:///{path}?busy_timeout=30") as kit:
            report("enqueued", kit.queue("jobs").enqueue("from a visitor").id)


class Running:
    """One of the programs above, in a process of its own."""

    def __init__(self, program: str, path: str) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen([sys.executable, __file__, program, path], stdout=self._output)

    def wait(self) -> None:
        """Wait until the program works."""
        deadline = time.monotonic() + PATIENCE
        while not os.fstat(self._output.fileno()).st_size:
            assert self._process.poll() is None, f"a program ended with {self._process.returncode}"
            assert time.monotonic() < deadline, f"a program has reported nothing for {PATIENCE:.0f} seconds"
            time.sleep(0.001)

    def kill(self) -> list[tuple[str, int]]:
        """Kill the program with SIGKILL and return the facts it reported."""
        self._process.kill()
        self.status = self._process.wait()
        self._output.seek(0)
        lines = self._output.read().decode().split("\n")[:-1]
        self._output.close()
        return [(fact, int(number)) for fact, number in (line.split() for line in lines)]


def live_for_a_moment(programs: list[str], path: str, *, hurried: bool = False) -> list[tuple[str, int]]:
    """Start the programs, kill them at a random moment when all are working, and return the facts they reported.

    *hurried*, they may be killed before they have done anything.
    """
    running = [Running(program, path) for program in programs]
    try:
        for program in [] if hurried else running:
            program.wait()
        time.sleep(random.uniform(0.1, 1.0) if hurried else random.uniform(0.05, 0.4))
    finally:
        facts = [fact for program in running for fact in program.kill()]
    assert [program.status for program in running] == [-signal.SIGKILL] * len(running), "a program ended by itself"
    return facts


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
