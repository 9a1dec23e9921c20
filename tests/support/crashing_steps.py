"""A workload that is killed at its n-th call of the file system.

SQLite reaches its files through a replaceable layer (VFS).  This one counts the calls and kills the process at a
chosen one: in the middle of a write, after half of its bytes, or before a truncation, a removal or an fsync.
"""

import os
import shutil
import signal
import sys

import apsw
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

import eventkit


class Steps:
    """A counter of calls that kills the process at step *last*; never if that is 0."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.count = 0

    def next(self) -> bool:
        """Count one step and return whether it is the last."""
        self.count += 1
        return self.count == self.last

    def die_if_last(self) -> None:
        """Count one step and die if it is the last."""
        if self.next():
            die()


class DeadlyFile(apsw.VFSFile):
    """A file that ends the process at some step."""

    def __init__(self, steps: Steps, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._steps = steps

    def xWrite(self, data: bytes, offset: int) -> None:
        if self._steps.next():
            super().xWrite(data[: len(data) // 2], offset)
            die()
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._steps.die_if_last()
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        self._steps.die_if_last()
        super().xSync(flags)


class DeadlyFiles(apsw.VFS):
    """The file system of every connection of this process."""

    def __init__(self, steps: Steps) -> None:
        super().__init__("deadly", "unix", makedefault=True)
        self._steps = steps

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> DeadlyFile:
        return DeadlyFile(self._steps, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self._steps.die_if_last()
        super().xDelete(filename, syncdir)


def die() -> None:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def report(step: int, fact: str) -> None:
    """Report that *fact* holds, in one write, so that a line is complete or missing."""
    os.write(1, f"{step} {fact}\n".encode())


def work(path: str, last: int) -> None:
    """Make each kind of change, and report it when it is done."""
    steps = Steps(last)
    files = DeadlyFiles(steps)
    kit = eventkit.connect(f"sqlite:///{path}?durability=full")
    engine = create_engine(f"sqlite+apsw:///{path}")
    stream, parcels, jobs = kit.stream("purchases"), kit.queue("parcels"), kit.queue("jobs")

    for number in (1, 2):
        with Session(engine) as session, session.begin():
            session.execute(text("INSERT INTO purchase VALUES (:number)"), {"number": number})
            stream.publish(number, tx=session)
            parcels.enqueue(number, tx=session)
        report(last, f"bought-{number}")
    engine.dispose()

    with kit.transaction() as tx:
        for task in jobs.claim("worker", 2, tx=tx):
            tx.execute("INSERT INTO effect VALUES (?)", (task.id,))
            jobs.ack(task, tx=tx)
    report(last, "worked")
    kit.stream("batch").publish_many(["x" * 9000] * 3)
    report(last, "published")
    report(last, f"claimed-{len(jobs.claim('worker', 2))}")
    kit.close()
    report(last, f"closed-{steps.count}")
    del files


def main(template: str, *steps: str) -> None:
    """Run a child for each step, which works on a copy of the template and dies there."""
    for step in map(int, steps):
        path = f"{template}.{step}"
        shutil.copy(template, path)
        child = os.fork()
        if not child:
            work(path, step)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        report(step, f"ended-{os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
