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
from collections.abc import Callable
from typing import Any

import apsw
import apsw.aio

from .address import Address
from .library import Error, configure, open_connection, translate

Worker = Any
"""An async apsw connection, or a `StandardWorker`."""


class Lane:
    """Runs calls one after another in a thread, and answers them in the event loop.

    It is a controller as apsw wants one.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="eventkit-sqlite", daemon=True).start()

    def configure(self, connection: Any) -> None:
        """Nothing is to be set up; apsw asks."""

    def send(self, call: Callable[[], Any]) -> "asyncio.Future[Any]":
        """The result of *call*, which is on its way at once, and runs even if nobody waits for it any more."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._calls.put((future, call))
        return future

    def close(self) -> None:
        """End the thread once it has done what was sent."""
        self._calls.put(None)

    def _run(self) -> None:
        # A loop that was closed without the kit has nobody left to answer to.
        with contextlib.suppress(RuntimeError):
            while (item := self._calls.get()) is not None:
                future, call = item
                try:
                    result = call()
                except BaseException as error:
                    self._loop.call_soon_threadsafe(_settle, future, None, error)
                else:
                    self._loop.call_soon_threadsafe(_settle, future, result, None)


class StandardWorker:
    """A connection of the standard library with the calls of an async apsw connection that are used here."""

    def __init__(self, connection: sqlite3.Connection, lane: Lane) -> None:
        self._connection = connection
        self._lane = lane

    def async_run(self, call: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        """The result of *call*, run in the connection's thread."""
        return self._lane.send(lambda: call(*arguments))

    async def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        """Execute *sql*; the cursor, whose rows are there already."""
        cursor: sqlite3.Cursor = await self.async_run(self._connection.execute, sql, parameters)
        return cursor

    async def aclose(self) -> None:
        """Close the connection and end its thread."""
        await self.async_run(self._connection.close)
        self._lane.close()

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection itself, for use in its thread."""
        return self._connection


async def open_worker(address: Address, busy_timeout: float) -> Worker:
    """A connection to the file, in a thread of its own."""
    try:
        if address.library == "sqlite3":
            lane = Lane()
            connection = await lane.send(
                lambda: open_connection(address.library, address.path, address.synchronous, busy_timeout)
            )
            return StandardWorker(connection, lane)
        token = apsw.async_controller.set(Lane)  # type: ignore[arg-type]  # a controller by its shape
        try:
            worker = await apsw.Connection.as_async(address.path)
        finally:
            apsw.async_controller.reset(token)
        await worker.async_run(configure, worker, address.synchronous, busy_timeout)
        return worker
    except Error as error:
        raise translate(error, address.path) from error


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
