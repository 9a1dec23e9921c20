"""Everything asked of a database is a value.

An `Operation` is named by a verb; its fields are the parameters of its statement, which each backend keeps
in a ``.sql`` file under the operation's name, and `decode` turns the rows into one value.  It does no I/O,
so it is neither sync nor async.

Where one statement is not enough, `plan` is a generator that yields further operations and is sent their
rows; whoever executes the operation runs the whole plan inside one transaction.  What a plan does is the
same on every backend, and only its statements differ.

A field that is a ``list`` or a ``tuple`` is a bulk parameter: a backend passes it as its database likes best.
The field ``codec`` is never a parameter.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

T = TypeVar("T", covariant=True)

Rows = list[tuple[Any, ...]]
Plan = Generator["Operation[Any]", Rows, T]


class Operation(msgspec.Struct, Generic[T], frozen=True):
    """One thing to ask of a database."""

    writes: ClassVar[bool] = True
    """Whether anything is changed; what only reads runs beside the writer."""

    first_alone: ClassVar[bool] = False
    """Whether the first statement of the plan can stand for itself: mostly nothing follows it, and what does may be
    a transaction of its own."""

    may_fail_to_read: ClassVar[bool] = False
    """Whether the rows hold what others wrote: where a driver may fail to read a row, nothing of the operation may have
    been committed by then."""

    def decode(self, rows: Rows) -> T:
        """The answer that *rows* stand for.  An operation whose rows matter only to a plan has none."""
        raise TypeError(f"{type(self).__name__} is a step of a plan and has no answer of its own")

    def plan(self) -> Plan[T]:
        """The statements to run, in one transaction, and what they come to."""
        return self.decode((yield self))

    def undo(self, answer: Any) -> Operation[Any] | None:
        """What takes *answer* back, for a caller who went away before it came; None if nothing has to."""
        return None


class Outlook(msgspec.Struct, frozen=True):
    """What a waiter can expect: something now (*ready*), or *delay* milliseconds from now at the latest.

    Two outlooks are equal when they say the same about the database; the delay that is left is not compared.
    """

    ready: bool
    due: int | None = None
    now: int = 0

    @property
    def delay(self) -> float | None:
        """Seconds until *due*; None when only a commit can change anything."""
        return None if self.due is None else max(0, self.due - self.now) / 1000

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outlook) and (self.ready, self.due) == (other.ready, other.due)

    def __hash__(self) -> int:
        return hash((self.ready, self.due))


class Probe(Operation[Outlook], frozen=True):
    """A read that says whether it is worth looking again.  A waiter sleeps until its probe's answer is ready."""

    writes: ClassVar[bool] = False

    @property
    def subjects(self) -> tuple[str, ...]:
        """What the answer is about, as ``event:topic``, ``task:queue``, ``schedule:all`` and so on.

        A backend whose database does not tell of commits has whoever changes these announce it under that name.
        """
        raise NotImplementedError


class Origin(NamedTuple):
    """Where an iterator begins: behind *after*, and without what lies above that and was *seen* by then."""

    after: int
    seen: frozenset[int] = frozenset()


class ReadSchema(Operation[str | None], frozen=True):
    """The version of eventkit's schema; fails where there is none."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> str | None:
        """The revision, or None where the version table is empty."""
        return rows[0][0] if rows else None


class ReadIncomplete(Operation[str | None], frozen=True):
    """Read what is wrong with a database into which ``copy`` or ``import`` has not brought everything yet."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> str | None:
        """Return the sentence that names both remedies; None for a whole database."""
        what = rows[0][0] if rows else None
        return what and (
            f"the last {what} into this database was interrupted, and rows are missing: run eventkit {what} again "
            f"from the same source, which goes on where it was, or remove the database (python -m "
            f"eventkit_migrations downgrade <url> base drops the tables) and begin anew"
        )


class Advance(Operation[None], frozen=True):
    """Move every stored moment back, as if *milliseconds* had passed.  For tests."""

    milliseconds: int

    def plan(self) -> Plan[None]:
        """Each table in turn."""
        for table in (
            AdvanceTasks,
            AdvanceQueues,
            AdvanceKeys,
            AdvanceEvents,
            AdvanceConsumers,
            AdvanceConsumerLeases,
            AdvanceNotifications,
            AdvanceInboxes,
            AdvanceLocks,
            AdvanceRates,
            AdvanceResults,
            AdvanceSchedules,
            AdvanceStaged,
            AdvanceWritten,
            AdvanceLakes,
            AdvanceLakeFiles,
            AdvancePipelines,
            AdvanceApiKeys,
            AdvanceSessions,
            AdvanceWorkers,
        ):
            yield table(self.milliseconds)


class AdvanceTasks(Operation[None], frozen=True):
    """Move the moments of tasks back."""

    milliseconds: int


class AdvanceQueues(Operation[None], frozen=True):
    """Move the moments of queues back."""

    milliseconds: int


class AdvanceKeys(Operation[None], frozen=True):
    """Move the moments of key reservations back."""

    milliseconds: int


class AdvanceEvents(Operation[None], frozen=True):
    """Move the moments of events back."""

    milliseconds: int


class AdvanceConsumers(Operation[None], frozen=True):
    """Move the moments of consumers back."""

    milliseconds: int


class AdvanceConsumerLeases(Operation[None], frozen=True):
    """Move the moments at which consumers' leases end back."""

    milliseconds: int


class AdvanceNotifications(Operation[None], frozen=True):
    """Move the moments of notifications back."""

    milliseconds: int


class AdvanceInboxes(Operation[None], frozen=True):
    """Move the moments of what consumers have seen back."""

    milliseconds: int


class AdvanceSchedules(Operation[None], frozen=True):
    """Move the moments of schedules back."""

    milliseconds: int


class AdvanceStaged(Operation[None], frozen=True):
    """Move the moments of what was put aside back."""

    milliseconds: int


class AdvanceWritten(Operation[None], frozen=True):
    """Move the moments of the marks of batches back."""

    milliseconds: int


class AdvanceLakes(Operation[None], frozen=True):
    """Move the moments of archives back."""

    milliseconds: int


class AdvanceLakeFiles(Operation[None], frozen=True):
    """Move the moments at which files were retired back."""

    milliseconds: int


class AdvancePipelines(Operation[None], frozen=True):
    """Move the moments of pipelines back."""

    milliseconds: int


class AdvanceApiKeys(Operation[None], frozen=True):
    """Move the moments of keys of callers back."""

    milliseconds: int


class AdvanceSessions(Operation[None], frozen=True):
    """Move the moments of sessions of browsers back."""

    milliseconds: int


class AdvanceWorkers(Operation[None], frozen=True):
    """Move the moments of workers back."""

    milliseconds: int


class AdvanceLocks(Operation[None], frozen=True):
    """Move the moments of locks back."""

    milliseconds: int


class AdvanceRates(Operation[None], frozen=True):
    """Move the moments of windows and buckets back."""

    milliseconds: int


class AdvanceResults(Operation[None], frozen=True):
    """Move the moments of results back."""

    milliseconds: int
