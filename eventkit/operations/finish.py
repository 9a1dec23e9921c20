"""Operations on claimed tasks, and operations that delete tasks.

Each statement of a worker about its task is fenced by the claim's token: once the lease has run out, it does not find
the row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ..retry import delay_after
from . import Operation, Plan, Procedure, Rows, column, flag, nothing

_UNBLOCKED_AT_ONCE = 1000
"""The maximum number of keys to unblock in one transaction, because a database may lock each of them.

After a purge, the tasks of further keys become ready without a wake.
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
        return bool((yield from Finish([(self.id, self.token, None)]).rows()))


class AckMany(Operation[list[int]], frozen=True):
    """Finish tasks; return the ids of those whose lease was still held, in ascending order."""

    first_alone: ClassVar[bool] = True
    held: list[Held]

    def plan(self) -> Plan[list[int]]:
        """Delete the tasks that leave no row, and finish the others."""
        done = [id for (id,) in (yield self)]
        if len(done) < len(self.held):
            gone = set(done)
            done += yield from Finish([(id, token, None) for id, token in self.held if id not in gone]).plan()
        return sorted(done)


class FinishMany(Operation[list[int]], frozen=True):
    """`AckMany` where some of the tasks have keys, or in a caller's transaction.

    It locks all tasks in the order of their ids first, because a deadlock in the caller's transaction cannot be
    retried.
    """

    held: list[Held]

    def plan(self) -> Plan[list[int]]:
        return sorted((yield from Finish([(id, token, None) for id, token in self.held]).plan()))


class Finish(Procedure[list[int]], frozen=True):
    """Finish tasks, each with its result; return the ids of those whose lease was still held."""

    held: list[Ended]
    decode = column

    def steps(self) -> Plan[Rows]:
        """Mark the tasks done, then delete those that no queue keeps."""
        rows = yield MarkDone(self.held)
        ids = [id for id, _ in rows]
        if ids:
            yield ReserveKeys(ids)
            yield ForgetKeys(2 * len(ids))
            if loose := [id for id, kept in rows if not kept]:
                yield DeleteTasks(loose)
            if len(loose) < len(ids):
                yield ForgetDone(ids)
        return [(id,) for id in ids]


class MarkDone(Operation[None], frozen=True):
    """Mark tasks done, each with its result; return their ids, and whether their queue keeps them."""

    held: list[Ended]


class ForgetDone(Operation[None], frozen=True):
    """Delete a few done tasks of these tasks' queues whose retention has ended."""

    ids: list[int]


class Remove(Procedure[None], frozen=True):
    """Delete tasks in any state.  Their keys stay reserved."""

    ids: list[int]
    decode = nothing

    def steps(self) -> Plan[Rows]:
        """Reserve their keys, then delete them."""
        yield ReserveKeys(self.ids)
        yield ForgetKeys(2 * len(self.ids))
        return (yield DeleteTasks(self.ids))


class DeleteTasks(Operation[None], frozen=True):
    """Delete tasks in any state."""

    ids: list[int]


class Revoke(Operation[None], frozen=True):
    """Take a task from its holder, if it has one: a later deletion is then a cancellation."""

    id: int


class ReserveKeys(Operation[None], frozen=True):
    """Reserve the keys of tasks beyond their rows, for the rest of the queue's key_ttl."""

    ids: list[int]


class ForgetKeys(Operation[None], frozen=True):
    """Delete a few expired reservations, so that the table stays small."""

    limit: int


class Fail(Procedure[bool], frozen=True):
    """Mark a held task dead, and copy it to the queue's dead_letter_to."""

    id: int
    token: int
    error: str | None
    reason: str = "failed"
    decode = flag

    def steps(self) -> Plan[Rows]:
        """Mark the task dead if the lease is still held, copy it, and unblock its key."""
        rows = yield MarkDead(self.id, self.token, self.reason, self.error)
        for queue, key in rows:
            yield from SettleDead(queue, [self.id], [key]).rows()
        return rows


class MarkDead(Operation[None], frozen=True):
    """Mark a held task dead; return its queue and its key in an ordered outbox, or no row if the lease was lost."""

    id: int
    token: int
    reason: str
    error: str | None


class Unblock(Operation[None], frozen=True):
    """Make the first task of each key ready if it was held back: its predecessor is gone, or may be."""

    queue: str
    keys: list[str]


def unblock(queue: str, keys: Iterable[str | None]) -> Plan[None]:
    """Unblock the tasks that wait for tasks of these keys; a task without a key blocks no other."""
    if ended := sorted({key for key in keys if key is not None}):
        yield Unblock(queue, ended[:_UNBLOCKED_AT_ONCE])


class SettleDead(Procedure[None], frozen=True):
    """Copy the queue's tasks that have just died, and unblock their keys."""

    queue: str
    ids: list[int]
    keys: list[str | None]
    decode = nothing

    def steps(self) -> Plan[Rows]:
        yield CopyDead(self.ids)
        yield from unblock(self.queue, self.keys)
        return []


class CopyDead(Operation[None], frozen=True):
    """Enqueue copies of dead tasks in their queues' ``dead_letter_to``."""

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


class Retry(Procedure[bool], frozen=True):
    """Put a held task back for another attempt, or mark it dead if it has used them up."""

    id: int
    token: int
    delay: int | None
    error: str | None
    decode = flag

    def steps(self) -> Plan[Rows]:
        """Read the attempts and the policy, then postpone the task or mark it dead."""
        held = yield ReadHeld(self.id, self.token)
        for attempt, max_attempts, policy in held:
            if attempt >= max_attempts:
                yield from Fail(self.id, self.token, self.error, "exhausted").rows()
            else:
                delay = delay_after(attempt, policy) if self.delay is None else self.delay
                yield Postpone(self.id, self.token, delay, self.error)
        return held


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
