"""Workers of tests: in a thread of this process, or as a program that can be killed."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from eventkit import App, EventKit
from eventkit.worker import Worker

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds after which a missing event is a failure."""

PROGRAM = Path(__file__).parent / "worker_program.py"


@contextlib.contextmanager
def working(app: Any, **settings: Any) -> Iterator[Worker]:
    """Run a worker in a thread; stop it at the end, and fail the test if it failed."""
    worker = Worker(app, **{"shutdown_timeout": 10} | settings)
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            asyncio.run(worker.serve())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the worker does not end"
        if failures:
            raise failures[0]


def declared(url: str) -> tuple[App, list[Any]]:
    """Return an app with a task of each kind, and the list of what they have done."""
    app, done = App(url), list[Any]()

    @app.task
    async def note(item: Any, waits: bool = False) -> None:
        done.append(item)
        if waits:
            await asyncio.sleep(0.01)

    @app.task
    def block(item: Any) -> None:
        done.append((item, threading.current_thread() is threading.main_thread()))

    @app.task
    async def double(number: int) -> int:
        return number * 2

    @app.task(max_attempts=3, backoff=[0])
    async def fail(waits: bool = False) -> None:
        done.append("run")
        if waits:
            await asyncio.sleep(0)
        raise ValueError("on purpose")

    @app.task(max_attempts=1)
    def fail_blocking() -> None:
        raise ValueError("on purpose")

    return app, done


def until(condition: Callable[[], T]) -> T:
    """Return the answer of *condition*, once it is true."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := condition()):
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.005)
    return answer


def gone(kit: EventKit, id: int, queue: str = "default") -> bool:
    """Return whether the task is done, and therefore deleted."""
    return kit.queue(queue).get(id) is None


def state(kit: EventKit, id: int, queue: str = "default") -> str:
    """Return the task's state."""
    info = kit.queue(queue).get(id)
    return "gone" if info is None else info.state


def error_of(kit: EventKit, id: int, queue: str = "default") -> str:
    """Wait until the task is dead, and return its error."""
    until(lambda: state(kit, id, queue) == "dead")
    info = kit.queue(queue).get(id)
    assert info is not None
    return info.error or ""


class Program:
    """A worker in a process of its own, on the tasks of `worker_program`, which write to a file."""

    def __init__(self, url: str, folder: Path, within: Sequence[str], **settings: str) -> None:
        self.said = folder / "said"
        self.said.touch()
        environment = os.environ | {"WORK_URL": url, "WORK_SAID": str(self.said)}
        environment |= {f"WORK_{name.upper()}": value for name, value in settings.items()}
        self.process = subprocess.Popen([*within, sys.executable, str(PROGRAM)], env=environment)

    def lines(self) -> list[str]:
        """Return the lines written so far."""
        return self.said.read_text("utf-8").split("\n")[:-1]

    def wait_for(self, line: str, times: int = 1) -> None:
        """Return once the line was written so many times."""

        def there() -> bool:
            assert self.process.poll() is None, f"the worker ended with {self.process.returncode}"
            return self.lines().count(line) >= times

        until(there)

    def send(self, number: int = signal.SIGTERM) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for the end and return the exit code."""
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def program(url: str, folder: Path, within: Sequence[str] = (), **settings: str) -> Iterator[Program]:
    """Start a `Program`, by the command *within* if given, and kill it in the end if it still runs."""
    made = Program(url, folder, within, **settings)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()
