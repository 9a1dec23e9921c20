"""Operations on locks, limits, workers, outboxes, inboxes and results.

The *id* of a result is JSON: the number of a task, or a string.  A waiter for a task's result is also woken by its
death.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import msgspec

from ..checks import as_datetime
from ..errors import TaskFailed
from ..retry import Exponential, encode
from ..values import InboxSettings, OutboxStats, WorkerInfo, seconds
from . import Operation, Plan, Probe, Read, Rows, count, first_or_none, flag, nothing, one, step, until_free
from .claim import Ack, AckMany, Ended, Finish, Sweep
from .finish import Held


class AcquireLock(Operation[int | None], frozen=True):
    """Acquire the lock for *ttl* milliseconds, if it is free; return its fence, or None."""

    name: str
    token: int
    holder: str
    ttl: int
    decode = first_or_none

    def undo(self, answer: int | None) -> Operation[Any] | None:
        """Return the release, so that another holder can acquire it at once."""
        return None if answer is None else ReleaseLock(self.name, self.token)


class RenewLock(Operation[bool], frozen=True):
    """Set the lock to expire *ttl* milliseconds from now."""

    name: str
    token: int
    ttl: int
    decode = flag


class ReleaseLock(Operation[bool], frozen=True):
    """Release the lock."""

    name: str
    token: int
    decode = flag


class ReadHolder(Read[tuple[str | None, datetime | None]], frozen=True):
    """Read the holder of the lock, and when it expires; None and None for a free lock."""

    name: str
    decode = one(lambda holder=None, until=None: (holder, None if until is None else as_datetime(until)))


class LockAhead(Probe, frozen=True):
    """A probe that is ready when the lock is free, and due when it expires."""

    subject = "lock:{0.name}"
    name: str
    decode = until_free


class CountCall(Operation[bool], frozen=True):
    """Count a call in the current window of *per* milliseconds, if it holds fewer than *limit*."""

    name: str
    per: int
    limit: int
    decode = flag


class TakeToken(Operation[bool], frozen=True):
    """Take a token from a bucket of *burst*, which gains *rate* a second and is full in *full_after* milliseconds."""

    name: str
    rate: float
    burst: float
    full_after: int
    decode = flag


EVERY = 10.0
"""The interval between two reports of a worker, in seconds."""

ALIVE = 30_000
"""The milliseconds after its last report for which a worker counts as alive."""

FORGOTTEN = 3_600_000
"""The milliseconds after its last report after which a worker is deleted."""

MOST_LEASED = 10_000
"""The maximum number of leased tasks that are read."""


class Beat(Operation[None], frozen=True):
    """Report that a worker serves *queues* with so many *slots*, of them *running* busy with a task.

    Each report also deletes workers without a recent report, whose rows would stay for ever.
    """

    name: str
    queues: list[str]
    slots: int
    running: int

    def plan(self) -> Plan[None]:
        queues = msgspec.json.encode(self.queues).decode()
        yield step("SaveWorker", name=self.name, queues=queues, slots=self.slots, running=self.running)
        yield step("DropWorkers", older_than=FORGOTTEN)


class SignOff(Operation[None], frozen=True):
    """Delete a worker that has ended."""

    name: str
    decode = nothing


class ListWorkers(Read[list[WorkerInfo]], frozen=True):
    """List the workers by name: those that report, and those that have tasks leased."""

    alive: int = ALIVE
    limit: int = MOST_LEASED

    def decode(self, rows: Rows) -> list[WorkerInfo]:
        """Merge the rows of reports and the rows of leases per queue, by the worker's name."""
        workers: dict[str, WorkerInfo] = {}
        for name, queues, slots, running, leased, started, seen, oldest, alive in sorted(rows, key=lambda row: row[0]):
            known = workers.get(name) or WorkerInfo(name, [], None, None, 0, None, None, None, False)
            oldest_claims = [claimed for claimed in (known.oldest_claim_ms, oldest) if claimed is not None]
            workers[name] = WorkerInfo(
                name,
                sorted({*known.queues, *msgspec.json.decode(queues, type=list[str])}),
                known.slots if slots is None else slots,
                known.running if running is None else running,
                known.leased + leased,
                known.started_ms or started,
                known.seen_ms or seen,
                min(oldest_claims, default=None),
                known.alive or bool(alive),
            )
        return list(workers.values())


class See(Operation[bool], frozen=True):
    """Record that the consumer has seen the message; return whether it is the first time."""

    consumer: str
    message_id: str
    decode = flag


class PruneInbox(Operation[int], frozen=True):
    """Forget messages that the consumer saw longer ago; return their number."""

    consumer: str
    older_than: int
    decode = count


class AddMessage(Operation[str], frozen=True):
    """Add a message, with the times of a `TaskRow`; its own id is among the headers."""

    queue: str
    payload: str
    headers: str | None
    key: str | None
    message_id: str
    priority: int = 0
    delay: int | None = None
    run_at: int | None = None
    expires_in: int | None = None
    expires_at: int | None = None

    def decode(self, rows: Rows) -> str:
        """Return the message's id, which the caller chose."""
        return self.message_id


class OpenOutbox(Operation[None], frozen=True):
    """Store the default retry policy of deliveries, unless the queue is configured, and whether it is ordered."""

    queue: str
    ordered: bool
    max_attempts: int = 5
    retry: str = encode(Exponential(base=5.0, jitter=0.0))
    decode = nothing


class ReadOutbox(Read[OutboxStats], frozen=True):
    """Read the outbox's numbers, besides those that this process counts: deliveries, failures, mean latency."""

    queue: str
    counted: tuple[int, int, float | None]

    def decode(self, rows: Rows) -> OutboxStats:
        pending, delivering, dead, age = rows[0]
        return OutboxStats(pending, delivering, dead, None if age is None else max(0, age) / 1000, *self.counted)


class ConfigureInbox(Operation[None], frozen=True):
    """Store the *given* settings of a consumer's inbox."""

    consumer: str
    given: list[str]
    keep: int | None = None
    decode = nothing


class ReadInboxSettings(Read[InboxSettings], frozen=True):
    """Read the settings of a consumer's inbox, or the defaults."""

    consumer: str
    decode = one(lambda *row: InboxSettings(*map(seconds, row)))


TaskResult = tuple[int, str, str, int | None]
"""A task's id, its result as JSON text, its queue, and the milliseconds to keep it; None as the queue says."""


class SaveResult(Operation[None], frozen=True):
    """Save a value under an id for *ttl* milliseconds."""

    id: str
    value: str
    ttl: int
    decode = nothing


class SaveTaskResult(Operation[None], frozen=True):
    """Save a value under an id for *ttl* milliseconds, or an hour, or as long as the queue keeps done tasks."""

    id: str
    value: str
    queue: str
    ttl: int | None = None
    decode = nothing


class AckWithResult(Operation[bool], frozen=True):
    """Finish a task and save its result, both or neither."""

    id: int
    token: int
    queue: str
    result: str
    ttl: int | None = None

    def plan(self) -> Plan[bool]:
        """Ack the task, in one statement if possible, and save the result if the lease was still held."""
        ended: list[Ended] = [(self.id, self.token, self.result)]
        if not (yield Ack(self.id, self.token)) and not (yield from Finish(ended).rows()):
            return False
        yield SaveTaskResult(str(self.id), self.result, self.queue, self.ttl)
        return True


class FinishMany(Operation[list[int]], frozen=True):
    """Finish tasks and save the *results* of some, all or none; return the ids of those whose lease was still held.

    With *careful*, which is for tasks with keys and for a caller's transaction, lock all tasks in the order of their
    ids first, because a deadlock in the caller's transaction cannot be retried.
    """

    held: list[Held]
    results: list[TaskResult]
    careful: bool

    def plan(self) -> Plan[list[int]]:
        """Ack the tasks, in one statement if possible, and save the results of those whose lease was still held."""
        done = [] if self.careful else [id for (id,) in (yield AckMany(self.held))]
        if len(done) < len(self.held):
            gone, texts = set(done), {id: text for id, text, *_ in self.results}
            ended = [(id, token, texts.get(id)) for id, token in self.held if id not in gone]
            done += yield from Finish(ended).plan()
        ours = set(done)
        if saved := [row for row in self.results if row[0] in ours]:
            yield step("SaveTaskResults", results=saved)
        return sorted(done)


class GetResult(Read[Any], frozen=True):
    """Read the value saved under an id, or *default*."""

    id: str
    default: Any

    def decode(self, rows: Rows) -> Any:
        return msgspec.json.decode(rows[0][0]) if rows else self.default


class DropResults(Operation[int], frozen=True):
    """Delete expired results, at most *limit*; return their number."""

    limit: int
    decode = count


class AwaitResult(Operation[tuple[Any] | TaskFailed | None], frozen=True):
    """Read the value saved under an id, or the failure of the dead *task*; None if there is neither yet."""

    first_alone: ClassVar[bool] = True
    id: str
    task: int | None

    def plan(self) -> Plan[tuple[Any] | TaskFailed | None]:
        """Read; if the task is dead by the clock, move it and read again: a worker may just have finished it."""
        [(value, queue, moved, *failure)] = yield self
        if value is None and queue is not None and not moved:
            yield from Sweep(queue).plan()
            [(value, queue, moved, *failure)] = yield self
        if value is not None:
            return (msgspec.json.decode(value),)
        return TaskFailed(self.task, *failure) if moved and self.task is not None else None


class ResultAhead(Probe, frozen=True):
    """A probe that is ready when there is a result or its task is dead, and due when the task may die by the clock."""

    subject = "result:{0.id}"
    id: str
    task: int | None
