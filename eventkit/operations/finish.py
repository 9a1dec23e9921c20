"""Operations that end claims otherwise than by an ack, and operations that delete tasks.

Each statement of a worker about its task is fenced by the claim's token: once the lease has run out, it does not find
the row.
"""

from __future__ import annotations

from ..retry import delay_after
from . import Operation, Plan, Procedure, Rows, column, flag, nothing, step

Held = tuple[int, int]
"""The id of a claimed task, and the token of the claim."""


class Remove(Procedure[None], frozen=True):
    """Delete tasks in any state.  Their keys stay reserved."""

    ids: list[int]
    decode = nothing

    def steps(self) -> Plan[Rows]:
        """Reserve their keys, then delete them."""
        yield from reserve_keys(self.ids)
        return (yield step("DeleteTasks", ids=self.ids))


def reserve_keys(ids: list[int]) -> Plan[None]:
    """Reserve the keys of tasks beyond their rows, for the rest of the queue's key_ttl; forget a few expired keys."""
    yield step("ReserveKeys", ids=ids)
    yield step("ForgetKeys", limit=2 * len(ids))


class Fail(Procedure[bool], frozen=True):
    """Mark a held task dead, and copy it to the queue's dead_letter_to."""

    id: int
    token: int
    error: str | None
    reason: str = "failed"
    code: str | None = None
    decode = flag

    def steps(self) -> Plan[Rows]:
        """Mark the task dead if the lease is still held, and copy it."""
        rows = yield step(
            "MarkDead", id=self.id, token=self.token, reason=self.reason, error=self.error, code=self.code
        )
        if rows:
            yield from SettleDead([self.id]).rows()
        return rows


class SettleDead(Procedure[None], frozen=True):
    """Copy tasks that have just died to the ``dead_letter_to`` of their queue."""

    ids: list[int]
    decode = nothing

    def steps(self) -> Plan[Rows]:
        return (yield step("CopyDead", ids=self.ids))


class Retry(Procedure[bool], frozen=True):
    """Put a held task back for another attempt, or mark it dead if it has used them up."""

    id: int
    token: int
    delay: int | None
    error: str | None
    code: str | None = None
    decode = flag

    def steps(self) -> Plan[Rows]:
        """Read the attempts and the policy, then postpone the task or mark it dead."""
        held = yield step("ReadHeld", id=self.id, token=self.token)
        for attempt, max_attempts, policy in held:
            if attempt >= max_attempts:
                yield from Fail(self.id, self.token, self.error, "exhausted", self.code).rows()
            else:
                delay = delay_after(attempt, policy) if self.delay is None else self.delay
                yield step("Postpone", id=self.id, token=self.token, delay=delay, error=self.error, code=self.code)
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
    decode = column
