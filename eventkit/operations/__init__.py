"""Operations: every request to a database is a value.

An `Operation` is named by a verb; its fields are the parameters of its statement, which each backend keeps in a
``.sql`` file under the operation's name, and `decode` turns the rows into one value.  An operation does no I/O, so it
is neither sync nor async.

Where one statement is not enough, `plan` is a generator that yields further operations, or a `step` for a statement
that is no operation, and is sent their rows.  The executor of the operation runs the whole plan inside one transaction.
A plan is the same on every backend, and only the statements differ; but a `Procedure` is one statement where the
database has a function for it.

A field that is a ``list`` or a ``tuple`` is a bulk parameter: a backend passes it in the form that suits its database.
The field ``codec`` is never a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from ..checks import as_datetime

T = TypeVar("T", covariant=True)
V = TypeVar("V")

Rows = list[tuple[Any, ...]]
Plan = Generator["Operation[Any]", Rows, T]
Decode = Callable[["Operation[Any]", Rows], V]


class Scope(Enum):
    """The part of an operation for which a backend has to open a transaction."""

    NONE = "a single statement is a transaction by itself"
    SNAPSHOT = "several statements read, from one snapshot if the database has snapshots that last"
    REST = "the first statement may commit by itself; what follows needs a transaction"
    REST_ONCE_READ = "the same, unless the driver could fail to read the rows of the first statement after its commit"
    ALL = "all statements take effect together"


class Operation(msgspec.Struct, Generic[T], frozen=True):
    """A request to a database.

    Where one of the functions below makes the answer, a class says ``decode = flag``.
    """

    heading = ""
    """The heading of the statement in the ``.sql`` files: the name of the class."""

    scope: ClassVar[Scope]
    """The part that needs a transaction; it follows from the plan and from the next three."""

    writes: ClassVar[bool] = True
    """True if the operation changes anything.  Operations that only read run beside the writer."""

    first_alone: ClassVar[bool] = False
    """True if the first statement of the plan may commit on its own: usually it is the only one."""

    may_fail_to_read: ClassVar[bool] = False
    """True if the rows hold data of other writers: a driver that fails to read a row must do so before the commit."""

    def __init_subclass__(cls) -> None:
        if isinstance(cls.heading, str):  # It is a field of a step.
            cls.heading = cls.__name__
        if cls.plan is Operation.plan:
            cls.scope = Scope.NONE
        elif cls.first_alone:
            cls.scope = Scope.REST_ONCE_READ if cls.may_fail_to_read else Scope.REST
        else:
            cls.scope = Scope.ALL if cls.writes else Scope.SNAPSHOT

    def decode(self, rows: Rows, /) -> T:
        """Return the answer for *rows*.  An operation whose rows matter only to a plan has none."""
        raise TypeError(f"{type(self).__name__} is a step of a plan and has no answer of its own")

    def plan(self) -> Plan[T]:
        """Yield the operations to run in one transaction, and return the answer."""
        return self.decode((yield self))

    def undo(self, answer: Any) -> Operation[Any] | None:
        """Return the operation that reverts *answer* for a caller that has left; None if there is nothing to revert."""
        return None


NO_STATEMENT: Rows = []
"""The rows of a `Procedure` for which the backend has no statement."""


class Procedure(Operation[T], Generic[T], frozen=True):
    """An operation of several steps, for which a database may have a function.

    Where the backend has a statement for it, that is the whole plan.  Elsewhere the plan takes the steps.
    """

    def steps(self) -> Plan[Rows]:
        """Yield the operations that do the same, and return the same rows."""
        raise NotImplementedError

    def rows(self) -> Plan[Rows]:
        """Call the function, or take the steps."""
        rows = yield self
        return (yield from self.steps()) if rows is NO_STATEMENT else rows

    def plan(self) -> Plan[T]:
        return self.decode((yield from self.rows()))


class Read(Operation[T], Generic[T], frozen=True):
    """An operation that changes nothing."""

    writes: ClassVar[bool] = False


class Step(Operation[Rows], frozen=True):
    """A statement of a plan that is no operation: its heading in the ``.sql`` files, and its parameters by name."""

    heading: str
    parameters: dict[str, Any]

    def decode(self, rows: Rows) -> Rows:
        return rows


class ReadStep(Step, frozen=True):
    """A step that changes nothing, also outside a plan."""

    writes: ClassVar[bool] = False


def step(heading: str, /, **parameters: Any) -> Step:
    """Return the step of a plan that executes the statement under ``-- step: heading``; a list is a bulk parameter."""
    return Step(heading, parameters)


def nothing(self: Operation[Any], rows: Rows) -> None:
    """Answer None."""


def flag(self: Operation[Any], rows: Rows) -> bool:
    """Answer whether there is a row."""
    return bool(rows)


def first(self: Operation[Any], rows: Rows) -> Any:
    """Answer the first value of the first row."""
    return rows[0][0]


def first_or_none(self: Operation[Any], rows: Rows) -> Any:
    """Answer the first value of the first row; None if there is no row."""
    return rows[0][0] if rows else None


def column(self: Operation[Any], rows: Rows) -> list[Any]:
    """Answer the value of each row."""
    return [value for (value,) in rows]


def all_rows(self: Operation[Any], rows: Rows) -> Rows:
    """Answer the rows."""
    return rows


def count(self: Operation[Any], rows: Rows) -> int:
    """Answer the number of rows."""
    return len(rows)


def first_time(self: Operation[Any], rows: Rows) -> datetime | None:
    """Answer the first value of the first row, which is milliseconds or None, as a time."""
    return None if rows[0][0] is None else as_datetime(rows[0][0])


def one(make: Callable[..., V]) -> Decode[V]:
    """Answer what *make* makes of the columns of the first row, or of nothing if there is no row."""
    return lambda self, rows: make(*rows[0]) if rows else make()


def one_or_none(make: Callable[..., V]) -> Decode[V | None]:
    """Answer what *make* makes of the columns of the first row; None if there is no row."""
    return lambda self, rows: make(*rows[0]) if rows else None


def each(make: Callable[..., V]) -> Decode[list[V]]:
    """Answer what *make* makes of the columns of each row."""
    return lambda self, rows: [make(*row) for row in rows]


class Readiness(msgspec.Struct, frozen=True):
    """The time at which a waiter is to check again: now (*ready*), or in at most *delay* milliseconds.

    Two are equal when they say the same about the database; the remaining delay is not compared.
    """

    ready: bool
    due: int | None = None
    now: int = 0

    @property
    def delay(self) -> float | None:
        """Seconds until *due*; None when only a commit can change anything."""
        return None if self.due is None else max(0, self.due - self.now) / 1000

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Readiness) and (self.ready, self.due) == (other.ready, other.due)

    def __hash__(self) -> int:
        return hash((self.ready, self.due))


def readiness(self: Operation[Any], rows: Rows) -> Readiness:
    """Answer the readiness of a row with what is ready, when it is due, and the time."""
    ready, *moments = rows[0]
    return Readiness(bool(ready), *moments)


def until_free(self: Operation[Any], rows: Rows) -> Readiness:
    """Answer the readiness of a row with the end of a lease, which is None if it has none, and the time."""
    [(until, now)] = rows
    return Readiness(until is None, until, now)


class Probe(Read[Readiness], frozen=True):
    """A read for a waiter, which sleeps until the answer is ready."""

    subject: ClassVar[str]
    """The subject of the answer, with the fields of the probe: ``event:{0.topic}``, ``schedule:all``."""

    decode = readiness

    @property
    def subjects(self) -> tuple[str, ...]:
        """The subjects of the answer, such as ``event:topic``, ``task:queue`` or ``schedule:all``.

        A backend whose database does not announce commits makes each writer announce its change under that name.
        """
        return (self.subject.format(self),)


class Origin(NamedTuple):
    """The start of an iterator: after *after*, without the items above it that were already *seen*."""

    after: int
    seen: frozenset[int] = frozenset()


class ReadSchema(Read[str | None], frozen=True):
    """Read the version of eventkit's schema; fail if there is none."""

    decode = first_or_none


class Condition(NamedTuple):
    """The condition of a database: its schema hash, and whether all rows are present."""

    schema_hash: str | None
    """The hash that the migration stored when it made the tables."""
    incomplete: str | None
    """The sentence about an interrupted ``copy`` or ``import``, which names both remedies."""


class ReadCondition(Read[Condition], frozen=True):
    """Read the condition of a database; fail if its tables are older than the columns that store it."""

    def decode(self, rows: Rows) -> Condition:
        """Return the one row, with a sentence about the interrupted operation instead of its name."""
        schema_hash, what = rows[0] if rows else (None, None)
        incomplete = what and (
            f"the last {what} into this database was interrupted, and rows are missing: run eventkit {what} again "
            f"from the same source, which continues where it stopped, or remove the database (python -m "
            f"eventkit_migrations downgrade <url> --to base drops the tables) and start again"
        )
        return Condition(schema_hash, incomplete)
