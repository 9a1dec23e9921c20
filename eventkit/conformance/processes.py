"""Other processes and threads.

Another process runs a function that it can import, with arguments that can be pickled: a URL, not
a kit.  Every process is joined, and one that failed fails the test::

    with spawn(_publish, url, 100) as publisher:
        ...
    assert publisher.result() == 100
"""

import contextlib
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from importlib.metadata import entry_points
from multiprocessing.context import BaseContext
from typing import Any, Self

import pytest

PATIENCE = 60.0
"""Seconds after which a process that has not ended is a failure."""


def _cheapest() -> BaseContext:
    """Return the cheapest start method whose processes inherit none of the test's open files, as spawned ones do.

    Such a process takes a second for its imports, and the suite starts hundreds.  Where the system can, each therefore
    is a copy of one that has imported the suite and every backend that is installed, and does nothing else.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    backends = sorted({entry_point.module for entry_point in entry_points(group="eventkit.backends")})
    context.set_forkserver_preload([__name__.rpartition(".")[0], *backends])
    return context


_context: Any = _cheapest()


class Process:
    """A process that runs one function; leaving its ``with`` block joins it."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._answers, answers = _context.Pipe(duplex=False)
        self._process = _context.Process(target=_run, args=(answers, function, arguments), daemon=True)
        self._process.start()
        answers.close()
        self._answer: Any = None
        self._killed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:
            self.kill()
        self.join()

    @property
    def pid(self) -> int:
        """Return the number of the process."""
        pid: int | None = self._process.pid
        assert pid is not None
        return pid

    def join(self) -> None:
        """Wait for the end; fail if the process failed and was not killed."""
        if self._answers.closed:
            return
        if not self._answers.poll(PATIENCE):
            self.kill()
            raise AssertionError(f"a process was still running after {PATIENCE:.0f} seconds")
        with contextlib.suppress(EOFError):  # The process died before it could answer; join() reports the exit code.
            self._answer = self._answers.recv()
        self._answers.close()
        self._process.join(PATIENCE)
        assert self._killed or self._process.exitcode == 0, f"a process ended with {self._process.exitcode}"

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self._killed = True
        self._process.kill()
        self._process.join()

    def result(self) -> Any:
        """Return the function's result once the process has ended; None if it was killed."""
        self.join()
        return self._answer


def spawn(function: Callable[..., Any], *arguments: Any) -> Process:
    """Start *function* in a process of its own."""
    return Process(function, arguments)


class Elsewhere:
    """A process that lives as long as the tests and runs one function after another."""

    def __init__(self) -> None:
        self._pipe, pipe = _context.Pipe()
        self._process = _context.Process(target=_serve, args=(pipe,), daemon=True)
        self._process.start()
        pipe.close()

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run *function* in the process and return its result."""
        self.begin(function, *arguments)
        return self.end()

    def begin(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Begin *function* in the process; `end` returns its result."""
        self._pipe.send((function, arguments))

    def end(self) -> Any:
        """Return the result of the function that `begin` started."""
        assert self._pipe.poll(PATIENCE), f"the other process is silent for {PATIENCE:.0f} seconds"
        answer, error = self._pipe.recv()
        if error is not None:
            raise error
        return answer

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(PATIENCE)


@pytest.fixture(scope="session", name="elsewhere")
def another_process() -> Iterator[Elsewhere]:
    """Return a callable that runs a function in another process: ``elsewhere(function, url)``."""
    elsewhere = Elsewhere()
    yield elsewhere
    elsewhere.close()


def background(function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
    """Run *function* in a daemon thread."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _run(answers: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    answers.send(function(*arguments))


def _serve(pipe: Any) -> None:
    with contextlib.suppress(EOFError):
        while True:
            function, arguments = pipe.recv()
            try:
                answer, failure = function(*arguments), None
            except Exception as error:
                answer, failure = None, error
            pipe.send((answer, failure))
