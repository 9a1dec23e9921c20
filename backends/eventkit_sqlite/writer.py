"""Writing to a file: one connection, one transaction at a time, which commits the calls of several threads together.

Connections of all processes write first come, first served.  SQLite's busy handler sleeps and tries again, so a process
that writes back to back keeps the others from writing.  Before a transaction takes SQLite's write lock it takes a lock
on the file ``<database>-lock``, and releases it after the commit.  It only decides the order.  SQLite's own lock still
protects the data, so a connection that does not take part, or cannot, is as safe as before.

The kit's own transactions take no lock while no other connection holds it or waits for it: the check costs a third of a
microsecond once in a millisecond, and the lock two microseconds each time.  A connection that meets such a transaction
takes the lock, which is what the next check finds.

The locks are open file description locks on bytes that the file does not have.  Byte 0 is the lock.  A connection that
has to wait locks the byte whose number is the time at which it came, its ticket, and then tries to lock byte 0 together
with all tickets before its own, which fails as long as any connection before it holds or waits.  The kernel releases
the bytes of a process that has died.

A waiting connection polls: a blocking call has no timeout, and polling does not cost it its place.  The pauses grow
with the time that it has waited, and are short only for the connection whose turn is next.
"""

import errno
import logging
import os
import struct
import sys
from collections.abc import Callable
from functools import partial
from time import monotonic, monotonic_ns, sleep
from typing import Any
from weakref import WeakSet

import apsw
import msgspec

from eventkit.errors import Busy, Unavailable
from eventkit.fork import closed
from eventkit.operations import Operation, Plan, Scope
from eventkit.plans import run

from .address import Address
from .file import File
from .library import Connection, Error, is_busy, translate
from .statements import fetch

if sys.platform == "linux":
    from fcntl import F_OFD_GETLK, F_OFD_SETLK, F_UNLCK, F_WRLCK, fcntl

    def _bytes(kind: int, first: int, count: int) -> bytes:
        """Return the ``struct flock`` for *count* bytes from *first*; 0 for all."""
        return _FLOCK.pack(kind, os.SEEK_SET, first, count, 0)

    _FLOCK = struct.Struct("hhqqi4x")
    _HOLD = _bytes(F_WRLCK, 0, 1)
    _ALL = _bytes(F_WRLCK, 0, 0)
    _TICKETS = _bytes(F_WRLCK, 1, 0)
    _RELEASE = _bytes(F_UNLCK, 0, 0)
    _RELEASE_TICKETS = _bytes(F_UNLCK, 1, 0)
    _NO_CONFLICT = struct.pack("h", F_UNLCK)

_TAKEN = (errno.EAGAIN, errno.EACCES)

_BY_ITSELF = (Scope.NONE, Scope.REST)
"""The operations whose first statement may commit by itself.  This driver can fail to read rows after the commit."""

_BURST = 0.001
"""Seconds for which a connection writes without checking for others: a check costs a third of a microsecond."""

_FIRST_PAUSE = 0.00005
_LONGEST_PAUSE_OF_NEXT = 0.001
_LONGEST_PAUSE = 0.004
_PAUSES = 16
"""A pause is this fraction of the time waited, which bounds the idle time between two holders."""

_ASK_EVERY = 0.005
_FIRST_RETRY = 0.0002
_LONGEST_RETRY = 0.01
"""Pauses before BEGIN is tried again: the connection that writes does not use the lock file."""

_INTERRUPTED = "the transaction was interrupted and rolled back: try again"
_OWN_LOCK = (
    "this call would wait for the transaction that its own caller holds open: "
    "pass tx= to make it part of that transaction, or make the call after it"
)

_logger = logging.getLogger("eventkit")
_reported: set[str] = set()
_locks: "WeakSet[WriteLock]" = WeakSet()


class WriteLock:
    """One connection's access to the lock of the database at *path*, which is empty for one in memory.

    Not thread-safe.
    """

    __slots__ = ("__weakref__", "_descriptor", "_look_at", "_path", "_usable", "held")

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1
        self._usable = path != ""
        self._look_at = 0.0
        self.held = False
        _locks.add(self)

    def take(self, give_up: Callable[[], bool] | None = None) -> bool:
        """Take the lock, waiting until *give_up* returns true or not at all; return whether the caller may proceed.

        If the lock file cannot be used, return true at once.
        """
        if self.held:
            return True
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._descriptor = self._open()
            if descriptor < 0:
                return True
        self.held = True  # Set first, so that release() is correct after an interrupt.
        try:
            now = monotonic()
            if now < self._look_at or fcntl(descriptor, F_OFD_GETLK, _TICKETS).startswith(_NO_CONFLICT):
                fcntl(descriptor, F_OFD_SETLK, _HOLD)
                if now >= self._look_at:
                    self._look_at = now + _BURST
                return True
        except OSError as error:
            if error.errno not in _TAKEN:
                self._report(error)
                return True
        if give_up is None:
            self.held = False
            return False
        return self._wait(give_up)

    def is_wanted(self) -> bool:
        """Return whether another connection holds the lock or waits for it, up to a millisecond ago."""
        if monotonic() < self._look_at:
            return False
        if self._descriptor < 0:
            self._descriptor = self._open()
        if self._descriptor >= 0:
            try:
                if not fcntl(self._descriptor, F_OFD_GETLK, _ALL).startswith(_NO_CONFLICT):
                    return True
            except OSError as error:
                self._report(error)
        self._look_at = monotonic() + _BURST
        return False

    def release(self) -> None:
        """Let the next connection write, if this one holds the lock."""
        if self.held:
            fcntl(self._descriptor, F_OFD_SETLK, _RELEASE)
            self.held = False

    def close(self) -> None:
        """Release the lock and close the lock file."""
        self.held = False
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    __del__ = close

    def _wait(self, give_up: Callable[[], bool]) -> bool:
        try:
            ticket = self._ticket()
            turn, before = _bytes(F_WRLCK, 0, ticket), _bytes(F_WRLCK, 1, ticket - 1)
            since = ask_at = monotonic()
            longest = _LONGEST_PAUSE
            while not self._try(turn):
                now = monotonic()
                if now >= ask_at:
                    if give_up():
                        self.release()
                        return False
                    ask_at = now + _ASK_EVERY
                if longest == _LONGEST_PAUSE and fcntl(self._descriptor, F_OFD_GETLK, before).startswith(_NO_CONFLICT):
                    since, longest = now, _LONGEST_PAUSE_OF_NEXT
                sleep(min(max((now - since) / _PAUSES, _FIRST_PAUSE), longest))
            fcntl(self._descriptor, F_OFD_SETLK, _RELEASE_TICKETS)
        except OSError as error:
            self._report(error)
        except BaseException:
            self.release()
            raise
        self._look_at = monotonic() + _BURST
        return True

    def _ticket(self) -> int:
        """Lock a ticket for the current time, and return its number."""
        while not self._try(_bytes(F_WRLCK, ticket := monotonic_ns(), 1)):
            sleep(_FIRST_PAUSE)  # The ticket of this moment is taken.
        return ticket

    def _try(self, lock: bytes) -> bool:
        try:
            fcntl(self._descriptor, F_OFD_SETLK, lock)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            return False
        return True

    def _open(self) -> int:
        """Open the lock file, which is created with the mode and the owner of the database; -1 if that fails."""
        if not self._usable:
            return -1
        path, flags = f"{self._path}-lock", os.O_RDWR | os.O_CLOEXEC
        try:
            if sys.platform != "linux":
                raise OSError(errno.ENOSYS, "this system has no open file description locks")
            database = os.stat(self._path)
            try:
                descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, database.st_mode & 0o666)
            except FileExistsError:
                return os.open(path, flags | os.O_NOFOLLOW)
            os.fchmod(descriptor, database.st_mode & 0o666)
            if os.geteuid() == 0:
                os.fchown(descriptor, database.st_uid, database.st_gid)
            return descriptor
        except FileNotFoundError:
            return -1  # SQLite creates the database with the first write to it.
        except OSError as error:
            self._report(error)
            return -1

    def _report(self, error: OSError) -> None:
        """Continue without the lock, and log that once per database and process."""
        self._usable = False
        self.close()
        if self._path not in _reported:
            _reported.add(self._path)
            _logger.warning(
                "%s-lock cannot be used (%s): processes that write to %s back to back may keep others waiting",
                self._path,
                error,
                self._path,
            )


class Job(msgspec.Struct, eq=False):
    """An operation that waits for the writer, with its caller, and its result or error."""

    operation: Any
    caller: object
    deadline: float
    waiting: Any = None
    """The lock that the calling thread sleeps on, or the future that the calling task awaits."""
    answer: Any = None
    error: BaseException | None = None
    done: bool = False

    def finish(self, answer: Any = None, error: BaseException | None = None) -> None:
        self.answer, self.error, self.done = answer, error, True

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.answer


class _Rest(Operation[Any], frozen=True):
    """The rest of a plan whose first statement has committed by itself; to be run once."""

    begun: Any
    step: Operation[Any]

    def plan(self) -> Plan[Any]:
        step = self.step
        try:
            while True:
                step = self.begun.send((yield step))
        except StopIteration as done:
            return done.value


class Writer:
    """A connection that writes: that of a kit for its operations, or one for ``kit.transaction()``.  Not thread-safe.

    The connection has no busy timeout: `_begin` pauses while another process writes, so that a waiting call can be
    refused or ended.
    """

    def __init__(self, address: Address, file: File, connection: Connection) -> None:
        self._busy_timeout = address.busy_timeout
        self._file = file
        self.lock = WriteLock(file.path)
        self.connection = connection
        self.closing = False
        self._fetch = partial(fetch, connection)
        self._caller: object = None

    def job(self, operation: Any, caller: object, waiting: Any = None) -> Job:
        """Return a job that waits for the busy timeout from now on."""
        return Job(operation, caller, monotonic() + self._busy_timeout, waiting)

    def alone(self, operation: Operation[Any], caller: object) -> Any:
        """Run one operation in a transaction of its own."""
        connection = self.connection
        if monotonic() >= self._file.check_at:
            self._file.check_before_write(connection)
        # A statement that commits by itself waits for no lock, unless it would overtake others.
        if operation.scope not in _BY_ITSELF or self.lock.is_wanted():
            return self._with_lock(operation, caller)
        try:
            if operation.scope is Scope.NONE:
                return operation.decode(fetch(connection, operation))
            plan = operation.plan()
            rows = fetch(connection, next(plan))
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if not isinstance(error, Error):
                raise
            if not is_busy(error):
                raise self._file.explain(error, connection) from error
            return self._with_lock(operation, caller)
        try:
            step = plan.send(rows)
        except StopIteration as done:
            return done.value
        return self._with_lock(_Rest(plan, step), caller)

    def _with_lock(self, operation: Operation[Any], caller: object) -> Any:
        self.together([job := Job(operation, caller, monotonic() + self._busy_timeout)])
        return job.result()

    def together(self, jobs: list[Job]) -> None:
        """Run the operations of *jobs* in one transaction.

        Finish each job, unless it still has time to wait for a writer in another process.
        """
        try:
            if monotonic() >= self._file.check_at:
                self._file.check_before_write(self.connection)
            if not self._begin(jobs):
                return
            if len(jobs) == 1:
                jobs[0].finish(run(jobs[0].operation.plan(), self._fetch))
            else:
                for job in jobs:
                    self._run_in_savepoint(job)
            self.connection.execute("COMMIT")
        except BaseException as error:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            elif not isinstance(error, Exception) and all(job.done for job in jobs):
                raise  # Interrupted after the commit: the results are valid.
            for job in jobs:
                if not (job.done and job.error):
                    # A new error for each: an error raised in several threads would collect all tracebacks.
                    known = self._file.explain(error, self.connection)
                    job.finish(error=known if isinstance(known, Exception) else Unavailable(_INTERRUPTED))
            if not isinstance(error, Exception):
                raise
        finally:
            try:
                self.lock.release()
            except BaseException:
                self.lock.release()
                raise

    def _begin(self, jobs: list[Job]) -> bool:
        """Begin when it is this writer's turn.  Return False after finishing jobs that could not wait longer."""

        def give_up(error: Exception) -> bool:
            now = monotonic()
            for job in jobs:
                if self._file.is_locked_by(job.caller):
                    job.finish(error=Busy(_OWN_LOCK))
                elif self.closing:
                    job.finish(error=closed())
                elif now >= job.deadline:
                    job.finish(error=self._file.explain(error, self.connection))
            return any(job.done for job in jobs)

        in_turn = self.lock.is_wanted()
        pause = _FIRST_RETRY
        while True:
            if in_turn and not self.lock.take(lambda: give_up(apsw.exception_for(apsw.SQLITE_BUSY))):
                return False
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                return True
            except Error as error:
                if not is_busy(error):
                    raise
                if give_up(error):
                    return False
            if in_turn:
                sleep(pause)
                pause = min(2 * pause, _LONGEST_RETRY)
            in_turn = True

    def begin(self, caller: object) -> None:
        """Begin ``kit.transaction()`` for *caller*, unless `closing` is set first; `end` must follow in any case."""
        if monotonic() >= self._file.check_at:
            self._file.check_before_write(self.connection)
        job = self.job(None, caller)
        if not self._begin([job]):
            job.result()
        self._caller = caller
        self._file.transactions.append(caller)

    def end(self, commit: bool) -> None:
        """End ``kit.transaction()``, unless it was not begun or the user has ended it."""
        self.closing = False
        if self._caller is not None:
            self._file.transactions.remove(self._caller)
            self._caller = None
        try:
            if self.connection.in_transaction:
                self.connection.execute("COMMIT" if commit else "ROLLBACK")
        except Error as error:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise translate(error, self._file.path) from error
        finally:
            self.lock.release()

    def close(self) -> None:
        self.connection.close()
        self.lock.close()

    def _run_in_savepoint(self, job: Job) -> None:
        self.connection.execute("SAVEPOINT eventkit_job")
        try:
            job.finish(run(job.operation.plan(), self._fetch))
        except Exception as error:
            if not self.connection.in_transaction:
                # A full or failing disk has rolled back the whole transaction.
                raise
            self.connection.execute("ROLLBACK TO eventkit_job")
            job.finish(error=self._file.explain(error, self.connection) if isinstance(error, Error) else error)
        self.connection.execute("RELEASE eventkit_job")


def _close_all_in_child() -> None:
    # A lock belongs to the open file description, which the child shares: it would outlive the parent.
    for lock in list(_locks):
        lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_all_in_child)
