"""The sync connection to a SQLite file: a writer, readers beside it, and a watcher to wait on."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from eventkit.errors import Closed
from eventkit.fork import closed_or_forked, track
from eventkit.operations import Operation, Probe
from eventkit.plans import Stop

from .address import Address
from .file import File, acquire
from .library import Error, open_connection, translate
from .reading import Spares, read
from .transaction import begin_own, end_own, execute_in, raise_if_busy, unwrap
from .watcher import Waiter
from .write_lock import WriteLock
from .writer import GroupCommit, Writer

T = TypeVar("T")

_READERS = 16
"""The number of concurrent reads, which bounds the connections that many waiting threads open."""


class Connection:
    """A connection that executes operations; see `eventkit.protocols.Connection`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._file = acquire(address)
        try:
            driver = open_connection(address.library, address.path, address.synchronous, 0)
            self._file.opened(driver)
        except Error as error:
            self._file.release()
            raise translate(error, address.path) from error
        self._writer = Writer(address, self._file, driver)
        self._group_commit = GroupCommit(self._writer, address.busy_timeout)
        self._readers = Spares(address, self._file, address.busy_timeout)
        self._reading = threading.Semaphore(_READERS)
        self._transactions = Spares(address, self._file, 0)
        self._locks: list[WriteLock] = []
        self._closing = False
        self._process = os.getpid()
        self._closed = False
        self._release = partial(_release, self._file, driver, self._readers, self._transactions)
        self._untrack = track(self, address.path, self._release)

    @property
    def max_payload(self) -> int:
        """The maximum size of a payload in bytes of JSON text."""
        return self._address.max_payload

    @property
    def closing(self) -> bool:
        """Whether `end_sleep` was called."""
        return self._closing

    def execute(self, operation: Operation[T], tx: Any = None) -> T:
        """Execute *operation* in *tx* if it is given, else in a transaction of its own, and return its result."""
        if self._closed:
            raise self._reason()
        if tx is not None:
            try:
                return execute_in(unwrap(tx, self._file), operation)
            except Exception as error:
                raise_if_busy(error, self._file)
                raise
        if operation.writes:
            answer: T = self._group_commit.run(operation)
            self._file.watcher.committed()
            return answer
        return self._read(operation)

    def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool:
        """Wait until *probe* is ready.  Return False after *timeout* seconds or after `end_sleep`."""
        stop = stop or Stop()
        deadline = None if timeout is None else monotonic() + timeout
        bell = threading.Lock()

        def ring() -> None:
            if bell.locked():
                bell.release()

        waiter = Waiter(probe, ring)
        watcher = self._file.watcher
        watcher.add(waiter)
        try:
            stop.ring = ring
            while True:
                waiter.seen = waiter.answer = None
                # Cleared before the conditions are checked: a ring in between must not be lost.
                bell.acquire(blocking=False)
                if self._closing or stop.is_set:
                    return False
                if waiter.error is not None:
                    raise waiter.error
                outlook = self._read(probe)
                waiter.seen = outlook
                if outlook.ready:
                    return True
                left = None if deadline is None else deadline - monotonic()
                if left is not None and left <= 0:
                    return False
                bell.acquire(timeout=shortest(left, outlook.delay))
                if waiter.may_look and not (self._closing or stop.is_set):
                    return True
        finally:
            watcher.remove(waiter)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Provide a write transaction on a connection of its own: committed at the end, rolled back on an error."""
        if self._closed:
            raise self._reason()
        caller = threading.get_ident()
        driver = self._transactions.take()
        try:
            lock = self._locks.pop()
        except IndexError:
            lock = WriteLock(self._address.path)
        try:
            begin_own(driver, lock, self._file, caller, self._address.busy_timeout)
            try:
                yield driver
            except BaseException:
                end_own(driver, lock, self._file, caller, False)
                raise
            end_own(driver, lock, self._file, caller, True)
        finally:
            lock.release()
            self._locks.append(lock)
            self._transactions.give_back(driver)
        self._file.watcher.committed()

    def rouse(self) -> None:
        """Make every `sleep` check again."""
        self._file.watcher.wake_all()

    def end_sleep(self) -> None:
        """Make every current and future `sleep` return False."""
        self._closing = True
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
        for lock in (self._writer.lock, *self._locks):
            lock.close()

    def forked(self) -> None:
        """Refuse further calls in a forked child, and leave the resources of the parent alone."""
        self._closed = self._closing = True

    def _read(self, operation: Operation[T]) -> T:
        with self._reading:
            driver = self._readers.take()
            try:
                return read(driver, operation)
            except Error as error:
                raise self._file.explain(error) from error
            finally:
                self._readers.give_back(driver)

    def _reason(self) -> Closed:
        return closed_or_forked(self._process)


def _release(file: File, writer: Any, *spares: Spares) -> None:
    """Close the connections of a kit, and then release the file for other libraries."""
    try:
        writer.close()
        for connections in spares:
            connections.close()
    finally:
        file.release()


def shortest(left: float | None, delay: float | None) -> float:
    """Return the shorter of two timeouts for a lock, where -1 means no limit."""
    timeouts = [timeout for timeout in (left, delay) if timeout is not None]
    return min(min(timeouts), threading.TIMEOUT_MAX) if timeouts else -1
