"""The errors of the library: `EventkitError` and its subclasses.

Expected outcomes are return values (a lost lease is ``False``); exceptions are for the unexpected, and every
message names the remedy.  Bad arguments are plain ``ValueError`` and ``TypeError``.
"""

import datetime


class EventkitError(Exception):
    """The base of the library's own errors."""


class UnknownBackend(EventkitError, LookupError):
    """Raised by `connect` when no installed package serves the URL's scheme."""


class NotMigrated(EventkitError):
    """Raised by `connect` when the schema is missing, older or newer than the code; run the named command."""


class ForeignTransaction(EventkitError):
    """Raised by calls with ``tx=`` that belongs to another database, or to another SQLite library."""


class Closed(EventkitError):
    """Raised by every call on a kit that was closed, or that a forked child inherited; connect again."""


class QueueFull(EventkitError):
    """Raised by `enqueue` when the queue's ``max_size`` or ``enqueue_rate`` is reached; wait with ``wait=``.

    ``fits`` is False for a batch that is larger than ``max_size`` or ``enqueue_burst``, which never fits.
    ``retry_after`` is the number of seconds after which the rate allows the call, or None.
    """

    fits = True
    retry_after: float | None = None


class KeyConflict(EventkitError):
    """Raised by `enqueue` in a queue with ``strict_keys`` whose *key* belongs to task *id* with another payload."""

    def __init__(self, queue: str, key: str, id: int) -> None:
        super().__init__(queue, key, id)
        self.queue = queue
        self.key = key
        self.id = id

    def __str__(self) -> str:
        return (
            f"key {self.key!r} of queue {self.queue!r} belongs to task {self.id}, which has another payload: use "
            f"another key, or send the same payload"
        )


class LockHeld(EventkitError):
    """Raised on entering a lock that is held; wait with ``acquire(wait=seconds)``.

    ``holder`` has the lock until at most ``until``; both are None if it has been released since.
    """

    def __init__(self, name: str, holder: str | None, until: datetime.datetime | None) -> None:
        super().__init__(name, holder, until)
        self.name = name
        self.holder = holder
        self.until = until

    def __str__(self) -> str:
        held = "was held a moment ago" if self.until is None else f"is held by {self.holder} until {self.until}"
        return f"lock {self.name!r} {held}: wait for it with acquire(wait=seconds), or leave the work to its holder"


class TaskFailed(EventkitError):
    """Raised when the result of a dead task is waited for.

    ``reason`` is ``"failed"``, ``"exhausted"``, ``"expired"`` or ``"poison"``, ``error`` is the task's error, or None,
    and ``code`` the short name of its last failure, as `TaskInfo.code`.
    """

    def __init__(self, id: int, reason: str, error: str | None, code: str | None = None) -> None:
        super().__init__(id, reason, error, code)
        self.id = id
        self.reason = reason
        self.error = error
        self.code = code or reason.upper()

    def __str__(self) -> str:
        error = f": {self.error}" if self.error else ""
        return f"task {self.id} is dead ({self.reason}, {self.code}; requeue() makes it ready again){error}"


class TimedOut(EventkitError, TimeoutError):
    """Raised when a result, or the next item of an iterator, did not arrive within the timeout; wait again."""


class LeaseLost(EventkitError):
    """Raised when a lease runs out during the work; the changes that depend on it are not stored.

    At the end of `TaskContext.transaction`, another worker has the task or will claim it: let the error propagate, or
    give the queue a longer lease.  In a loop over `subscribe`, another process has the consumer's name: subscribe again
    to wait until it is free.
    """


class TaskCancelled(EventkitError):
    """Raised by `TaskContext.raise_if_cancelled` in a task that was cancelled while running; let it propagate."""

    def __init__(self, id: int) -> None:
        super().__init__(id)
        self.id = id

    def __str__(self) -> str:
        return f"task {self.id} was cancelled while it was running"


class Truncated(EventkitError):
    """Raised by `read` and `subscribe` when events after the reader's position were pruned.

    ``first`` and ``last`` bound the offsets that are missing.
    """

    def __init__(self, stream: str, first: int, last: int) -> None:
        super().__init__(
            f"events {first} to {last} of stream {stream!r} were pruned before they were read: "
            f"continue after the gap with on_truncated='skip', or seek() to another offset"
        )
        self.stream = stream
        self.first = first
        self.last = last


class CopyDiffers(EventkitError):
    """Raised by `copy` when the target differs from the source; the source is unchanged.

    ``table`` names the table; ``expected`` and ``found`` are the first rows that differ, of the source and of the
    target, or None if a row is missing.
    """

    def __init__(
        self, table: str, expected: tuple[object, ...] | None, found: tuple[object, ...] | None, remedy: str
    ) -> None:
        super().__init__(table, expected, found, remedy)
        self.table = table
        self.expected = expected
        self.found = found
        self.remedy = remedy

    def __str__(self) -> str:
        return (
            f"in {self.table} the source has {self.expected or 'no row'}, the target {self.found or 'no row'}; "
            f"{self.remedy}"
        )


class DatabaseReplaced(EventkitError):
    """Raised when the SQLite file or its log was replaced, deleted, truncated or overwritten; connect again.

    `subscribe` without a consumer's name also raises it when the database has gone back behind the reader's position: a
    backup was restored, or an asynchronous standby was promoted.  Subscribe again with the start you need.
    """


class DatabaseError(EventkitError):
    """Raised when the database refuses a statement for a reason that eventkit does not know, such as a constraint.

    The same call would fail again, so it is not retried.  ``sqlstate`` is the SQLSTATE of a Postgres server, or None,
    as on SQLite.  The driver's own error is the cause.
    """

    def __init__(self, message: str, sqlstate: str | None = None) -> None:
        super().__init__(message, sqlstate)
        self.sqlstate = sqlstate

    def __str__(self) -> str:
        return str(self.args[0])


class Unavailable(EventkitError):
    """Raised when the database cannot serve the call now; another attempt may succeed."""


class Busy(Unavailable):
    """Raised when another writer kept the lock for longer than the busy timeout; try again or raise the timeout."""


class Disconnected(Unavailable):
    """Raised when the connection to the database broke during the call."""


PASSING = (Busy, Disconnected)
"""Transient errors, after which iterators continue instead of ending."""
