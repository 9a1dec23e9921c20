"""Operations on claimed tasks, and operations that delete tasks.

Each statement of a worker about its task is fenced by the claim's token: once the lease has run out, it does not find
the row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ..retry import delay_after
from . import Operation, Plan, Rows, flag, nothing

_LANES = 1000
"""The maximum number of lanes to unblock in one transaction, because a database may lock each of them.

After a purge, the tasks of further lanes become ready without a wake.
"""

Held = tuple[int, int]
"""The id of a claimed task, and the token of the claim."""

Ended = tuple[int, int, str | None]
"""A `Held`, followed by the result as JSON text."""


class Ack(Operation[bool], frozen=True):
    """Finish a task.  The statement deletes it if no row has to stay, which is the common case."""

    first_alone: ClassVar[bool] = True
    id: int
    token: int

    def plan(self) -> Plan[bool]:
        """Delete the task; or finish one with a key, or one of a queue that keeps done tasks."""
        if (yield self):
            return True
        return bool((yield from finish([(self.id, self.token, None)])))


class AckMany(Operation[list[int]], frozen=True):
    """Finish tasks; return the ids of those whose lease was still held, in ascending order."""

    first_alone: ClassVar[bool] = True
    held: list[Held]

    def plan(self) -> Plan[list[int]]:
        """Delete the tasks that leave no row, and finish the others."""
        done = [id for (id,) in (yield self)]
        if len(done) < len(self.held):
            gone = set(done)
            done += yield from finish([(id, token, None) for id, token in self.held if id not in gone])
        return sorted(done)


class FinishMany(Operation[list[int]], frozen=True):
    """`AckMany` where some of the tasks have keys, or in a caller's transaction.

    It locks all tasks in the order of their ids first, because a deadlock in the caller's transaction cannot be
    retried.
    """

    held: list[Held]

    def plan(self) -> Plan[list[int]]:
        return sorted((yield from finish([(id, token, None) for id, token in self.held])))


class Finish(Operation[None], frozen=True):
    """Mark tasks done, each with its result; return their ids, and whether their queue keeps them."""

    held: list[Ended]


class ForgetDone(Operation[None], frozen=True):
    """Delete a few done tasks of these tasks' queues whose retention has ended."""

    ids: list[int]


def finish(held: list[Ended]) -> Plan[list[int]]:
    """Mark tasks done, then delete those that no queue keeps; return the ids of those whose lease was still held."""
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
    """Delete tasks in any state.  Their keys stay reserved."""

    ids: list[int]

    def plan(self) -> Plan[None]:
        """Reserve their keys, then delete them."""
        yield ReserveKeys(self.ids)
        yield ForgetKeys(2 * len(self.ids))
        yield self


class Revoke(Operation[None], frozen=True):
    """Take a task from its holder, if it has one: a later deletion is then a cancellation."""

    id: int


class ReserveKeys(Operation[None], frozen=True):
    """Reserve the keys of tasks beyond their rows, for the rest of the queue's key_ttl."""

    ids: list[int]


class ForgetKeys(Operation[None], frozen=True):
    """Delete a few expired reservations, so that the table stays small."""

    limit: int


class Bury(Operation[bool], frozen=True):
    """Make a held task a dead letter."""

    id: int
    token: int
    reason: str
    error: str | None
    decode = flag


class Fail(Operation[bool], frozen=True):
    """Make a held task a dead letter, and copy it to the queue's dead_letter_to."""

    id: int
    token: int
    error: str
    reason: str = "failed"

    def plan(self) -> Plan[bool]:
        return (yield from mark_dead(self.id, self.token, self.reason, self.error))


def mark_dead(id: int, token: int, reason: str, error: str | None) -> Plan[bool]:
    """Make a held task a dead letter, copy it, and unblock its lane; return whether the lease was still held."""
    rows = yield Bury(id, token, reason, error)
    if rows:
        yield CopyDead([id])
        for queue, lane, *_ in rows:
            yield from unblock(queue, [lane])
    return bool(rows)


class Unblock(Operation[None], frozen=True):
    """Make the first task of each lane ready if it was held back: its predecessor is gone, or may be."""

    queue: str
    lanes: list[str]


def unblock(queue: str, lanes: Iterable[str | None]) -> Plan[None]:
    """Unblock the tasks that wait for tasks of these lanes; a task without a lane blocks no other."""
    if ended := sorted({lane for lane in lanes if lane is not None}):
        yield Unblock(queue, ended[:_LANES])


def settle_dead(queue: str, died: list[tuple[int, str | None]]) -> Plan[None]:
    """Copy the queue's tasks that have just died, given by id and lane, and unblock their lanes."""
    if died:
        yield CopyDead([id for id, _ in died])
        yield from unblock(queue, [lane for _, lane in died])


class CopyDead(Operation[None], frozen=True):
    """Enqueue copies of dead tasks in their queues' ``dead_letter_to``; wake the waiters for their results."""

    ids: list[int]


class ReadHeld(Operation[None], frozen=True):
    """Read attempt, max_attempts and retry policy of a held task; no row if the lease was lost."""

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
    """Put a held task back for another attempt, or mark it dead if it has used them up."""

    id: int
    token: int
    delay: int | None
    error: str | None

    def plan(self) -> Plan[bool]:
        """Read the attempts and the policy, then postpone the task or mark it dead."""
        held = yield ReadHeld(self.id, self.token)
        if not held:
            return False
        attempt, max_attempts, policy = held[0]
        if attempt >= max_attempts:
            yield from mark_dead(self.id, self.token, "exhausted", self.error)
        else:
            delay = delay_after(attempt, policy) if self.delay is None else self.delay
            yield Postpone(self.id, self.token, delay, self.error)
        return True


class Release(Operation[bool], frozen=True):
    """Put a held task back as if it had not been claimed."""

    id: int
    token: int
    decode = flag


class Snooze(Operation[bool], frozen=True):
    """Put a held task back, due in *delay* milliseconds, as if it had not been claimed."""

    id: int
    token: int
    delay: int
    decode = flag


class ReleaseMany(Operation[None], frozen=True):
    """Put held tasks back as if they had not been claimed."""

    held: list[Held]
    decode = nothing


class Extend(Operation[bool], frozen=True):
    """Set a lease to end *lease* milliseconds from now."""

    id: int
    token: int
    lease: int
    decode = flag


class ExtendMany(Operation[list[int]], frozen=True):
    """Set leases to end no earlier than *lease* milliseconds from now; return the ids of those still held."""

    held: list[Held]
    lease: int

    def decode(self, rows: Rows) -> list[int]:
        return [row[0] for row in rows]
