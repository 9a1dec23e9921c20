"""A kit's way to a Postgres database, for threads.  `connection_async` is the same for asyncio."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from eventkit.children import closed_or_forked, track
from eventkit.errors import Closed, Disconnected
from eventkit.execute import run
from eventkit.operations import Operation, Probe, Rows
from eventkit.stopping import Stop

from .address import Address, shown
from .errors import translated
from .listener import Listener
from .napping import Pause, Query, Step, nap
from .session import IDLE, PARTING, RECONNECTING, TAKEN_BACK, InUse, adapt, beginning, failed, options
from .statements import Kept, fetch_alone, statements
from .transaction import Home, execute_in, unwrap
from .waiters import Waiter

T = TypeVar("T")
Driver = Kept


class Connection:
    """Executes operations; see `eventkit.protocols.Connection`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._statements = statements(address.schema)
        self._trouble: BaseException | None = None
        self._home = Home(address)
        self._in_use = InUse(address)
        self._pool: ConnectionPool[Driver] = ConnectionPool(
            address.conninfo,
            connection_class=Driver,
            kwargs={"autocommit": True, **options(address, address.conninfo)},
            min_size=address.min_size,
            max_size=address.max_size,
            timeout=max(address.busy_timeout, 0.1),
            configure=self._connected,
            max_idle=IDLE,
            reconnect_timeout=RECONNECTING,
            reconnect_failed=self._unconnected,
            open=True,
        )
        self._begin = beginning(address)
        self._listener = Listener(address)
        self._process = os.getpid()
        self._closed = False
        try:
            self._pool.wait(self._pool.timeout)  # Or the first call would open one more.
        except PoolTimeout as error:
            raise self._without_connection(error) from self._trouble
        self._untrack = track(self, shown(address.url), self._listener.stop)

    @property
    def max_payload(self) -> int:
        """The most bytes of JSON text that a payload may have."""
        return self._address.max_payload

    @property
    def closing(self) -> bool:
        """Whether `end_sleep` was called."""
        return self._listener.closing

    def execute(self, operation: Operation[T], tx: Any = None) -> T:
        """The answer to *operation*: in *tx* if it is given, else in a transaction of its own."""
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
        """Wait until *probe* is ready; False when *timeout* seconds have passed, or sleeping has ended."""
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
        plan = nap(self._listener, waiter, timeout, stop)
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
        """A transaction on a connection of its own: committed at the end, rolled back on an error."""
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
        """Let every `sleep` look again."""
        self._listener.waiters.ring_all()

    def end_sleep(self) -> None:
        """Let every `sleep` return False, and no call wait for long, now and from now on."""
        self._listener.end_sleep()
        self._in_use.part()

    def close(self) -> None:
        """End every sleep, and let go of the database."""
        if self._closed:
            return
        self._closed = True
        self._untrack()
        self.end_sleep()
        self._listener.stop()
        self._pool.close()

    def forked(self) -> None:
        """This is a child process now: refuse to work, and never touch what belongs to the parent."""
        self._closed = True
        self._listener.forked()

    def _own(self, use: Any) -> Any:
        """What *use* makes of a connection of the pool."""
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
                raise self._without_connection(error) from self._trouble
            if self._in_use.usable(driver):
                self._in_use.add(driver)
                return driver
            driver.close()
            self._pool.putconn(driver)

    def _give_back(self, driver: Driver) -> None:
        self._in_use.remove(driver)
        self._pool.putconn(driver)

    def _take_begun(self) -> Driver:
        """A connection with a transaction open; what breaks before there is one costs nobody anything."""
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
        statement = self._statements.get(type(operation))
        alone = not operation.writes or (statement is not None and statement.single)
        # How many statements go without a transaction: all, the first, or none.
        free = -1 if alone else 1 if operation.first_alone else 0
        if self._address.pooled:
            free = 0
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
            with suppress(psycopg.OperationalError):  # Without a connection there is nothing left of it.
                driver.rollback()

    def _connected(self, driver: Driver) -> None:
        adapt(driver)
        driver.patience = PARTING
        self._home.own(driver)
        self._trouble = None

    def _unconnected(self, pool: ConnectionPool[Driver]) -> None:
        """The pool calls this while it handles what a connection failed of."""
        self._trouble = sys.exception()
        pool.check()  # Lets it begin anew, whoever may be waiting.

    def _without_connection(self, error: PoolTimeout) -> Exception:
        return translated(self._trouble or error, self._address) or error

    def _reason(self) -> Closed:
        return closed_or_forked(self._process)
