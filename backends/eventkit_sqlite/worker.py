"""A connection in a thread of its own, for asyncio.

apsw does this natively: an async connection is the same class, whose calls are awaited, and ``async_run``
runs a function in its thread, where the connection answers directly.  What is ours is the thread, so that
a kit which somebody forgot to close does not keep the interpreter from ending.  For the standard library's
driver, `StandardWorker` is the same in small.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import apsw
import apsw.aio

from .address import Address
from .file import File
from .library import Error, configure, open_connection

_CLOSING_TAKES = 5.0
"""Seconds after which a thread that does not answer is left alone."""

Worker = Any
"""An async apsw connection, or a `StandardWorker`."""


class Lane:
    """Runs calls one after another in a thread, and answers each in the event loop that it came from.

    It is a controller as apsw wants one.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[asyncio.Future[Any] | None, Callable[[], Any]] | None]
        self._calls = queue.SimpleQueue()
        threading.Thread(target=self._run, name="eventkit-sqlite", daemon=True).start()

    def configure(self, connection: apsw.Connection) -> None:
        """Set the new *connection* up; apsw leaves to its controller what it does itself where there is none."""
        for hook in apsw.connection_hooks:
            hook(connection)

    def send(self, call: Callable[[], Any]) -> "asyncio.Future[Any]":
        """The result of *call*, which is on its way at once, and runs even if nobody waits for it any more."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls.put((future, call))
        return future

    def post(self, call: Callable[[], Any]) -> None:
        """Run *call* when its turn has come; for those who cannot wait, as there may be no event loop."""
        self._calls.put((None, call))

    def close(self) -> None:
        """End the thread once it has done what was sent."""
        self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            self._answer(*item)
            # What nobody else has any more, as the connection to close, must not live until the next call.
            del item

    def _answer(self, future: "asyncio.Future[Any] | None", call: Callable[[], Any]) -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            result = call()
        except BaseException as error:
            failure = error
        if future is not None:
            # A loop that was closed meanwhile has nobody left to answer to.
            with contextlib.suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(_settle, future, result, failure)


class StandardWorker:
    """A connection of the standard library with the calls of an async apsw connection that are used here."""

    def __init__(self, connection: sqlite3.Connection, lane: Lane) -> None:
        self._connection = connection
        self.lane = lane

    def async_run(self, call: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        """The result of *call*, run in the connection's thread."""
        return self.lane.send(lambda: call(*arguments))

    async def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        """Execute *sql*; the cursor, whose rows are there already."""
        cursor: sqlite3.Cursor = await self.async_run(self._connection.execute, sql, parameters)
        return cursor

    async def aclose(self) -> None:
        """Close the connection and end its thread."""
        await self.async_run(self._connection.close)
        self.lane.close()

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection itself, for use in its thread."""
        return self._connection


async def open_worker(address: Address, file: File, busy_timeout: float) -> Worker:
    """A connection to the file, in a thread of its own."""
    try:
        if address.library == "sqlite3":
            lane = Lane()
            connection = await lane.send(
                lambda: open_connection(address.library, address.path, address.synchronous, busy_timeout)
            )
            return StandardWorker(connection, lane)
        worker = await open_in(Lane, apsw.Connection, address.path)
        await worker.async_run(configure, worker, address.synchronous, busy_timeout)
        return worker
    except Error as error:
        raise file.explain(error) from error


def open_in(lane: type[Lane], kind: type[apsw.Connection], *arguments: Any, **options: Any) -> Awaitable[Any]:
    """A connection of that *kind*, made with the arguments in the thread of a new *lane*."""
    token = apsw.async_controller.set(lane)  # type: ignore[arg-type]  # a controller by its shape
    try:
        return kind.as_async(*arguments, **options)
    finally:
        apsw.async_controller.reset(token)


def close_from_outside(worker: Worker) -> None:
    """Close the connection and end its thread, for a caller without an event loop."""
    closed = threading.Event()
    connection = connection_of(worker)
    lane = worker.lane if isinstance(worker, StandardWorker) else worker.async_controller

    def close() -> None:
        try:
            connection.close()
        finally:
            closed.set()

    lane.post(close)
    lane.close()
    closed.wait(_CLOSING_TAKES)


def connection_of(worker: Worker) -> Any:
    """The connection that is used inside the worker's thread."""
    return worker.connection if isinstance(worker, StandardWorker) else worker


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
