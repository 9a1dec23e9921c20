"""The connection of a kit, for threads and for asyncio.

Both flavours have one text: steps that yield what the driver returns, which is a value in one flavour and awaitable in
the other (`plans.drive`).
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolClosed, PoolTimeout

from eventkit.errors import Closed, Disconnected
from eventkit.fork import closed_or_forked, track
from eventkit.operations import Operation, Probe, Procedure, Scope
from eventkit.plans import Steps, Stop, drive, drive_async

from .address import Address, shown
from .errors import translated
from .session import (
    IDLE,
    PARTING,
    RECONNECTING,
    TAKEN_BACK,
    InUse,
    adapt,
    beginning,
    failed,
    options,
)
from .statements import FREE, AsyncKept, Kept, fetch, fetch_async, statements
from .transaction import Home, execute_in, unwrap
from .waking import Listener, Pause, Query, Waiter, sleep

T = TypeVar("T")


class _Connection:
    """The steps of both flavours."""

    _awaited: bool
    _pool: Any
    _fetch: Any

    def __init__(self, address: Address) -> None:
        self._address = address
        self._statements = statements(address.schema)
        self._connect_error: BaseException | None = None
        self._home = Home(address)
        self._in_use = InUse(address)
        self._begin = beginning(address)
        self._listener = Listener(address)
        self._process = os.getpid()
        self.closing = False
        """Whether `end_sleep` was called."""
        self._closed = False
        self._untrack: Callable[[], object] = lambda: None

    @property
    def max_payload(self) -> int:
        """The maximum size of a payload in bytes of JSON text."""
        return self._address.max_payload

    def end_sleep(self) -> None:
        """Make every current and future `sleep` return False, and bound the wait of every call."""
        self.closing = True
        self._listener.end_sleep()
        self._in_use.shorten_all()

    def forked(self) -> None:
        """Refuse further calls in a forked child, and leave the resources of the parent alone."""
        self._closed = self.closing = True
        self._listener.forked()

    def _options(self) -> dict[str, Any]:
        """Return the pool's arguments, except those of one flavour."""
        address = self._address
        return {
            "kwargs": {"autocommit": True, "failed": self._not_connected, **options(address, address.conninfo)},
            "min_size": address.min_size,
            "max_size": address.max_size,
            "timeout": max(address.busy_timeout, 0.1),
            "max_idle": IDLE,
            "reconnect_timeout": RECONNECTING,
        }

    def _opened(self) -> Steps[None]:
        """Wait for the first connection, because otherwise the first call opens one more."""
        try:
            yield self._pool.wait(self._pool.timeout)
        except PoolTimeout as error:
            raise self._without_connection(error) from self._connect_error
        self._untrack = track(self, shown(self._address.url), self._listener.stop)

    def _execute_in(self, operation: Operation[T], tx: Any) -> Steps[T]:
        """Execute *operation* in the caller's transaction, on the kit's database."""
        driver = yield from unwrap(tx, self._awaited)
        if not self._home.knows(driver):
            identity = yield from self._home.identity_of(driver)
            self._home.check(driver, identity, (yield from self._own(self._home.identity_of)))
        return (yield from execute_in(driver, self._statements, operation))

    def _execute(self, operation: Operation[T]) -> Steps[T]:
        """Execute *operation* in a transaction of its own, and again where it has had no effect."""
        deadline = monotonic() + self._address.busy_timeout
        while True:
            try:
                driver = yield from self._take()
                try:
                    return (yield from self._execute_on(driver, operation))
                finally:
                    yield self._give_back(driver)
            except psycopg.Error as error:
                known = translated(error, self._address, writing=operation.writes)
                again = isinstance(error, TAKEN_BACK) or (isinstance(known, Disconnected) and not operation.writes)
                if not again or monotonic() >= deadline or self.closing:
                    raise known or error from error

    def _execute_on(self, driver: Any, operation: Operation[T]) -> Steps[T]:
        free = FREE[operation.scope]
        if self._address.pooled:
            free = 0
        elif isinstance(operation, Procedure) and self._statements[operation.heading].sql:
            free = -1
        begun = False
        try:
            if free and operation.scope is Scope.NONE:
                return operation.decode((yield self._fetch(driver, self._statements, operation)))
            plan, rows = operation.plan(), None
            while True:
                try:
                    step = plan.send(rows)  # type: ignore[arg-type]  # None begins the plan
                except StopIteration as done:
                    answer: T = done.value
                    break
                if not free and not begun:
                    yield driver.execute(self._begin)
                    begun = True
                free -= 1
                rows = yield self._fetch(driver, self._statements, step)
            if begun:
                yield from self._commit(driver)
        except BaseException:
            yield from self._roll_back(driver)
            raise
        return answer

    def _sleep(
        self,
        probe: Probe,
        timeout: float | None,
        stop: Stop,
        ring: Callable[[], object],
        pause: Callable[[float | None], Any],
    ) -> Steps[bool]:
        waiter = Waiter(probe, ring)
        self._listener.add(waiter)
        stop.ring = ring
        plan = sleep(self._listener, waiter, timeout, stop)
        try:
            step = next(plan)
            while True:
                try:
                    match step:
                        case Pause(seconds):
                            answer = yield pause(seconds)
                        case Query(sql, parameters):
                            answer = yield from self._query(sql, parameters)
                        case _:
                            answer = yield self.execute(step)
                except Exception as error:
                    step = plan.throw(translated(error, self._address) or error)
                else:
                    step = plan.send(answer)
        except StopIteration as done:
            return bool(done.value)
        finally:
            self._listener.waiters.remove(waiter)

    def execute(self, operation: Operation[Any], tx: Any = None) -> Any:
        """Execute *operation* in *tx* if it is given, else in a transaction of its own, and return its result."""
        raise NotImplementedError

    def _query(self, sql: bytes, parameters: tuple[Any, ...]) -> Steps[Any]:
        def query(driver: Any) -> Steps[Any]:
            cursor = yield driver.execute(sql, parameters)
            return (yield cursor.fetchall())

        return (yield from self._own(query))

    def _own(self, use: Callable[[Any], Steps[T]]) -> Steps[T]:
        """Take the steps of *use* with a pooled connection."""
        driver = yield from self._take()
        try:
            return (yield from use(driver))
        finally:
            yield self._give_back(driver)

    def _take(self) -> Steps[Any]:
        task = asyncio.current_task() if self._awaited else None
        cancelled = task.cancelling() if task is not None else 0
        while True:
            try:
                driver = yield self._pool.getconn()
            except PoolClosed:
                raise self._reason() from None
            except PoolTimeout as error:
                raise self._without_connection(error) from self._connect_error
            if task is not None and task.cancelling() > cancelled:
                # On Python 3.11 a task cancelled just when the pool has a connection for it would lose the connection.
                yield self._pool.putconn(driver)
                raise asyncio.CancelledError
            if self._in_use.add(driver, task):
                return driver
            yield driver.close()
            yield self._pool.putconn(driver)

    def _give_back(self, driver: Any) -> Any:
        self._in_use.remove(driver)
        return self._pool.putconn(driver)

    def _take_begun(self) -> Steps[Any]:
        """Return a connection with an open transaction; try again if it is lost, because nothing has been done yet."""
        if self._closed:
            raise self._reason()
        while True:
            driver = yield from self._take()
            try:
                yield driver.execute(self._begin)
                return driver
            except BaseException as error:
                yield from self._roll_back(driver)
                yield self._give_back(driver)
                known = translated(error, self._address)
                if not isinstance(known, Disconnected):
                    raise known or error from error

    def _end(self, driver: Any) -> Steps[None]:
        """Commit the transaction of a block, unless the block has ended it."""
        if driver.info.transaction_status == TransactionStatus.INERROR:
            raise failed()
        if driver.info.transaction_status != TransactionStatus.IDLE:
            yield from self._commit(driver)

    def _commit(self, driver: Any) -> Steps[None]:
        try:
            yield driver.execute("COMMIT")
        except psycopg.Error as error:
            known = translated(error, self._address, writing=True)
            raise known if isinstance(known, Disconnected) else error from error

    def _roll_back(self, driver: Any) -> Steps[None]:
        if not driver.closed and driver.info.transaction_status != TransactionStatus.IDLE:
            driver.patience = PARTING
            with suppress(psycopg.OperationalError):  # A lost connection has rolled back.
                yield driver.rollback()

    def _connected(self, driver: Any) -> None:
        adapt(driver)
        driver.patience = PARTING
        self._home.own(driver)
        self._connect_error = None

    def _not_connected(self, error: BaseException) -> None:
        self._connect_error = error

    def _without_connection(self, error: PoolTimeout) -> Exception:
        return translated(self._connect_error or error, self._address) or error

    def _reason(self) -> Closed:
        return closed_or_forked(self._process)


class Connection(_Connection):
    """A connection that executes operations; see `eventkit.protocols.Connection`."""

    _awaited = False
    _fetch = staticmethod(fetch)

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._pool = ConnectionPool[Kept](
            address.conninfo,
            connection_class=Kept,
            configure=self._connected,
            reconnect_failed=lambda pool: pool.check(),  # Starts new attempts for the waiting calls.
            open=True,
            **self._options(),
        )
        drive(self._opened())

    def execute(self, operation: Operation[T], tx: Any = None) -> T:
        """Execute *operation* in *tx* if it is given, else in a transaction of its own, and return its result."""
        if self._closed:
            raise self._reason()
        return drive(self._execute(operation) if tx is None else self._execute_in(operation, tx))

    def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool:
        """Wait until *probe* is ready.  Return False after *timeout* seconds or after `end_sleep`."""
        bell = threading.Lock()
        bell.acquire()

        def ring() -> None:
            if bell.locked():
                bell.release()

        def pause(seconds: float | None) -> bool:
            return bell.acquire(timeout=-1 if seconds is None else min(seconds, threading.TIMEOUT_MAX))

        return drive(self._sleep(probe, timeout, stop or Stop(), ring, pause))

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Provide a transaction on a connection of its own: committed at the end, rolled back on an error."""
        driver = drive(self._take_begun())
        try:
            try:
                yield driver
                drive(self._end(driver))
            except BaseException:
                drive(self._roll_back(driver))
                raise
        finally:
            self._give_back(driver)

    def close(self) -> None:
        """End every sleep, and close the connections."""
        if self._closed:
            return
        self._closed = True
        self._untrack()
        self.end_sleep()
        self._listener.stop()
        self._pool.close()


class AsyncConnection(_Connection):
    """A connection that executes operations; see `eventkit.protocols.AsyncConnection`."""

    _awaited = True
    _fetch = staticmethod(fetch_async)

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._loop = asyncio.get_running_loop()
        self._working: set[asyncio.Future[Any]] = set()

        async def configure(driver: AsyncKept) -> None:
            self._connected(driver)

        self._pool = AsyncConnectionPool[AsyncKept](
            address.conninfo,
            connection_class=AsyncKept,
            configure=configure,
            reconnect_failed=lambda pool: pool.check(),  # Starts new attempts for the waiting calls.
            open=False,
            **self._options(),
        )

    @classmethod
    async def open(cls, address: Address) -> "AsyncConnection":
        """Return a connection to the database at *address*."""
        connection = cls(address)
        await connection._pool.open()
        await drive_async(connection._opened())
        return connection

    async def execute(self, operation: Operation[T], tx: Any = None) -> T:
        """Execute *operation* in *tx* if it is given, else in a transaction of its own, and return its result."""
        if self._closed:
            raise self._reason()
        if tx is not None:
            return await drive_async(self._execute_in(operation, tx))
        # A cancelled caller does not interrupt the exchange with the server, whose outcome would be unknown: the
        # operation finishes and is undone, and then the caller is cancelled.
        work = self._keep(drive_async(self._execute(operation)))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self._in_use.shorten_wait(work)
            await asyncio.wait({self._keep(self._take_back(operation, work))}, timeout=PARTING)
            raise

    async def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool:
        """Wait until *probe* is ready.  Return False after *timeout* seconds or after `end_sleep`."""
        bell = asyncio.Event()

        def ring() -> None:
            with suppress(RuntimeError):  # The loop may be closed before the kit.
                self._loop.call_soon_threadsafe(bell.set)

        async def pause(seconds: float | None) -> bool:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await bell.wait()
            rang = bell.is_set()
            bell.clear()
            return rang

        return await drive_async(self._sleep(probe, timeout, stop or Stop(), ring, pause))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """Provide a transaction on a connection of its own: committed at the end, rolled back on an error."""
        driver = await drive_async(self._take_begun())
        try:
            try:
                yield driver
                await drive_async(self._end(driver))
            except BaseException:
                await drive_async(self._roll_back(driver))
                raise
        finally:
            await self._give_back(driver)

    async def close(self) -> None:
        """End every sleep, finish running calls, and close the connections."""
        if self._closed:
            return
        self._closed = True
        self.end_sleep()
        while self._working:
            await asyncio.wait(self._working)
        self._untrack()
        await asyncio.to_thread(self._listener.stop)
        await self._pool.close()

    async def _take_back(self, operation: Operation[T], work: "asyncio.Future[T]") -> None:
        """Undo *operation* for a caller that was cancelled."""
        with suppress(Exception):
            undo = operation.undo(await work)
            if undo is not None:
                await drive_async(self._execute(undo))

    def _keep(self, work: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        """Return *work* as a task that continues without its caller, and that `close` waits for."""
        task = asyncio.ensure_future(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return task
