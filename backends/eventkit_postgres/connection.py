"""The sync connection to a Postgres database.  `connection_async` is the same for asyncio."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from eventkit.errors import Closed, Disconnected
from eventkit.fork import closed_or_forked, track
from eventkit.operations import Operation, Probe, Rows
from eventkit.plans import Stop, run

from .address import Address, shown
from .errors import translated
from .session import IDLE, PARTING, RECONNECTING, TAKEN_BACK, InUse, adapt, beginning, failed, options
from .statements import FREE, Kept, fetch_alone, statements
from .transaction import Home, execute_in, unwrap
from .waking import Listener, Pause, Query, Step, Waiter, sleep

T = TypeVar("T")
Driver = Kept


class Connection:
    """A connection that executes operations; see `eventkit.protocols.Connection`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._statements = statements(address.schema)
        self._connect_error: BaseException | None = None
        self._home = Home(address)
        self._in_use = InUse(address)
        self._pool: ConnectionPool[Driver] = ConnectionPool(
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
            open=True,
        )
        self._begin = beginning(address)
        self._listener = Listener(address)
        self._process = os.getpid()
        self._closed = False
        try:
            self._pool.wait(self._pool.timeout)  # Otherwise the first call opens one more.
        except PoolTimeout as error:
            raise self._without_connection(error) from self._connect_error
        self._untrack = track(self, shown(address.url), self._listener.stop)

    @property
    def max_payload(self) -> int:
        """The maximum size of a payload in bytes of JSON text."""
        return self._address.max_payload

    @property
    def closing(self) -> bool:
        """Whether `end_sleep` was called."""
        return self._listener.closing

    def execute(self, operation: Operation[T], tx: Any = None) -> T:
        """Execute *operation* in *tx* if it is given, else in a transaction of its own, and return its result."""
        if self._closed:
            raise self._reason()
        if tx is not None:
            driver = unwrap(tx)
            if not self._home.knows(driver):
                identity = self._home.identity_of(driver)
                self._home.check(driver, identity, lambda: self._own(self._home.identity_of))
            return execute_in(driver, self._statements, operation)
        deadline = monotonic() + self._address.busy_timeout
        while True:
            try:
                answer: T = self._own(lambda driver: self._execute_on(driver, operation))
                return answer
            except psycopg.Error as error:
                known = translated(error, self._address, writing=operation.writes)
                again = isinstance(error, TAKEN_BACK) or (isinstance(known, Disconnected) and not operation.writes)
                if not again or monotonic() >= deadline or self.closing:
                    raise known or error from error

    def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool:
        """Wait until *probe* is ready.  Return False after *timeout* seconds or after `end_sleep`."""
        stop = stop or Stop()
        bell = threading.Lock()

        def ring() -> None:
            if bell.locked():
                bell.release()

        def carry_out(step: Step) -> Any:
            match step:
                case Pause(seconds):
                    return bell.acquire(timeout=-1 if seconds is None else min(seconds, threading.TIMEOUT_MAX))
                case Query(sql, parameters):
                    return self._own(lambda driver: driver.execute(sql, parameters).fetchall())
            return self.execute(step)

        waiter = Waiter(probe, ring)
        bell.acquire(blocking=False)
        self._listener.add(waiter)
        stop.ring = ring
        plan = sleep(self._listener, waiter, timeout, stop)
        try:
            step = next(plan)
            while True:
                try:
                    answer = carry_out(step)
                except Exception as error:
                    step = plan.throw(translated(error, self._address) or error)
                else:
                    step = plan.send(answer)
        except StopIteration as done:
            return bool(done.value)
        finally:
            self._listener.waiters.remove(waiter)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Provide a transaction on a connection of its own: committed at the end, rolled back on an error."""
        if self._closed:
            raise self._reason()
        driver = self._take_begun()
        try:
            try:
                yield driver
                if driver.info.transaction_status == TransactionStatus.INERROR:
                    raise failed()
                if driver.info.transaction_status != TransactionStatus.IDLE:
                    self._commit(driver)
            except BaseException:
                self._roll_back(driver)
                raise
        finally:
            self._give_back(driver)

    def rouse(self) -> None:
        """Make every `sleep` check again."""
        self._listener.waiters.ring_all()

    def end_sleep(self) -> None:
        """Make every current and future `sleep` return False, and bound the wait of every call."""
        self._listener.end_sleep()
        self._in_use.shorten_all()

    def close(self) -> None:
        """End every sleep, and close the connections."""
        if self._closed:
            return
        self._closed = True
        self._untrack()
        self.end_sleep()
        self._listener.stop()
        self._pool.close()

    def forked(self) -> None:
        """Refuse further calls in a forked child, and leave the resources of the parent alone."""
        self._closed = True
        self._listener.forked()

    def _own(self, use: Any) -> Any:
        """Call *use* with a pooled connection, and return its result."""
        driver = self._take()
        try:
            return use(driver)
        finally:
            self._give_back(driver)

    def _take(self) -> Driver:
        while True:
            try:
                driver = self._pool.getconn()
            except PoolClosed:
                raise self._reason() from None
            except PoolTimeout as error:
                raise self._without_connection(error) from self._connect_error
            if self._in_use.usable(driver):
                self._in_use.add(driver)
                return driver
            driver.close()
            self._pool.putconn(driver)

    def _give_back(self, driver: Driver) -> None:
        self._in_use.remove(driver)
        self._pool.putconn(driver)

    def _take_begun(self) -> Driver:
        """Return a connection with an open transaction; try again if it is lost, because nothing has been done yet."""
        while True:
            driver = self._take()
            try:
                driver.execute(self._begin)
                return driver
            except BaseException as error:
                self._roll_back(driver)
                self._give_back(driver)
                known = translated(error, self._address)
                if not isinstance(known, Disconnected):
                    raise known or error from error

    def _commit(self, driver: Driver) -> None:
        try:
            driver.execute("COMMIT")
        except psycopg.Error as error:
            known = translated(error, self._address, writing=True)
            raise known if isinstance(known, Disconnected) else error from error

    def _execute_on(self, driver: Driver, operation: Operation[T]) -> T:
        free = 0 if self._address.pooled else FREE[operation.scope]
        begun = False

        def step(step: Operation[Any]) -> Rows:
            nonlocal free, begun
            if not free and not begun:
                driver.execute(self._begin)
                begun = True
            free -= 1
            return fetch_alone(driver, self._statements, step)

        try:
            answer = run(operation.plan(), step)
            if begun:
                self._commit(driver)
        except BaseException:
            self._roll_back(driver)
            raise
        return answer

    def _roll_back(self, driver: Driver) -> None:
        if not driver.closed and driver.info.transaction_status != TransactionStatus.IDLE:
            driver.patience = PARTING
            with suppress(psycopg.OperationalError):  # A lost connection has rolled back.
                driver.rollback()

    def _connected(self, driver: Driver) -> None:
        adapt(driver)
        driver.patience = PARTING
        self._home.own(driver)
        self._connect_error = None

    def _not_connected(self, error: BaseException) -> None:
        self._connect_error = error

    def _still_unconnected(self, pool: ConnectionPool[Driver]) -> None:
        pool.check()  # Starts new attempts for the waiting calls.

    def _without_connection(self, error: PoolTimeout) -> Exception:
        return translated(self._connect_error or error, self._address) or error

    def _reason(self) -> Closed:
        return closed_or_forked(self._process)
