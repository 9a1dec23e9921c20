"""The asyncio connection to a Postgres database.  `connection` is the same for threads."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from eventkit.errors import Closed, Disconnected
from eventkit.fork import closed_or_forked, track
from eventkit.operations import Operation, Probe, Rows
from eventkit.plans import Stop, run_async

from .address import Address, shown
from .errors import translated
from .session import IDLE, PARTING, RECONNECTING, TAKEN_BACK, InUse, adapt, beginning, failed, options
from .statements import FREE, AsyncKept, fetch_alone_async, statements
from .transaction import Home, execute_in_async, unwrap_async
from .waking import Listener, Pause, Query, Step, Waiter, sleep

T = TypeVar("T")
Driver = AsyncKept


class AsyncConnection:
    """A connection that executes operations; see `eventkit.protocols.AsyncConnection`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._statements = statements(address.schema)
        self._connect_error: BaseException | None = None
        self._home = Home(address)
        self._in_use = InUse(address)
        self._loop = asyncio.get_running_loop()
        self._pool: AsyncConnectionPool[Driver] = AsyncConnectionPool(
            address.conninfo,
            connection_class=Driver,
            kwargs={"autocommit": True, "failed": self._not_connected, **options(address, address.conninfo)},
            min_size=address.min_size,
            max_size=address.max_size,
            timeout=max(address.busy_timeout, 0.1),
            configure=self._connected,
            max_idle=IDLE,
            reconnect_timeout=RECONNECTING,
            reconnect_failed=self._still_unconnected,
            open=False,
        )
        self._begin = beginning(address)
        self._listener = Listener(address)
        self._working: set[asyncio.Future[Any]] = set()
        self._process = os.getpid()
        self._closed = False
        self._untrack: Callable[[], object] = lambda: None

    @classmethod
    async def open(cls, address: Address) -> "AsyncConnection":
        """Return a connection to the database at *address*."""
        connection = cls(address)
        await connection._pool.open()
        try:
            await connection._pool.wait(connection._pool.timeout)  # Otherwise the first call opens one more.
        except PoolTimeout as error:
            raise connection._without_connection(error) from connection._connect_error
        connection._untrack = track(connection, shown(address.url), connection._listener.stop)
        return connection

    @property
    def max_payload(self) -> int:
        """The maximum size of a payload in bytes of JSON text."""
        return self._address.max_payload

    @property
    def closing(self) -> bool:
        """Whether `end_sleep` was called."""
        return self._listener.closing

    async def execute(self, operation: Operation[T], tx: Any = None) -> T:
        """Execute *operation* in *tx* if it is given, else in a transaction of its own, and return its result."""
        if self._closed:
            raise self._reason()
        if tx is not None:
            driver = await unwrap_async(tx)
            if not self._home.knows(driver):
                identity = await self._home.identity_of_async(driver)
                await self._home.check_async(driver, identity, lambda: self._own(self._home.identity_of_async))
            return await execute_in_async(driver, self._statements, operation)
        # A cancelled caller does not interrupt the exchange with the server, whose outcome would be unknown: the
        # operation finishes and is undone, and then the caller is cancelled.
        work = self._keep(self._execute(operation))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self._in_use.shorten_wait(work)
            await asyncio.wait({self._keep(self._take_back(operation, work))}, timeout=PARTING)
            raise

    async def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool:
        """Wait until *probe* is ready.  Return False after *timeout* seconds or after `end_sleep`."""
        stop = stop or Stop()
        bell = asyncio.Event()

        def ring() -> None:
            with suppress(RuntimeError):  # The loop may be closed before the kit.
                self._loop.call_soon_threadsafe(bell.set)

        async def carry_out(step: Step) -> Any:
            match step:
                case Pause(seconds):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(seconds):
                            await bell.wait()
                    rang = bell.is_set()
                    bell.clear()
                    return rang
                case Query(sql, parameters):
                    return await self._own(lambda driver: _query(driver, sql, parameters))
            return await self.execute(step)

        waiter = Waiter(probe, ring)
        self._listener.add(waiter)
        stop.ring = ring
        plan = sleep(self._listener, waiter, timeout, stop)
        try:
            step = next(plan)
            while True:
                try:
                    answer = await carry_out(step)
                except Exception as error:
                    step = plan.throw(translated(error, self._address) or error)
                else:
                    step = plan.send(answer)
        except StopIteration as done:
            return bool(done.value)
        finally:
            self._listener.waiters.remove(waiter)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """Provide a transaction on a connection of its own: committed at the end, rolled back on an error."""
        if self._closed:
            raise self._reason()
        driver = await self._take_begun()
        try:
            try:
                yield driver
                if driver.info.transaction_status == TransactionStatus.INERROR:
                    raise failed()
                if driver.info.transaction_status != TransactionStatus.IDLE:
                    await self._commit(driver)
            except BaseException:
                await self._roll_back(driver)
                raise
        finally:
            await self._give_back(driver)

    def rouse(self) -> None:
        """Make every `sleep` check again."""
        self._listener.waiters.ring_all()

    def end_sleep(self) -> None:
        """Make every current and future `sleep` return False, and bound the wait of every call."""
        self._listener.end_sleep()
        self._in_use.shorten_all()

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

    def forked(self) -> None:
        """Refuse further calls in a forked child, and leave the resources of the parent alone."""
        self._closed = True
        self._listener.forked()

    async def _execute(self, operation: Operation[T]) -> T:
        deadline = monotonic() + self._address.busy_timeout
        while True:
            try:
                answer: T = await self._own(lambda driver: self._execute_on(driver, operation))
                return answer
            except psycopg.Error as error:
                known = translated(error, self._address, writing=operation.writes)
                again = isinstance(error, TAKEN_BACK) or (isinstance(known, Disconnected) and not operation.writes)
                if not again or monotonic() >= deadline or self.closing:
                    raise known or error from error

    async def _take_back(self, operation: Operation[T], work: "asyncio.Future[T]") -> None:
        """Undo *operation* for a caller that was cancelled."""
        with suppress(Exception):
            undo = operation.undo(await work)
            if undo is not None:
                await self._execute(undo)

    def _keep(self, work: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        """Return *work* as a task that continues without its caller, and that `close` waits for."""
        task = asyncio.ensure_future(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return task

    async def _own(self, use: Any) -> Any:
        """Call *use* with a pooled connection, and return its result."""
        driver = await self._take()
        try:
            return await use(driver)
        finally:
            await self._give_back(driver)

    async def _take(self) -> Driver:
        task = asyncio.current_task()
        assert task is not None
        cancelled = task.cancelling()
        while True:
            try:
                driver = await self._pool.getconn()
            except PoolClosed:
                raise self._reason() from None
            except PoolTimeout as error:
                raise self._without_connection(error) from self._connect_error
            if task.cancelling() > cancelled:
                # On Python 3.11 a task cancelled just when the pool has a connection for it would lose the connection.
                await self._pool.putconn(driver)
                raise asyncio.CancelledError
            if self._in_use.usable(driver):
                self._in_use.add(driver, task)
                return driver
            await driver.close()
            await self._pool.putconn(driver)

    async def _give_back(self, driver: Driver) -> None:
        self._in_use.remove(driver)
        await self._pool.putconn(driver)

    async def _take_begun(self) -> Driver:
        """Return a connection with an open transaction; try again if it is lost, because nothing has been done yet."""
        while True:
            driver = await self._take()
            try:
                await driver.execute(self._begin)
                return driver
            except BaseException as error:
                await self._roll_back(driver)
                await self._give_back(driver)
                known = translated(error, self._address)
                if not isinstance(known, Disconnected):
                    raise known or error from error

    async def _commit(self, driver: Driver) -> None:
        try:
            await driver.execute("COMMIT")
        except psycopg.Error as error:
            known = translated(error, self._address, writing=True)
            raise known if isinstance(known, Disconnected) else error from error

    async def _execute_on(self, driver: Driver, operation: Operation[T]) -> T:
        free = 0 if self._address.pooled else FREE[operation.scope]
        begun = False

        async def step(step: Operation[Any]) -> Rows:
            nonlocal free, begun
            if not free and not begun:
                await driver.execute(self._begin)
                begun = True
            free -= 1
            return await fetch_alone_async(driver, self._statements, step)

        try:
            answer = await run_async(operation.plan(), step)
            if begun:
                await self._commit(driver)
        except BaseException:
            await self._roll_back(driver)
            raise
        return answer

    async def _roll_back(self, driver: Driver) -> None:
        if not driver.closed and driver.info.transaction_status != TransactionStatus.IDLE:
            driver.patience = PARTING
            with suppress(psycopg.OperationalError):  # A lost connection has rolled back.
                await driver.rollback()

    async def _connected(self, driver: Driver) -> None:
        adapt(driver)
        driver.patience = PARTING
        self._home.own(driver)
        self._connect_error = None

    def _not_connected(self, error: BaseException) -> None:
        self._connect_error = error

    async def _still_unconnected(self, pool: AsyncConnectionPool[Driver]) -> None:
        await pool.check()  # Starts new attempts for the waiting calls.

    def _without_connection(self, error: PoolTimeout) -> Exception:
        return translated(self._connect_error or error, self._address) or error

    def _reason(self) -> Closed:
        return closed_or_forked(self._process)


async def _query(driver: Driver, sql: bytes, parameters: tuple[Any, ...]) -> Rows:
    return await (await driver.execute(sql, parameters)).fetchall()
