"""The child process: it runs one task after another, until its worker is gone."""

import importlib
import os
import pickle
import queue
import signal
import threading
from functools import reduce
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from ..app.context import TaskContext
from ..app.declarations import Signature
from ..app.outcome import Refused
from ..app.task import Function
from ..handling import trace
from ..kit import connect
from ..protocols import EventKit
from ..values import Task

Request = tuple[str, str, str, int, list[Task[Any]]]
"""The function's module and its name there; the name of the task, the size of its batches, and the tasks."""

Answer = tuple[str, Any, bool]
"""``returned`` and the result, ``raised`` with the pickled exception and its text, or ``failed`` and the text.

The last item is true if the function has acked its task itself.
"""


def main(pipe: "Connection[Answer, Request]", url: str | None) -> None:
    """Answer the requests that arrive through *pipe*."""
    # Terminals and service managers send these signals to all processes; the worker decides when a child ends.
    # Handlers rather than SIG_IGN, which programs started by the functions would inherit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, requests), name="eventkit-requests", daemon=True).start()
    runner = _Runner(url)
    while True:
        pipe.send(runner.answer(requests.get()))


def _receive(pipe: "Connection[Answer, Request]", requests: "queue.SimpleQueue[Request]") -> None:
    """Pass requests on; end the process with the worker, even while a function runs."""
    try:
        while True:
            requests.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(1)


class _Runner:
    """A runner of functions, which connects to the database when one needs it."""

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._kit: EventKit | None = None

    def answer(self, request: Request) -> Answer:
        """Run the function and return its answer."""
        context: list[TaskContext] = []
        try:
            # Plain values, because a class of the function's module may be another class in the worker.
            result = self._run(request, context)
            return "returned", _plain(result), _settled(context)
        except BaseException as error:
            text = trace(error)
            return (*_portable(error, text), _settled(context))

    def _run(self, request: Request, context: list[TaskContext]) -> Any:
        module, path, name, batch, tasks = request
        found: Any = reduce(getattr, path.split("."), importlib.import_module(module))
        if isinstance(found, Function):
            function, signature = found.declaration.function, found.declaration.signature
        else:
            function, signature = found, Signature(found, name, batch=batch > 1)
        every = [signature.decode(task.payload.get("args", {})) for task in tasks]
        arguments: dict[str, Any] = every[0]
        if batch > 1:
            arguments = {name: [one[name] for one in every] for name in arguments}
        if signature.context is not None:
            context.append(TaskContext(tasks[0], self._connected()))
            arguments[signature.context] = context[0]
        return function(**arguments)

    def _connected(self) -> EventKit:
        if self._kit is None:
            if self._url is None:
                raise RuntimeError("a task in a process of its own connects by itself: give App or the worker a URL")
            self._kit = connect(self._url)
        return self._kit


def _settled(context: list[TaskContext]) -> bool:
    return bool(context) and context[0].settled


def _plain(result: Any) -> Any:
    try:
        plain = msgspec.to_builtins(result, str_keys=True)
        pickle.dumps(plain)
    except Exception as error:
        raise Refused(f"SERIALIZATION_ERROR: the work is done, but its result cannot be saved: {error}") from error
    return plain


def _portable(error: BaseException, text: str) -> tuple[str, Any]:
    """Return *error* pickled, with its traceback as a note; or only the text, if it cannot be pickled."""
    try:
        error.add_note(f"It was raised in another process:\n{text}")
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:
        return "failed", text
    return "raised", (data, text)
