"""The sync connection to a SQLite file: a writer for all threads, readers beside it, and a watcher to wait on."""

import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from time import monotonic, sleep
from typing import Any, Generic, TypeVar

from eventkit.fork import closed, closed_or_forked, track
from eventkit.operations import Operation, Probe, Scope
from eventkit.plans import Stop, run

from .address import Address
from .file import File, acquire
from .library import Connection as Driver
from .library import Error, open_connection
from .statements import fetch
from .transaction import execute_in, raise_if_busy, unwrap
from .watcher import Waiter
from .writer import Job, Writer

T = TypeVar("T")

_READERS = 16
"""The number of concurrent reads, which bounds the connections that many waiting threads open."""


class BaseConnection:
    """The parts of a kit's connection that are the same for threads and for asyncio."""

    def __init__(self, address: Address, file: File, driver: Driver) -> None:
        self.max_payload = address.max_payload
        """The maximum size of a payload in bytes of JSON text."""
        self.closing = False
        """Whether `end_sleep` was called."""
        self._address = address
        self._file = file
        self._writer = Writer(address, file, driver)
        self._process = os.getpid()
        self._closed = False

    def _committed(self) -> None:
        """Let the watcher poll at once after a commit of this process, if there are waiters."""
        if self._file.watcher.waiters:
            self._file.watcher.committed()

    def forked(self) -> None:
        """Refuse further calls in a forked child, and leave the resources of the parent alone."""
        self._closed = self.closing = True

    def _looks(
        self, waiter: Waiter, clear: Callable[[], object], timeout: float | None, stop: Stop | None
    ) -> Generator[Any, Any, bool]:
        """Yield the steps of `sleep`: the probe to read, and seconds to wait for a ring since *clear* was called."""
        stop = stop or Stop()
        deadline = inf if timeout is None else monotonic() + timeout
        self._file.watcher.add(waiter)
        stop.ring = waiter.wake
        while True:
            waiter.seen = waiter.answer = None
            # Cleared before the conditions are checked: a ring in between must not be lost.
            clear()
            if self.closing or stop.is_set:
                return False
            if waiter.error is not None:
                raise waiter.error
            waiter.seen = readiness = yield waiter.probe
            if readiness.ready:
                return True
            left = deadline - monotonic()
            if left <= 0:
                return False
            yield left if readiness.delay is None else min(left, readiness.delay)
            # The watcher's own look justifies a read without another one.
            if waiter.answer is not None and waiter.answer.ready and not (self.closing or stop.is_set):
                return True


class Connection(BaseConnection):
    """A connection that executes operations; see `eventkit.protocols.Connection`."""

    def __init__(self, address: Address) -> None:
        file = acquire(address)
        try:
            driver = _opened(address, file, 0)
            file.opened(driver)
        except BaseException as error:
            file.release()
            if isinstance(error, Error):
                raise file.explain(error) from error
            raise
        super().__init__(address, file, driver)
        self._group_commit = GroupCommit(self._writer)
        self._readers = Spares(lambda: _opened(address, file, address.busy_timeout, file.watcher.count_commits))
        self._reading = threading.Semaphore(_READERS)
        self._transactions = Spares(lambda: Writer(address, file, _opened(address, file, 0)))
        self._release = partial(_release, file, self._writer, self._readers, self._transactions)
        self._untrack = track(self, address.path, self._release)

    def execute(self, operation: Operation[T], tx: Any = None) -> T:
        """Execute *operation* in *tx* if it is given, else in a transaction of its own, and return its result."""
        if self._closed:
            raise closed_or_forked(self._process)
        if tx is not None:
            try:
                return execute_in(unwrap(tx, self._file), operation)
            except Exception as error:
                raise_if_busy(error, self._file)
                raise
        if operation.writes:
            answer: T = self._group_commit.run(operation)
            self._committed()
            return answer
        return self._read(operation)

    def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool:
        """Wait until *probe* is ready.  Return False after *timeout* seconds or after `end_sleep`."""
        bell = threading.Lock()

        def ring() -> None:
            if bell.locked():
                bell.release()

        def step(probe_or_pause: Any) -> Any:
            if probe_or_pause is probe:
                return self._read(probe)
            return bell.acquire(timeout=min(probe_or_pause, threading.TIMEOUT_MAX))

        waiter = Waiter(probe, ring)
        try:
            return run(self._looks(waiter, lambda: bell.acquire(blocking=False), timeout, stop), step)
        finally:
            self._file.watcher.remove(waiter)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Provide a write transaction on a connection of its own: committed at the end, rolled back on an error."""
        if self._closed:
            raise closed_or_forked(self._process)
        writer = self._transactions.take()
        try:
            try:
                writer.begin(threading.get_ident())
                yield writer.connection
            except BaseException:
                writer.end(commit=False)
                raise
            writer.end(commit=True)
        finally:
            self._transactions.give_back(writer)
        self._committed()

    def end_sleep(self) -> None:
        """Make every current and future `sleep` return False."""
        self.closing = True
        self._file.watcher.wake_all()

    def close(self) -> None:
        """End every sleep, finish running calls, and release the file."""
        if self._closed:
            return
        self._closed = True
        self.end_sleep()
        self._writer.closing = True
        self._group_commit.close()
        self._untrack()
        self._release()

    def _read(self, operation: Operation[T]) -> T:
        with self._reading:
            driver = self._readers.take()
            try:
                return read(driver, operation)
            except Error as error:
                raise self._file.explain(error) from error
            finally:
                self._readers.give_back(driver)


def read(driver: Driver, operation: Operation[T]) -> T:
    """Return the result of *operation*, read from one snapshot."""
    if operation.scope is Scope.NONE:
        return operation.decode(fetch(driver, operation))
    driver.execute("BEGIN")
    try:
        return run(operation.plan(), lambda step: fetch(driver, step))
    finally:
        driver.execute("COMMIT")


def _opened(
    address: Address, file: File, busy_timeout: float, prepare: Callable[[Driver], object] = lambda driver: None
) -> Driver:
    try:
        driver = open_connection(address.library, address.path, address.synchronous, busy_timeout)
        prepare(driver)
        return driver
    except Error as error:
        raise file.explain(error) from error


def _release(file: File, *connections: "Writer | Spares[Any]") -> None:
    """Close the connections of a kit, and then release the file for other libraries."""
    try:
        for each in connections:
            each.close()
    finally:
        file.release()


class Spares(Generic[T]):
    """Idle connections, which *opened* makes."""

    def __init__(self, opened: Callable[[], T]) -> None:
        self._opened = opened
        self._spares: list[Any] = []
        self._closed = False

    def take(self) -> T:
        """Return a connection for the caller alone, until `give_back`."""
        try:
            spare: T = self._spares.pop()
        except IndexError:
            return self._opened()
        return spare

    def give_back(self, connection: Any) -> None:
        """Return *connection*, which has no transaction open."""
        if self._closed:
            connection.close()
        else:
            self._spares.append(connection)

    def close(self) -> None:
        """Close the idle connections now, and the others in `give_back`."""
        self._closed = True
        while self._spares:
            self._spares.pop().close()


class GroupCommit:
    """Group commit: runs operations of any thread, one transaction at a time."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._mutex = threading.Lock()
        self._leader: object | None = None
        self._closed = False
        self._queue: list[Job] = []

    def run(self, operation: Operation[Any]) -> Any:
        """Run *operation*, and return its result after the commit."""
        caller = threading.get_ident()
        first = object()
        job: Job | None = None
        try:
            with self._mutex:
                if self._closed:
                    raise closed()
                if self._leader is None:
                    self._leader = first
                else:
                    job = self._writer.job(operation, caller, threading.Lock())
                    job.waiting.acquire()
                    self._queue.append(job)
            if job is None:
                return self._writer.alone(operation, caller)
            while not job.done:
                job.waiting.acquire()
                if self._leader is job:
                    self._lead(job)
            return job.result()
        except BaseException:
            if job is not None:
                self._leave(job)
            raise
        finally:
            if self._leader is first:
                try:
                    self._hand_over(first)
                except BaseException:
                    self._hand_over(first)
                    raise

    def close(self) -> None:
        """Refuse new operations, and wait for the running ones."""
        self._closed = True
        while self._leader is not None:
            sleep(0.001)

    def _lead(self, leader: Job) -> None:
        """Run the leader's job with all waiting jobs, then pass the lead on."""
        batch: list[Job] = []
        try:
            with self._mutex:
                batch, self._queue = self._queue, batch
            self._writer.together(batch)
        finally:
            try:
                self._dismiss(batch, leader)
            except BaseException:
                self._dismiss(batch, leader)
                raise

    def _dismiss(self, batch: list[Job], leader: Job) -> None:
        """Wake the callers of finished jobs, and put the others back in the queue."""
        with self._mutex:
            self._queue[:0] = [job for job in batch if not job.done and job not in self._queue]
        for job in batch:
            if job.done and job is not leader and job.waiting.locked():
                job.waiting.release()
        self._hand_over(leader)

    def _hand_over(self, leader: object) -> None:
        """Make the first caller in the queue the leader, unless *leader* has done so already."""
        with self._mutex:
            if self._leader is leader:
                self._leader = successor = self._queue[0] if self._queue else None
                if successor is not None:
                    successor.waiting.release()

    def _leave(self, job: Job) -> None:
        """Remove an interrupted caller from the queue, and pass on the lead if it had it."""
        with self._mutex:
            if job in self._queue:
                self._queue.remove(job)
        self._hand_over(job)
