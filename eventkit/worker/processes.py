"""Processes for functions that compute, or that must be stopped when their time is over.

A child lives as long as the worker and runs one task at a time, unless it has to be killed.  It is a fresh interpreter
that imports the function's module, so it shares nothing with the worker and needs no care about threads.
"""

import multiprocessing
import pickle
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from ..app.declarations import TaskDeclaration
from . import child
from .failures import Crashed, Failed
from .run import Run

_spawning = multiprocessing.get_context("spawn")


class Child:
    """One child process, which is started when it is first asked."""

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._mutex = threading.Lock()
        self._process: Any = None
        self._pipe: Any = None
        self.gone = False

    def call(self, run: Run) -> Any:
        """What the function of *run* returns there; in a thread, because it waits."""
        try:
            if self._process is None:
                self._start()
            self._pipe.send(_request(run))
            kind, answer, run.settled_apart = self._pipe.recv()
        except (EOFError, OSError):
            self.gone = True
            raise Crashed(self._epitaph()) from None
        if kind == "returned":
            return answer
        if kind == "raised":
            raise _exception(*answer)
        raise Failed(answer)

    def kill(self) -> None:
        """End it, whatever it does."""
        with self._mutex:
            self.gone = True
            if self._process is not None:
                self._process.kill()

    def bury(self) -> None:
        """Let nothing be left of one that was killed."""
        if self._process is not None:
            self._process.join(1)

    def _start(self) -> None:
        pipe, theirs = _spawning.Pipe()
        process = _spawning.Process(target=child.main, args=(theirs, self._url), name="eventkit-task")
        with self._mutex:
            if self.gone:
                raise EOFError
            process.start()
            self._process = process
        theirs.close()
        self._pipe = pipe

    def _epitaph(self) -> str:
        if self._process is None:
            return "the process was stopped before it began"
        self._process.join(5)
        code = self._process.exitcode
        if code is not None and code < 0:
            return f"the process was killed by {signal.Signals(-code).name}"
        return f"the process ended with exit code {code}"


class Processes:
    """The children of a worker, up to *most*."""

    def __init__(self, most: int, url: str | None) -> None:
        self._most = most
        self._url = url
        self._idle: list[Child] = []
        self._busy: dict[Run, Child] = {}

    @property
    def free(self) -> int:
        """How many more tasks could be begun."""
        return self._most - len(self._busy)

    def begin(self, run: Run) -> Callable[[], Any]:
        """What is to be called in a thread to have *run* done in a child."""
        chosen = self._busy[run] = self._idle.pop() if self._idle else Child(self._url)
        return partial(chosen.call, run)

    def end(self, run: Run) -> None:
        """The call is over."""
        done = self._busy.pop(run)
        if not done.gone:
            self._idle.append(done)

    def kill(self, run: Run) -> None:
        """Stop what *run* does, by killing its process."""
        if run in self._busy:
            self._busy[run].kill()

    def close(self) -> None:
        """Kill all children."""
        children = [*self._idle, *self._busy.values()]
        for one in children:
            one.kill()
        for one in children:
            one.bury()


def check(declaration: TaskDeclaration) -> None:
    """Refuse what no other process could find."""
    path = getattr(declaration.function, "__qualname__", "<")
    if "<" in path:
        raise ValueError(
            f"task {declaration.name!r} is to run in a process of its own, which has to import it, but it is defined "
            f"inside of something: move the function to the top of a module"
        )


def _exception(data: bytes, text: str) -> BaseException:
    """The exception that was raised there, or one with its *text* where its class cannot be found here."""
    try:
        error = pickle.loads(data)
    except Exception:
        return Failed(text)
    return error if isinstance(error, BaseException) else Failed(text)


def _request(run: Run) -> child.Request:
    declaration = run.routine.declaration
    function = declaration.function
    return function.__module__, function.__qualname__, declaration.name, declaration.batch, run.tasks
