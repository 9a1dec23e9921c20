"""Threads for functions that block, and processes for functions that compute, which end with their worker."""

import asyncio
import importlib
import inspect
import multiprocessing
import os
import pickle
import queue
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial, reduce
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import msgspec

from ..app.declarations import Refused, TaskDeclaration, declare_task, unsaved
from ..app.task import Function, TaskContext
from ..handling import Retry, code_of, trace
from ..kit import connect
from ..protocols import EventKit
from ..values import Task

if TYPE_CHECKING:
    from .executor import Run

Done = Callable[[Any, BaseException | None], None]

Request = tuple[str, str, str, int, list[Task[Any]]]
"""The function's module and its name there; the name of the task, the size of its batches, and the tasks."""

Answer = tuple[str, Any, bool]
"""``returned`` and the result, or ``raised`` and the arguments of `_received`.

The last item is true if the function has acked its task itself.
"""


class Crashed(Retry):
    """The process of the task has died."""

    code = "CRASHED"


class Failed(Retry):
    """The function raised an exception in another process that could not be transferred."""

    code = "FAILED"


class Threads:
    """A pool of threads, which reports the ends of calls in the event loop.

    There are as many threads as the most calls so far at once.  They are daemons: a call that hangs cannot be stopped,
    and must not keep the process alive after the worker has ended.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Done] | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0

    def run(self, call: Callable[[], Any], done: Done) -> None:
        """Run *call*, then ``done(result, error)`` in the event loop."""
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            threading.Thread(target=self._work, name=f"eventkit-task-{self._threads}", daemon=True).start()
        self._calls.put((call, done))

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call *function*, in a thread unless it is async, and return its result."""
        if inspect.iscoroutinefunction(function):
            return await function(*args)
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            elif isinstance(error, StopIteration):  # A future does not accept StopIteration.
                future.set_exception(RuntimeError(f"the function raised {error!r}"))
            else:
                future.set_exception(error)

        self.run(partial(function, *args), done)
        return await future

    def close(self) -> None:
        """End the idle threads."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            call, done = item
            result: Any = None
            failure: BaseException | None = None
            try:
                result = call()
            except BaseException as error:
                failure = error
            try:
                self._loop.call_soon_threadsafe(self._end, done, result, failure)
            except RuntimeError:
                return  # The loop was closed: no caller is left.
            del item, call, done, result, failure

    def _end(self, done: Done, result: Any, error: BaseException | None) -> None:
        self._busy -= 1
        done(result, error)


_spawning = multiprocessing.get_context("spawn")


class Child:
    """One child process, which is started at its first call."""

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._mutex = threading.Lock()
        self._process: Any = None
        self._pipe: Any = None
        self.gone = False

    def call(self, run: "Run") -> Any:
        """Run the function of *run* in the child and return its result; called in a thread, because it blocks."""
        try:
            if self._process is None:
                self._start()
            declaration = run.routine.declaration
            function = declaration.function
            path = function.__module__, function.__qualname__
            self._pipe.send((*path, declaration.name, declaration.batch, run.tasks))
            kind, answer, run.settled_apart = self._pipe.recv()
        except (EOFError, OSError):
            self.gone = True
            raise Crashed(error=self._exit_reason()) from None
        if kind == "raised":
            raise _received(*answer)
        return answer

    def kill(self) -> None:
        """Kill the process."""
        with self._mutex:
            self.gone = True
            if self._process is not None:
                self._process.kill()

    def join(self) -> None:
        """Wait for a killed process, so that it does not stay a zombie."""
        if self._process is not None:
            self._process.join(1)

    def _start(self) -> None:
        pipe, theirs = _spawning.Pipe()
        process = _spawning.Process(target=_serve, args=(theirs, self._url), name="eventkit-task")
        with self._mutex:
            if self.gone:
                raise EOFError
            process.start()
            self._process = process
        theirs.close()
        self._pipe = pipe

    def _exit_reason(self) -> str:
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
        """The number of tasks that can be started."""
        return self._most - len(self._busy)

    def begin(self, run: "Run") -> Callable[[], Any]:
        """Return the call that runs *run* in a child, to be made in a thread."""
        chosen = self._busy[run] = self._idle.pop() if self._idle else Child(self._url)
        return partial(chosen.call, run)

    def end(self, run: "Run") -> None:
        """Return the child of *run* to the pool."""
        done = self._busy.pop(run)
        if not done.gone:
            self._idle.append(done)

    def kill(self, run: "Run") -> None:
        """Stop *run* by killing its process."""
        if run in self._busy:
            self._busy[run].kill()

    def close(self) -> None:
        """Kill all children."""
        children = [*self._idle, *self._busy.values()]
        for one in children:
            one.kill()
        for one in children:
            one.join()


def check(declaration: TaskDeclaration) -> None:
    """Raise an error for a function that another process could not import."""
    path = getattr(declaration.function, "__qualname__", "<")
    if "<" in path:
        raise ValueError(
            f"task {declaration.name!r} runs in a process of its own, which cannot import it, because it is defined "
            f"inside a function or class: move it to the top level of a module"
        )


def _serve(pipe: "Connection[Answer, Request]", url: str | None) -> None:
    """Answer the requests that arrive through *pipe*: the main function of a child process."""
    # Terminals and service managers send these signals to all processes; the worker decides when a child ends.
    # Handlers rather than SIG_IGN, which programs started by the functions would inherit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()

    def receive() -> None:
        """Pass requests on; end the process with the worker, even while a function runs."""
        try:
            while True:
                requests.put(pipe.recv())
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=receive, name="eventkit-requests", daemon=True).start()
    while True:
        pipe.send(_answer(requests.get(), url))


def _answer(request: Request, url: str | None) -> Answer:
    """Run the function in this process; its result is plain, as a class may be another class in the worker."""
    module, path, name, batch, tasks = request
    context: TaskContext | None = None
    declaration: TaskDeclaration | None = None
    try:
        found: Any = reduce(getattr, path.split("."), importlib.import_module(module))
        declaration = found.declaration if isinstance(found, Function) else declare_task(found, name, batch=batch)
        every = [declaration.arguments(task) for task in tasks]
        arguments = declaration.of_batch(every) if batch > 1 else every[0]
        if declaration.signature.context is not None:
            context = arguments[declaration.signature.context] = TaskContext(tasks[0], _own_kit(url))
        result = declaration.function(**arguments)
        try:
            plain = msgspec.to_builtins(result, str_keys=True)
            pickle.dumps(plain)
        except Exception as error:
            raise unsaved(error) from error
        kind, value = "returned", plain
    except BaseException as error:
        text = trace(error)
        final = declaration is not None and declaration.is_final(error)
        kind, value = "raised", (_portable(error, text), text, code_of(error), final)
    return kind, value, context is not None and context.settled


@cache
def _own_kit(url: str | None) -> EventKit:
    if url is None:
        raise RuntimeError("a task in a process of its own connects by itself: give App or the worker a URL")
    return connect(url)


def _portable(error: BaseException, text: str) -> bytes | None:
    """Return *error* pickled, with its traceback *text* as a note; None if it cannot be pickled."""
    try:
        error.add_note(f"It was raised in another process:\n{text}")
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:
        return None
    return data


def _received(data: bytes | None, text: str, code: str, final: bool) -> BaseException:
    """Return the exception that the child raised, or one with its text and its code if it cannot be transferred."""
    with suppress(Exception):
        if data is not None and isinstance(error := pickle.loads(data), BaseException):
            return error
    known: Refused | Failed = Refused(text) if final else Failed(error=text)
    known.code = code
    return known
