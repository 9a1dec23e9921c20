"""A connection in a thread of its own, for asyncio.

apsw supports this natively: an async connection is the same class, whose calls are awaited, and ``async_run``
runs a function in its thread, where the connection answers directly.  eventkit supplies the thread, so that
a kit that was not closed does not keep the interpreter from ending.  For the standard library's driver,
`StandardWorker` has the same interface.
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
"""Seconds after which `close` no longer waits for a thread."""

Worker = Any
"""An async apsw connection, or a `StandardWorker`."""


class ThreadExecutor:
    """A thread that runs calls one after another, and delivers each result in the event loop of its call.

    It implements apsw's controller protocol.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[asyncio.Future[Any] | None, Callable[[], Any]] | None]
        self._calls = queue.SimpleQueue()
        threading.Thread(target=self._run, name="eventkit-sqlite", daemon=True).start()

    def configure(self, connection: apsw.Connection) -> None:
        """Configure the new *connection* as apsw does without a controller."""
        for hook in apsw.connection_hooks:
            hook(connection)

    def send(self, call: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Start *call*, and return a future for its result; it runs even if the future is cancelled."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls.put((future, call))
        return future

    def post(self, call: Callable[[], Any]) -> None:
        """Run *call* in its turn, without a result: the caller may have no event loop."""
        self._calls.put((None, call))

    def close(self) -> None:
        """End the thread after the calls that were sent."""
        self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            self._answer(*item)
            # The last reference, such as the one to a connection to close, must not live until the next call.
            del item

    def _answer(self, future: "asyncio.Future[Any] | None", call: Callable[[], Any]) -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            result = call()
        except BaseException as error:
            failure = error
        if future is not None:
            # The loop may be closed by now.
            with contextlib.suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(_settle, future, result, failure)


class StandardWorker:
    """A connection of the standard library with the calls of an async apsw connection that are used here."""

    def __init__(self, connection: sqlite3.Connection, executor: ThreadExecutor) -> None:
        self._connection = connection
        self.executor = executor

    def async_run(self, call: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        """Return the result of *call*, run in the connection's thread."""
        return self.executor.send(lambda: call(*arguments))

    async def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        """Execute *sql*, and return the cursor, whose rows are fetched already."""
        cursor: sqlite3.Cursor = await self.async_run(self._connection.execute, sql, parameters)
        return cursor

    async def aclose(self) -> None:
        """Close the connection and end its thread."""
        await self.async_run(self._connection.close)
        self.executor.close()

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection itself, for use in its thread."""
        return self._connection


async def open_worker(address: Address, file: File, busy_timeout: float) -> Worker:
    """Return a connection to the file, in a thread of its own."""
    try:
        if address.library == "sqlite3":
            executor = ThreadExecutor()
            connection = await executor.send(
                lambda: open_connection(address.library, address.path, address.synchronous, busy_timeout)
            )
            return StandardWorker(connection, executor)
        worker = await open_in(ThreadExecutor, apsw.Connection, address.path)
        await worker.async_run(configure, worker, address.synchronous, busy_timeout)
        return worker
    except Error as error:
        raise file.explain(error) from error


def open_in(
    controller: type[ThreadExecutor], kind: type[apsw.Connection], *arguments: Any, **options: Any
) -> Awaitable[Any]:
    """Return a connection of type *kind*, created with the arguments in the thread of a new *controller*."""
    token = apsw.async_controller.set(controller)  # type: ignore[arg-type]  # a controller by its shape
    try:
        return kind.as_async(*arguments, **options)
    finally:
        apsw.async_controller.reset(token)


def close_from_outside(worker: Worker) -> None:
    """Close the connection and end its thread, for a caller without an event loop."""
    closed = threading.Event()
    connection = connection_of(worker)
    executor = worker.executor if isinstance(worker, StandardWorker) else worker.async_controller

    def close() -> None:
        try:
            connection.close()
        finally:
            closed.set()

    executor.post(close)
    executor.close()
    closed.wait(_CLOSING_TAKES)


def connection_of(worker: Worker) -> Any:
    """Return the connection for use inside the worker's thread."""
    return worker.connection if isinstance(worker, StandardWorker) else worker


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
