"""Programs that survive faults of their server, and report what was acknowledged.

Each runs for ever on one kit of either flavour, and reports a fact as one line in a file as soon as the library has
acknowledged it.  A call that fails or whose outcome is unknown is tried again with another number.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import IO, Any

import eventkit
from eventkit.conformance.flavours import Blocking, Loop

Fact = tuple[int, ...]


def report(*fact: int) -> None:
    """Report a fact in one write, so that a line is complete or missing."""
    os.write(1, f"{' '.join(map(str, fact))}\n".encode())


def again_and_again(step: Callable[[int], object]) -> None:
    """Call *step* with unique numbers, one after the other."""
    for number in range(os.getpid() * 1_000_000, (os.getpid() + 1) * 1_000_000):
        try:
            step(number)
        except eventkit.Unavailable:
            continue
        time.sleep(random.uniform(0, 0.004))


def publish(kit: Any) -> None:
    """Report the number that was published, and its offset."""
    stream = kit.stream("t")
    again_and_again(lambda number: report(number, stream.publish(number)))


def enqueue(kit: Any) -> None:
    """Report the id of the task."""
    queue = kit.queue("q")
    again_and_again(lambda number: report(queue.enqueue(number).id))


def buy(kit: Any) -> None:
    """Write an event and a task in one transaction; report the number of both when it is committed."""
    purchases, parcels = kit.stream("purchases"), kit.queue("parcels")

    def step(number: int) -> None:
        import psycopg

        try:
            with kit.transaction() as tx:
                purchases.publish(number, tx=tx)
                parcels.enqueue(number, tx=tx)
        except psycopg.Error:
            return  # In the transaction the driver's errors are the caller's.
        report(number)

    again_and_again(step)


def notify(kit: Any) -> None:
    """Report the id of the notification."""
    channel = kit.channel("c")
    again_and_again(lambda number: report(channel.notify(number)))


def subscribe(kit: Any) -> None:
    """Report the offset of each event, and its number."""
    for event in kit.stream("t").subscribe(start="earliest"):
        report(event.offset, event.payload)


def listen(kit: Any) -> None:
    """Report the id of each notification."""
    heard = kit.channel("c").listen()
    report(0)
    for notification in heard:
        report(notification.id)


def work(kit: Any) -> None:
    """Report the id of each task and its attempt, and then ack it until the call succeeds."""
    queue = kit.queue("q")
    for task in queue.work("worker"):
        report(task.id, task.attempt)
        with queue.handling(task):
            pass


class Running:
    """One of the programs above, in a process of its own; ``program`` is its name and its flavour."""

    def __init__(self, program: tuple[str, str], url: str) -> None:
        self.program = program
        self._output: IO[bytes] = tempfile.TemporaryFile()
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        command = [sys.executable, __file__, *program, url]
        self._process = subprocess.Popen(command, stdout=self._output, stderr=self._errors)

    @property
    def reported(self) -> int:
        """Return how many bytes of facts there are, and check that the program runs."""
        if self._process.poll() is not None:
            self._errors.seek(0)
            raise AssertionError(f"{self.program} ended by itself: {self._errors.read().decode()[-3000:]}")
        return os.fstat(self._output.fileno()).st_size

    @property
    def facts(self) -> list[Fact]:
        """Return the facts it has reported so far, or before it was killed."""
        text = self._text if self._output.closed else self._whole()
        return [tuple(map(int, line.split())) for line in text.decode().split("\n")[:-1]]

    def _whole(self) -> bytes:
        return os.pread(self._output.fileno(), os.fstat(self._output.fileno()).st_size, 0)

    def kill(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.wait()
        self._text = self._whole()
        self._output.close()
        self._errors.close()


def main(name: str, flavour: str, url: str) -> None:
    """Run the program *name*."""
    if flavour == "sync":
        globals()[name](eventkit.connect(url))
    else:
        loop = Loop()
        globals()[name](Blocking(loop.run(eventkit.connect_async(url)), loop))


if __name__ == "__main__":
    main(*sys.argv[1:])
