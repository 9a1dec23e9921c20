"""Operations that end claims otherwise than by an ack, and operations that delete tasks.

Each statement of a worker about its task is fenced by the claim's token: once the lease has run out, it does not find
the row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ..retry import delay_after
from . import Operation, Plan, Procedure, Rows, flag, nothing

_UNBLOCKED_AT_ONCE = 1000
"""The maximum number of keys to unblock in one transaction, because a database may lock each of them.

After a purge, the tasks of further keys become ready without a wake.
"""

Held = tuple[int, int]
"""The id of a claimed task, and the token of the claim."""


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
