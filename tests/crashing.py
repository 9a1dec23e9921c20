"""Programs to be killed, and what they say before they are.

Each runs for ever on one file, and reports a fact as one line on standard output as soon as the library has
told it that the fact is so.  Whatever was reported must still be true after the program was killed.
"""

import itertools
import os
import random
import signal
import subprocess
import sys
import time

import eventkit


def report(fact: str, number: int) -> None:
    """Say that *fact* holds; one write, so that a line is whole or missing."""
    os.write(1, f"{fact} {number}\n".encode())


def buy(path: str) -> None:
    """A business row, an event and a task in one SQLAlchemy transaction, one purchase after another."""
    from sqlalchemy import create_engine, text
    from sqlalchemy.orm import Session

    kit = eventkit.connect(f"sqlite:///{path}")
    engine = create_engine(f"sqlite+apsw:///{path}?timeout=30")
    purchases, parcels = kit.stream("purchases"), kit.queue("parcels")
    for count in itertools.count():
        number = os.getpid() * 1_000_000 + count
        with Session(engine) as session, session.begin():
            session.execute(text("INSERT INTO purchase VALUES (:number)"), {"number": number})
            purchases.publish(number, tx=session)
            parcels.enqueue(number, tx=session)
            session.flush()
        report("bought", number)


def enqueue(path: str) -> None:
    """Tasks one by one and in batches."""
    kit = eventkit.connect(f"sqlite:///{path}?busy_timeout=30")
    jobs = kit.queue("jobs")
    while True:
        report("enqueued", jobs.enqueue({"some": "work"}).id)
        for task in jobs.enqueue_many([1, 2, 3]):
            report("enqueued", task.id)


def work(path: str) -> None:
    """Tasks claimed and acked, by hand and in `handling`; the watcher is attached whenever there is nothing to do."""
    kit = eventkit.connect(f"sqlite:///{path}?busy_timeout=30")
    jobs = kit.queue("jobs")
    for task in jobs.work("worker", batch=4):
        report("claimed", task.id)
        if random.random() < 0.5:
            with jobs.handling(task):
                pass
        elif jobs.ack(task):
            report("acked", task.id)


def follow(path: str) -> None:
    """A subscription that saves every offset by hand."""
    kit = eventkit.connect(f"sqlite:///{path}?busy_timeout=30")
    purchases = kit.stream("purchases")
    for event in purchases.subscribe("follower", save_every_n=0, save_every_s=0):
        purchases.save_offset("follower", event.offset)
        report("saved", event.offset)


def come_and_go(path: str) -> None:
    """Kits opened and closed, so that some are killed while the log is written back."""
    while True:
        with eventkit.connect(f"sqlite:///{path}?busy_timeout=30") as kit:
            report("enqueued", kit.queue("jobs").enqueue("from a visitor").id)


def start(program: str, path: str) -> "subprocess.Popen[bytes]":
    """Run one of the programs above in a process of its own."""
    return subprocess.Popen([sys.executable, __file__, program, path], stdout=subprocess.PIPE)


def kill(process: "subprocess.Popen[bytes]") -> list[tuple[str, int]]:
    """Kill the process without a warning; the facts it had reported."""
    process.send_signal(signal.SIGKILL)
    output, _ = process.communicate()
    lines = output.decode().split("\n")[:-1]
    return [(fact, int(number)) for fact, number in (line.split() for line in lines)]


def live_for_a_moment(programs: list[str], path: str) -> list[tuple[str, int]]:
    """Start the programs, kill them at some moment; all the facts they reported."""
    processes = [start(program, path) for program in programs]
    time.sleep(random.uniform(0.4, 1.1))
    return [fact for process in processes for fact in kill(process)]


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
