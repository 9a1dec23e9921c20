"""What is asked of a database to hand out tasks.

A claim is a plan: it takes the best of what is ready, where one statement can; or it reads the *gate* (may anything
be handed out, is anything due?), moves what is due, and leases what the gate lets through.
Only a claim, a sweep and plain SQL ever move tasks that are due.
"""

from __future__ import annotations

from operator import itemgetter
from os import urandom
from typing import Any, ClassVar, NamedTuple

from ..codec import Codec, DecodeError, decode_headers
from ..records import Task
from . import Operation, Outlook, Plan, Probe, Rows
from .finish import ReleaseMany, Remove, bury, settle_dead

MOVED_AT_ONCE = 1000

_due_then_id = itemgetter(8, 0)
_priority = itemgetter(5)


class Gate(NamedTuple):
    """What a claim has to know of its queue.  Durations and moments in milliseconds."""

    paused: bool
    lease: int
    max_attempts: int
    rate: float | None
    burst: float | None
    tokens: float | None
    refilled_at: int | None
    max_running: int | None
    running: int | None
    due: bool
    now: int

    def tokens_now(self) -> float | None:
        """The tokens in the bucket by now; None without a rate."""
        if self.rate is None:
            return None
        depth = self.burst if self.burst is not None else max(1.0, self.rate)
        if self.tokens is None or self.refilled_at is None:
            return depth
        return min(depth, self.tokens + max(0, self.now - self.refilled_at) * self.rate / 1000)

    def most(self, limit: int) -> int:
        """How many of *limit* tasks may be handed out now."""
        if self.paused:
            return 0
        if self.max_running is not None:
            limit = min(limit, self.max_running - (self.running or 0))
        tokens = self.tokens_now()
        if tokens is not None:
            limit = min(limit, int(tokens + 1e-6))
        return max(0, limit)

    def next_token_at(self) -> int | None:
        """When the bucket will hold a whole token; None if it does, or without a rate."""
        tokens = self.tokens_now()
        if self.rate is None or tokens is None or tokens + 1e-6 >= 1:
            return None
        return self.now + int((1 - tokens) * 1000 / self.rate) + 1


class ReadGate(Operation[Gate], frozen=True):
    """Whether the queue may hand out tasks, and whether any are due to be moved first.

    Until the transaction ends, no other claim spends what a queue with limits has left.
    """

    queue: str

    def decode(self, rows: Rows) -> Gate:
        """The gate of the one row."""
        return Gate(*rows[0])


class Promote(Operation[None], frozen=True):
    """Move what is due: scheduled and lapsed tasks become ready, exhausted and expired ones die."""

    queue: str
    limit: int


class Take(Operation[None], frozen=True):
    """Give the best ready tasks to a worker, as far as one statement can.

    That is, if the queue has no limits and nothing has to be moved first; or whatever there is, where a database has
    functions that do the rest of a claim.  A lease that is not given is the queue's.
    """

    queue: str
    worker: str
    limit: int
    lease: int | None
    token: int


class Lease(Operation[None], frozen=True):
    """Give the best ready tasks to a worker."""

    queue: str
    worker: str
    limit: int
    lease: int
    token: int
    max_attempts: int


class SpendTokens(Operation[None], frozen=True):
    """Store what is left in the queue's bucket, if it has one."""

    queue: str
    tokens: float | None
    refilled_at: int


class Claim(Operation[list[Task[Any]]], frozen=True):
    """Lease up to *limit* tasks to *worker*, best first.  *token* proves the claim."""

    first_alone: ClassVar[bool] = True
    may_fail_to_read: ClassVar[bool] = True
    queue: str
    worker: str
    limit: int
    lease: int | None
    token: int
    codec: Codec

    def plan(self) -> Plan[list[Task[Any]]]:
        """What can be taken at once; or the gate, what is due, and the lease.  Others take the place of poison."""
        tasks: list[Task[Any]] = []
        while len(tasks) < self.limit:
            rows = yield Take(self.queue, self.worker, self.limit - len(tasks), self.lease, self.token)
            if rows and not (yield from self._decode_into(tasks, rows)):
                return tasks
            if not rows:
                break
        return tasks or (yield from self._through_the_gate())

    def undo(self, answer: list[Task[Any]]) -> Operation[Any] | None:
        """The release of the tasks, so that somebody else gets them at once."""
        return ReleaseMany([(task.id, task.token) for task in answer]) if answer else None

    def _through_the_gate(self) -> Plan[list[Task[Any]]]:
        gate = Gate(*(yield ReadGate(self.queue))[0])
        if gate.due:
            yield from promote(self.queue, max(MOVED_AT_ONCE, self.limit))
        lease = gate.lease if self.lease is None else self.lease
        most = gate.most(self.limit)
        tasks: list[Task[Any]] = []
        while len(tasks) < most:
            wanted = most - len(tasks)
            rows = yield from self._lease(wanted, lease, gate.max_attempts)
            if not (yield from self._decode_into(tasks, rows)):
                break
        tokens = gate.tokens_now()
        # Also without a rate: whoever counts what is running in an older snapshot then fails to serialize.
        if tasks and (tokens is not None or gate.max_running is not None):
            yield SpendTokens(self.queue, None if tokens is None else tokens - len(tasks), gate.now)
        return tasks

    def _lease(self, wanted: int, lease: int, max_attempts: int) -> Plan[Rows]:
        return (yield Lease(self.queue, self.worker, wanted, lease, self.token, max_attempts))

    def _decode_into(self, tasks: list[Task[Any]], rows: Rows) -> Plan[int]:
        """Append the tasks of *rows*, best first; bury those that do not decode and say how many."""
        if len(rows) > 1:
            rows.sort(key=_due_then_id)
            if any(row[5] != rows[0][5] for row in rows):
                rows.sort(key=_priority, reverse=True)
        decode = self.codec.decode
        poisonous = 0
        for row in rows:
            try:
                columns = [*row]
                columns[2] = decode(row[2])
                columns[3] = key.decode() if isinstance(key := row[3], bytes) else key
                columns[4] = decode_headers(row[4]) if row[4] else {}
                columns[14] = row[14] == 1
                tasks.append(Task(*columns))
            except DecodeError as error:
                poisonous += 1
                yield from bury(row[0], self.token, "poison", str(error))
        return poisonous


class Receive(Operation[list[Task[Any]]], frozen=True):
    """Claim and delete in one step: each task is handed out at most once."""

    queue: str
    limit: int
    token: int
    codec: Codec

    def plan(self) -> Plan[list[Task[Any]]]:
        """A claim, and the removal of what it came to."""
        claim = Claim(self.queue, "receive", self.limit, None, self.token, self.codec)
        tasks = yield from claim.plan()
        if tasks:
            yield from Remove([task.id for task in tasks]).plan()
        return tasks


class Sweep(Operation[int], frozen=True):
    """Move everything that is due; how many tasks moved."""

    queue: str

    def plan(self) -> Plan[int]:
        """Promotion until nothing is due."""
        total = 0
        while moved := (yield from promote(self.queue, MOVED_AT_ONCE)):
            total += moved
        return total


class ReadOutlook(Probe, frozen=True):
    """Whether a claim would come to something now, or when it may."""

    queue: str

    @property
    def subjects(self) -> tuple[str, ...]:
        """The queue."""
        return (f"task:{self.queue}",)

    def decode(self, rows: Rows) -> Outlook:
        """Ready, or due at the earliest moment at which a row changes by itself or a token is there."""
        *gate_row, ready, wake_at = rows[0]
        gate = Gate(*gate_row)
        if gate.due or (ready and gate.most(1)):
            return Outlook(True, None, gate.now)
        moments = [wake_at] if wake_at is not None else []
        token_at = gate.next_token_at()
        if ready and token_at is not None:
            moments.append(token_at)
        return Outlook(False, min(moments, default=None), gate.now)


class ReadOutlooks(Probe, frozen=True):
    """`ReadOutlook` for several queues at once."""

    queues: tuple[str, ...]

    @property
    def subjects(self) -> tuple[str, ...]:
        """The queues."""
        return tuple(f"task:{queue}" for queue in self.queues)

    def plan(self) -> Plan[Outlook]:
        """Ready if one of them is, or due when the first one is."""
        moments: list[int] = []
        now = 0
        for queue in self.queues:
            outlook = yield from ReadOutlook(queue).plan()
            if outlook.ready:
                return outlook
            now = outlook.now
            if outlook.due is not None:
                moments.append(outlook.due)
        return Outlook(False, min(moments, default=None), now)


def fresh_token() -> int:
    """A number that nobody can have by chance."""
    return int.from_bytes(urandom(8)) >> 1


def promote(queue: str, limit: int) -> Plan[int]:
    """Move up to *limit* due tasks, copy those that died where the queue says; how many moved."""
    rows = yield Promote(queue, limit)
    yield from settle_dead(queue, [(id, lane) for id, state, lane in rows if state == "dead"])
    return len(rows)
