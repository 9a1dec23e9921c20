"""What is asked of a database about tasks that were claimed, and to remove tasks.

Everything a worker says about its task is fenced by the claim's token: once the lease has run out, no
statement here finds the row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ..retry import delay_after
from . import Operation, Plan, Rows

_LANES = 1000
"""How many lanes are looked at in one transaction, because a database may lock each of them.  Those beyond, after a
purge, have their turn without being told."""

Held = tuple[int, int]
"""The id of a claimed task, and the token of the claim."""

Ended = tuple[int, int, str | None]
"""What `Held` has, and the result as JSON text."""


class Ack(Operation[bool], frozen=True):
    """Finish a task.  The statement deletes it if nothing of it has to stay, which is the common case."""

    first_alone: ClassVar[bool] = True
    id: int
    token: int

    def plan(self) -> Plan[bool]:
        """The deletion; or the longer way of a task with a key, or of a queue that keeps what is done."""
        if (yield self):
            return True
        return bool((yield from finish([(self.id, self.token, None)])))


class AckMany(Operation[list[int]], frozen=True):
    """Finish tasks; the ids of those that were still ours, in ascending order."""

    first_alone: ClassVar[bool] = True
    held: list[Held]

    def plan(self) -> Plan[list[int]]:
        """One deletion for those of which nothing stays, and the longer way for the rest."""
        done = [id for (id,) in (yield self)]
        if len(done) < len(self.held):
            gone = set(done)
            done += yield from finish([(id, token, None) for id, token in self.held if id not in gone])
        return sorted(done)


class FinishMany(Operation[list[int]], frozen=True):
    """`AckMany` where some of the tasks have keys, or in a caller's transaction.

    All of them go the longer way, which locks them in the order of their ids before anything else: what would be
    a deadlock is repeated only where the transaction is ours.
    """

    held: list[Held]

    def plan(self) -> Plan[list[int]]:
        """The longer way."""
        return sorted((yield from finish([(id, token, None) for id, token in self.held])))


class Finish(Operation[None], frozen=True):
    """Mark tasks done, each with its result; their ids, and whether their queue keeps them."""

    held: list[Ended]


class ForgetDone(Operation[None], frozen=True):
    """Delete a few done tasks of these tasks' queues that were kept long enough."""

    ids: list[int]


def finish(held: list[Ended]) -> Plan[list[int]]:
    """Mark tasks done, then remove those that nobody asked to keep; the ids that were still ours."""
    rows = yield Finish(held)
    ids = [id for id, _ in rows]
    if ids:
        yield ReserveKeys(ids)
        yield ForgetKeys(2 * len(ids))
        loose = [id for id, kept in rows if not kept]
        if loose:
            yield Remove(loose)
        if len(loose) < len(ids):
            yield ForgetDone(ids)
    return ids


class Remove(Operation[None], frozen=True):
    """Delete tasks, whatever their state.  Their keys stay reserved."""

    ids: list[int]

    def plan(self) -> Plan[None]:
        """The reservation of their keys, then the deletion."""
        yield ReserveKeys(self.ids)
        yield ForgetKeys(2 * len(self.ids))
        yield self


class Revoke(Operation[None], frozen=True):
    """Take a task from its holder, if it has one: when it is deleted then, it was cancelled and not finished."""

    id: int


class ReserveKeys(Operation[None], frozen=True):
    """Keep the keys of tasks taken beyond their rows, for what is left of the queue's key_ttl."""

    ids: list[int]


class ForgetKeys(Operation[None], frozen=True):
    """Delete a few reservations that have run out, so that the table stays as small as what is reserved."""

    limit: int


class Bury(Operation[bool], frozen=True):
    """Make a held task a dead letter."""

    id: int
    token: int
    reason: str
    error: str | None

    def decode(self, rows: Rows) -> bool:
        """Whether it was still ours."""
        return bool(rows)


class Fail(Operation[bool], frozen=True):
    """Make a held task a dead letter, and copy it where its queue says."""

    id: int
    token: int
    error: str
    reason: str = "failed"

    def plan(self) -> Plan[bool]:
        """The funeral."""
        return (yield from bury(self.id, self.token, self.reason, self.error))


def bury(id: int, token: int, reason: str, error: str | None) -> Plan[bool]:
    """Make a held task a dead letter, copy it where its queue says, and let the next of its lane go; was it ours?"""
    rows = yield Bury(id, token, reason, error)
    if rows:
        yield CopyDead([id])
        for queue, lane, *_ in rows:
            yield from unblock(queue, [lane])
    return bool(rows)


class Unblock(Operation[None], frozen=True):
    """Let the first of each lane go, if it was held back: somebody before it is gone, or may be."""

    queue: str
    lanes: list[str]


def unblock(queue: str, lanes: Iterable[str | None]) -> Plan[None]:
    """Let those go that waited for the end of tasks of these lanes; a task of no lane keeps nobody waiting."""
    if ended := sorted({lane for lane in lanes if lane is not None}):
        yield Unblock(queue, ended[:_LANES])


def settle_dead(queue: str, died: list[tuple[int, str | None]]) -> Plan[None]:
    """Copy the tasks of the queue that have just died, by id and lane, where it says, and let the next of lanes go."""
    if died:
        yield CopyDead([id for id, _ in died])
        yield from unblock(queue, [lane for _, lane in died])


class CopyDead(Operation[None], frozen=True):
    """Enqueue copies of dead tasks in the queues that theirs name as ``dead_letter_to``; tell who waits for results."""

    ids: list[int]


class ReadHeld(Operation[None], frozen=True):
    """Attempt, max_attempts and retry policy of a held task; no row if it is no longer ours."""

    writes: ClassVar[bool] = False
    id: int
    token: int


class Postpone(Operation[None], frozen=True):
    """Put a held task back, due after a delay."""

    id: int
    token: int
    delay: int
    error: str | None


class Retry(Operation[bool], frozen=True):
    """Put a held task back for another attempt, or bury it if it has had them all."""

    id: int
    token: int
    delay: int | None
    error: str | None

    def plan(self) -> Plan[bool]:
        """What the queue says of retries, then the one or the other."""
        held = yield ReadHeld(self.id, self.token)
        if not held:
            return False
        attempt, max_attempts, policy = held[0]
        if attempt >= max_attempts:
            yield from bury(self.id, self.token, "exhausted", self.error)
        else:
            delay = delay_after(attempt, policy) if self.delay is None else self.delay
            yield Postpone(self.id, self.token, delay, self.error)
        return True


class Release(Operation[bool], frozen=True):
    """Put a held task back as if it had not been claimed."""

    id: int
    token: int

    def decode(self, rows: Rows) -> bool:
        """Whether it was still ours."""
        return bool(rows)


class Snooze(Operation[bool], frozen=True):
    """Put a held task back for *delay* milliseconds later, as if it had not been claimed."""

    id: int
    token: int
    delay: int

    def decode(self, rows: Rows) -> bool:
        """Whether it was still ours."""
        return bool(rows)


class ReleaseMany(Operation[None], frozen=True):
    """Put held tasks back as if they had not been claimed."""

    held: list[Held]

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class Extend(Operation[bool], frozen=True):
    """Let a lease end *lease* milliseconds from now."""

    id: int
    token: int
    lease: int

    def decode(self, rows: Rows) -> bool:
        """Whether the task was still ours."""
        return bool(rows)


class ExtendMany(Operation[list[int]], frozen=True):
    """Let leases end no earlier than *lease* milliseconds from now; the ids of the tasks that were still ours."""

    held: list[Held]
    lease: int

    def decode(self, rows: Rows) -> list[int]:
        """One id a row."""
        return [row[0] for row in rows]
