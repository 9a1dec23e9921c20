"""Writing: one connection, one transaction at a time, and company for whoever waits.

Operations that arrive while a commit is under way are run together in the next transaction, each in a
savepoint, so that one failure hurts nobody else and one fsync serves them all.  A lone operation pays
nothing for it: a single statement commits by itself.
"""

import time
from typing import Any

from eventkit.children import closed
from eventkit.errors import Unavailable
from eventkit.execute import run
from eventkit.operations import Operation, Plan

from .address import Address
from .file import File
from .library import Connection, Error, begin, is_busy, own_lock
from .statements import STATEMENTS, fetch
from .transaction import holds_lock
from .write_lock import WriteLock


class Job:
    """An operation that waits for the writer: who asks, and in the end the answer or the error."""

    __slots__ = ("answer", "caller", "deadline", "done", "error", "operation")

    def __init__(self, operation: Operation[Any], caller: object, deadline: float) -> None:
        self.operation = operation
        self.caller = caller
        self.deadline = deadline
        self.answer: Any = None
        self.error: BaseException | None = None
        self.done = False

    def finish(self, answer: Any = None, error: BaseException | None = None) -> None:
        """Note how it ended."""
        self.answer = answer
        self.error = error
        self.done = True

    def result(self) -> Any:
        """The answer; or the error, raised."""
        if self.error is not None:
            raise self.error
        return self.answer


class _Rest(Operation[Any], frozen=True):
    """What is left of a plan whose first statement stood for itself; to be run once."""

    begun: Any
    step: Operation[Any]

    def plan(self) -> Plan[Any]:
        """The steps that are left."""
        step = self.step
        try:
            while True:
                step = self.begun.send((yield step))
        except StopIteration as done:
            return done.value


class Writer:
    """Runs operations on the one connection that writes.  Not thread-safe: one caller at a time.

    The connection has no busy timeout: the pauses while another process writes are made here, so that a
    waiting call can be refused or ended.
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
        statement = STATEMENTS.get(type(operation))
        single = statement is not None and statement.single
        commits_by_itself = single or (operation.first_alone and not operation.may_fail_to_read)
        # Such a statement is too short to take the lock for, unless it would overtake others.
        if not commits_by_itself or self.lock.is_wanted():
            self.together([job := self._job(operation, caller)])
            return job.result()
        try:
            if single:
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

        Each job is finished then, unless it still has time to wait for a writer elsewhere.
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
                raise  # The thread was interrupted just after the commit: the answers are true.
            for job in jobs:
                if not (job.done and job.error):
                    # A new error for each: what several threads raise has the traceback of all.
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
        """Begin when it is this writer's turn; False when jobs that could wait no longer have been finished instead."""

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
                # A full disk or a failing one has rolled everything back, not only this job.
                raise
            self.connection.execute("ROLLBACK TO eventkit_job")
            job.finish(error=self._file.explain(error, self.connection) if isinstance(error, Error) else error)
        self.connection.execute("RELEASE eventkit_job")

    def _fetch(self, step: Operation[Any]) -> list[tuple[Any, ...]]:
        return fetch(self.connection, step)


def interrupted() -> Unavailable:
    """The error for an operation whose transaction was taken back because its leader was interrupted."""
    return Unavailable("the transaction was interrupted and rolled back: try again")
