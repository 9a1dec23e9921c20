"""What goes on in a child process: it runs one task after another, until its worker is gone."""

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
from ..app.function import Function
from ..app.running import Refused
from ..app.signature import Signature
from ..handling import trace
from ..kit import connect
from ..protocols import EventKit
from ..records import Task

Request = tuple[str, str, str, int, list[Task[Any]]]
"""The function's module and its name there; the name of the task, the size of its batches, and the tasks."""

Answer = tuple[str, Any, bool]
"""``returned`` and the result, ``raised`` with the pickled exception and its text, or ``failed`` and the text; and
whether the function has acked its task itself."""


def main(pipe: "Connection[Answer, Request]", url: str | None) -> None:
    """Answer the requests that come by *pipe*."""
    # A terminal and a service manager send these to everybody; when a child has to end is for its worker to say.
    # A handler of our own, because what is ignored would be ignored by all programs that the functions start.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, requests), name="eventkit-requests", daemon=True).start()
    runner = _Runner(url)
    while True:
        pipe.send(runner.answer(requests.get()))


def _receive(pipe: "Connection[Answer, Request]", requests: "queue.SimpleQueue[Request]") -> None:
    """Pass requests on; and end with the worker, also while a function runs."""
    try:
        while True:
            requests.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(1)


class _Runner:
    """Runs functions, and connects to the database when one wants to."""

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._kit: EventKit | None = None

    def answer(self, request: Request) -> Answer:
        """What the function came to."""
        context: list[TaskContext] = []
        try:
            # As plain values, because a class of the function's module may be another one to the worker.
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
    """*error* pickled, with the traceback that does not travel as a note; or, if it cannot be, the text alone."""
    try:
        error.add_note(f"It was raised in another process:\n{text}")
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:
        return "failed", text
    return "raised", (data, text)
