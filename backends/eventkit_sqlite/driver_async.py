"""A driver for asyncio: `dbapi` on apsw's async connections, each in a thread of its own.

An async connection of apsw is the same class, whose calls are awaited and carried out in the connection's
thread. What `dbapi` adds works there as it does elsewhere; here is the way to it and back.

A call that is cancelled stops soon: a statement that runs ends with `apsw.InterruptError`, one that waits for a
lock with `apsw.BusyError`, and the next call waits for neither. SQLite may have rolled the transaction back
then, and nobody knows what the call has done: such a connection is to be closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from threading import get_ident
from time import monotonic, sleep
from typing import Any
from weakref import ref

import apsw

from . import dbapi
from .worker import Lane, open_in

_STEPS = 50_000
"""Of SQLite's machine, about a millisecond: so often a statement asks whether its caller still waits."""

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.02


class Cursor(dbapi.Cursor):
    """A cursor whose calls are awaited."""

    async def __aenter__(self) -> Cursor:
        return self

    def execute(  # type: ignore[override]
        self, statements: str, bindings: apsw.Bindings | None = None, **options: Any
    ) -> Awaitable[dbapi.Cursor]:
        """Execute; a statement that returns rows begins to run, and goes on as they are fetched."""
        return self._run(super().execute, statements, bindings, **options)

    def executemany(  # type: ignore[override]
        self, statements: str, sequenceofbindings: Iterable[apsw.Bindings], **options: Any
    ) -> Awaitable[dbapi.Cursor]:
        """Execute once for each of the bindings. Rows that the statement returns are dropped."""
        return self._run(super().executemany, statements, sequenceofbindings, **options)

    def fetchmany(self, size: int | None = None) -> Awaitable[list[Any]]:  # type: ignore[override]
        """The next rows, *size* at most."""
        return self._run(super().fetchmany, size)

    def query(self, statements: str, bindings: apsw.Bindings | None = None) -> Awaitable[list[Any]]:
        """Execute, and fetch all rows, in one go."""
        return self._run(self._query, statements, bindings)

    def _query(self, statements: str, bindings: apsw.Bindings | None) -> list[Any]:
        dbapi.Cursor.execute(self, statements, bindings)
        return self.fetchall() if self.description else []

    def _run(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Awaitable[Any]:
        return self.connection.async_run(call, *arguments, **options)  # type: ignore[attr-defined, no-any-return]


class Connection(dbapi.Connection):
    """An async `apsw.Connection` that begins, commits and rolls back when told to. `connect` makes one."""

    writing = False
    """Whether the transaction has the write lock, as far as the last call of this class knows."""

    def __init__(self, database: str, *, timeout: float = 5.0, **options: Any) -> None:
        super().__init__(database, timeout=timeout, **options)
        lane = self.async_controller
        assert isinstance(lane, CancellableLane)
        lane.timeout = timeout
        self.cursor_factory = Cursor
        self.set_progress_handler(lane.is_unwanted, _STEPS, id=lane)
        # SQLite's own way to wait would sleep through a cancellation, and then take the lock.
        self.set_busy_handler(lane.wait_for_lock)
        self.path: str = self.db_filename("main")
        self._beginner: tuple[Callable[[], object], int] | None = None

    def begin(self) -> Awaitable[None]:  # type: ignore[override]
        """Begin a transaction, which belongs to the current task."""
        task = asyncio.current_task()
        self._beginner = (ref(task) if task else _nobody, get_ident())
        return self.async_run(super().begin)

    def commit(self) -> Awaitable[None]:  # type: ignore[override]
        """Commit, if there is a transaction. After `apsw.BusyError` it is still open."""
        return self.async_run(super().commit)

    def rollback(self) -> Awaitable[None]:  # type: ignore[override]
        """Roll back, if there is a transaction."""
        return self.async_run(super().rollback)

    def create_function(  # type: ignore[override]
        self, name: str, narg: int, func: Callable[..., Any] | None, *, deterministic: bool = False
    ) -> Awaitable[None]:
        """Register a scalar function, which will run in the connection's thread."""
        return self.async_run(super().create_function, name, narg, func, deterministic=deterministic)

    def holds_up(self, caller: object) -> bool:
        """Whether *caller*, a task or the ident of a thread, has begun a transaction here that has the write lock."""
        if not self.writing or self._beginner is None:
            return False
        task, loop_thread = self._beginner
        return caller in (task(), loop_thread)

    def async_run(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Awaitable[Any]:
        """What *call* returns in the connection's thread."""
        return super().async_run(self._noting, call, *arguments, **options)  # type: ignore[misc, no-any-return]

    def _noting(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            return call(*arguments, **options)
        finally:
            # Whoever wants to know it is in another thread, and must not wait for this one.
            self.writing = self.txn_state("main") == apsw.SQLITE_TXN_WRITE


class CancellableLane(Lane):
    """A connection's thread that knows whether anybody still waits for what it is doing."""

    timeout = 0.0
    """How many seconds to wait for a lock."""

    _current: asyncio.Future[Any] | None = None
    _deadline = 0.0

    def is_unwanted(self) -> bool:
        """Whether the call that is running was cancelled."""
        return self._current is not None and self._current.cancelled()

    def wait_for_lock(self, tries: int) -> bool:
        """Wait a moment; False when it has been long enough, or nobody waits for it."""
        now = monotonic()
        if not tries:
            self._deadline = now + self.timeout
        if now >= self._deadline or self.is_unwanted():
            return False
        sleep(min(_FIRST_PAUSE * 2 ** min(tries, 10), _LONGEST_PAUSE, self._deadline - now))
        return True

    def _answer(self, future: asyncio.Future[Any] | None, call: Callable[[], Any]) -> None:
        self._current = future
        super()._answer(future, call)
        self._current = None


def connect(database: str, **options: Any) -> Awaitable[Connection]:
    """A connection; see `dbapi.Connection`."""
    return open_in(CancellableLane, Connection, database, **options)


def close_soon(connection: Connection) -> None:
    """Close *connection* without waiting for it; there may be no event loop."""
    with suppress(apsw.ConnectionClosedError):
        connection.async_controller.post(partial(connection.close, True))  # type: ignore[attr-defined]


def _nobody() -> None:
    return None
