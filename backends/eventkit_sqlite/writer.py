"""Writing: one connection, one transaction at a time, which commits the calls of several threads together."""

import threading
import time
from typing import Any

from eventkit.errors import Unavailable
from eventkit.fork import closed
from eventkit.operations import Operation, Plan, Scope
from eventkit.plans import run

from .address import Address
from .file import File
from .library import Connection, Error, begin, is_busy, own_lock
from .statements import fetch
from .transaction import holds_lock
from .write_lock import WriteLock

_BY_ITSELF = (Scope.NONE, Scope.REST)
"""The operations whose first statement may commit by itself.  This driver can fail to read rows after the commit."""


class Job:
    """An operation that waits for the writer, with its caller, and its result or error."""

    __slots__ = ("answer", "caller", "deadline", "done", "error", "operation")

    def __init__(self, operation: Operation[Any], caller: object, deadline: float) -> None:
        self.operation = operation
        self.caller = caller
        self.deadline = deadline
        self.answer: Any = None
        self.error: BaseException | None = None
        self.done = False

    def finish(self, answer: Any = None, error: BaseException | None = None) -> None:
        """Set the result or the error."""
        self.answer = answer
        self.error = error
        self.done = True

    def result(self) -> Any:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.answer


class _Rest(Operation[Any], frozen=True):
    """The rest of a plan whose first statement has committed by itself; to be run once."""

    begun: Any
    step: Operation[Any]

    def plan(self) -> Plan[Any]:
        """Return the remaining steps."""
        step = self.step
        try:
            while True:
                step = self.begun.send((yield step))
        except StopIteration as done:
            return done.value


class Writer:
    """An executor of operations on the one connection that writes.  Not thread-safe: one caller at a time.

    The connection has no busy timeout: `_begin` pauses while another process writes, so that a waiting call can be
    refused or ended.
    """

    def __init__(self, address: Address, file: File, connection: Connection) -> None:
        self._address = address
        self._file = file
        self.lock = WriteLock(file.path)
        self.connection = connection
        self.closing = False

    def alone(self, operation: Operation[Any], caller: object) -> Any:
        """Run one operation in a transaction of its own."""
        self._file.check_identity_sometimes(self.connection)
        connection = self.connection
        # A statement that commits by itself is too short to take the lock, unless it would overtake others.
        if operation.scope not in _BY_ITSELF or self.lock.is_wanted():
            self.together([job := self._job(operation, caller)])
            return job.result()
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
                raise self._file.explain(error, self.connection) from error
            self.together([job := self._job(operation, caller)])
            return job.result()
        try:
            step = plan.send(rows)
        except StopIteration as done:
            return done.value
        self.together([job := self._job(_Rest(plan, step), caller)])
        return job.result()

    def together(self, jobs: list[Job]) -> None:
        """Run the operations of *jobs* in one transaction.

        Finish each job, unless it still has time to wait for a writer in another process.
        """
        try:
            self._file.check_identity_sometimes(self.connection)
            if not self._begin(jobs):
                return
            if len(jobs) == 1:
                self._run(jobs[0])
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
                    job.finish(error=known if isinstance(known, Exception) else interrupted())
            if not isinstance(error, Exception):
                raise
        finally:
            try:
                self.lock.release()
            except BaseException:
                self.lock.release()
                raise

    def _job(self, operation: Operation[Any], caller: object) -> Job:
        return Job(operation, caller, time.monotonic() + self._address.busy_timeout)

    def _begin(self, jobs: list[Job]) -> bool:
        """Begin when it is this writer's turn.  Return False after finishing jobs that could not wait longer."""

        def give_up(error: Exception) -> bool:
            now = time.monotonic()
            for job in jobs:
                if holds_lock(job.caller, self._file):
                    job.finish(error=own_lock())
                elif self.closing:
                    job.finish(error=closed())
                elif now >= job.deadline:
                    job.finish(error=self._file.explain(error, self.connection))
            return any(job.done for job in jobs)

        return begin(self.connection, self.lock, give_up)

    def _run(self, job: Job) -> None:
        job.finish(run(job.operation.plan(), self._fetch))

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

    def _fetch(self, step: Operation[Any]) -> list[tuple[Any, ...]]:
        return fetch(self.connection, step)


def interrupted() -> Unavailable:
    """Return the error for an operation that was rolled back because the leading thread was interrupted."""
    return Unavailable("the transaction was interrupted and rolled back: try again")


class Entry:
    """A job in the queue of callers, and the lock that its thread sleeps on."""

    __slots__ = ("job", "turn")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.turn = threading.Lock()
        self.turn.acquire()


class GroupCommit:
    """Group commit: runs operations of any thread, one transaction at a time."""

    def __init__(self, writer: Writer, busy_timeout: float) -> None:
        self._writer = writer
        self._busy_timeout = busy_timeout
        self._mutex = threading.Lock()
        self._leader: object | None = None
        self._closed = False
        self._queue: list[Entry] = []

    def run(self, operation: Operation[Any]) -> Any:
        """Run *operation*, and return its result after the commit."""
        caller = threading.get_ident()
        first = object()
        entry: Entry | None = None
        try:
            with self._mutex:
                if self._closed:
                    raise closed()
                if self._leader is None:
                    self._leader = first
                else:
                    entry = Entry(Job(operation, caller, time.monotonic() + self._busy_timeout))
                    self._queue.append(entry)
            if entry is None:
                return self._writer.alone(operation, caller)
            while not entry.job.done:
                entry.turn.acquire()
                if self._leader is entry:
                    self._lead(entry)
            return entry.job.result()
        except BaseException:
            if entry is not None:
                self._leave(entry)
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
            time.sleep(0.001)

    def _lead(self, leader: Entry) -> None:
        """Run the leader's job with all waiting jobs, then pass the lead on."""
        batch: list[Entry] = []
        try:
            with self._mutex:
                batch, self._queue = self._queue, batch
            self._writer.together([entry.job for entry in batch])
        finally:
            try:
                self._dismiss(batch, leader)
            except BaseException:
                self._dismiss(batch, leader)
                raise

    def _dismiss(self, batch: list[Entry], leader: Entry) -> None:
        """Wake the callers of finished jobs, and put the others back in the queue."""
        with self._mutex:
            self._queue[:0] = [entry for entry in batch if not entry.job.done and entry not in self._queue]
        for entry in batch:
            if entry.job.done and entry is not leader and entry.turn.locked():
                entry.turn.release()
        self._hand_over(leader)

    def _hand_over(self, leader: object) -> None:
        """Make the first caller in the queue the leader, unless *leader* has done so already."""
        with self._mutex:
            if self._leader is leader:
                successor = self._queue[0] if self._queue else None
                self._leader = successor
                if successor is not None:
                    successor.turn.release()

    def _leave(self, entry: Entry) -> None:
        """Remove an interrupted caller from the queue, and pass on the lead if it had it."""
        with self._mutex:
            if entry in self._queue:
                self._queue.remove(entry)
        self._hand_over(entry)
