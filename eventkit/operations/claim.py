"""Operations that hand out tasks, and that ack them.

A claim takes the first ready tasks in one statement if it can.  Otherwise it reads the *gate* (may any be handed out,
are any due?), moves due tasks, and leases as many as the gate allows.  Only a claim, a sweep and plain SQL ever move
due tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from os import urandom
from typing import Any, ClassVar, NamedTuple

from ..codec import Codec, DecodeError, decode_headers
from ..values import Task
from . import NO_STATEMENT, Operation, Plan, Probe, Procedure, Readiness, Rows, all_rows, column, first, step
from .enqueue import Bucket
from .finish import Fail, Held, ReleaseMany, Remove, SettleDead, reserve_keys

MOVED_AT_ONCE = 1000

_DRAWS = 10
"""How often a claim draws tasks again after it has set some aside."""

Ended = tuple[int, int, str | None]
"""A `Held`, followed by the result as JSON text."""

_due_then_id = itemgetter(8, 0)
_priority = itemgetter(5)

_GROUP, _TURN = 15, 16
"""The places of the group and the turn among the columns of a claim; a backend without groups leaves them out."""

_turn_then_id = itemgetter(_TURN, 0)


class Gate(NamedTuple):
    """The state of a queue that a claim needs.  Durations and times are in milliseconds."""

    paused: bool
    lease: int
    max_attempts: int
    rate: float | None
    burst: float | None
    tokens: float | None
    refilled_at: int | None
    max_running: int | None
    running: int | None
    room: int | None
    """How many more may run by the limits over several queues; None without any."""
    due: bool
    now: int
    grouped: bool = False
    """True if the queue is ordered or limits its groups."""
    paced: bool = False
    """True if its groups have a rate."""
    limited: bool = False
    """True if its groups have a rate or a maximum."""

    def tokens_now(self) -> float | None:
        """Return the tokens in the bucket by now; None without a rate."""
        refilled_at = None if self.refilled_at is None else min(self.refilled_at, self.now)
        bucket = Bucket(self.rate, self.burst, self.tokens, refilled_at, self.now)
        return None if self.rate is None else bucket.content()

    def most(self, limit: int) -> int:
        """Return how many of *limit* tasks may be handed out now."""
        if self.paused:
            return 0
        if self.max_running is not None:
            limit = min(limit, self.max_running - (self.running or 0))
        if self.room is not None:
            limit = min(limit, self.room)
        tokens = self.tokens_now()
        if tokens is not None:
            limit = min(limit, int(tokens + 1e-6))
        return max(0, limit)

    def next_token_at(self) -> int | None:
        """Return when the bucket will hold a whole token; None if it does, or without a rate."""
        tokens = self.tokens_now()
        if self.rate is None or tokens is None or tokens + 1e-6 >= 1:
            return None
        return self.now + int((1 - tokens) * 1000 / self.rate) + 1


class Promote(Procedure[int], frozen=True):
    """Move due tasks: scheduled and lapsed tasks become ready, exhausted and expired ones die; return their number."""

    queue: str
    limit: int
    decode = first

    def steps(self) -> Plan[Rows]:
        """Move the tasks, and copy the dead ones to the queue's dead_letter_to."""
        rows = yield step("UpdateDue", queue=self.queue, limit=self.limit)
        if died := [id for id, state in rows if state == "dead"]:
            yield from SettleDead(died).rows()
        return [(len(rows),)]


class Take(Procedure[Rows], frozen=True):
    """Lease the first ready tasks to a worker.  The default lease is the queue's."""

    queue: str
    worker: str
    limit: int
    lease: int | None
    token: int
    decode = all_rows

    def steps(self) -> Plan[Rows]:
        """Take the tasks in one statement, or else go through the gate."""
        rows = yield TakeFirst(self.queue, self.worker, self.limit, self.lease, self.token)
        return rows or (yield from self._through_the_gate())

    def _through_the_gate(self) -> Plan[Rows]:
        """Move due tasks, and lease as many as the queue's limits allow."""
        queue = self.queue
        # Until the transaction ends, no other claim can use the remaining allowance of a queue with limits.
        gate = Gate(*(yield step("ReadGate", queue=queue))[0])
        if gate.refilled_at is not None and gate.refilled_at > gate.now:  # The clock was ahead when it was set.
            yield step("SpendTokens", queue=queue, tokens=gate.tokens_now(), refilled_at=gate.now)
        if gate.due:
            yield from Promote(queue, max(MOVED_AT_ONCE, self.limit)).rows()
        most = gate.most(self.limit)
        if not most:
            return []
        lease = gate.lease if self.lease is None else self.lease
        if gate.grouped:
            rows = yield from self._in_groups(gate, most, lease)
        else:
            rows = yield step(
                "Lease",
                queue=queue,
                worker=self.worker,
                limit=most,
                lease=lease,
                token=self.token,
                max_attempts=gate.max_attempts,
            )
        tokens = gate.tokens_now()
        # Also without a rate: a concurrent count of running tasks in an older snapshot then fails to serialize.
        if rows and (tokens is not None or gate.max_running is not None or gate.room is not None):
            left = None if tokens is None else tokens - len(rows)
            yield step("SpendTokens", queue=queue, tokens=left, refilled_at=gate.now)
        return rows

    def _in_groups(self, gate: Gate, most: int, lease: int) -> Plan[Rows]:
        """Lease tasks, and set aside those that have to wait for their group, more each time, to find others."""
        leased: Rows = []
        for draw in range(_DRAWS):
            if gate.limited:
                leased += yield step(
                    "LeaseInGroups",
                    queue=self.queue,
                    worker=self.worker,
                    limit=most - len(leased),
                    lease=lease,
                    token=self.token,
                    max_attempts=gate.max_attempts,
                )
            else:
                leased += yield step(
                    "LeaseInOrder",
                    queue=self.queue,
                    worker=self.worker,
                    limit=most - len(leased),
                    lease=lease,
                    token=self.token,
                    max_attempts=gate.max_attempts,
                )
            left = most - len(leased)
            if not left:
                break
            left = min(left << 2 * draw, MOVED_AT_ONCE)
            yield step("Block", queue=self.queue, limit=left)
            aside = yield step("HoldBack", queue=self.queue, limit=left)
            if gate.paced:
                aside += yield step("PutOff", queue=self.queue, limit=left)
            if not aside:
                break
        return leased


class TakeFirst(Operation[None], frozen=True):
    """Lease the first ready tasks to a worker, if the queue has no limits and no task has to be moved first."""

    queue: str
    worker: str
    limit: int
    lease: int | None
    token: int


class Claim(Operation[list[Task[Any]]], frozen=True):
    """Lease up to *limit* tasks to *worker*, in order.  *token* proves the claim."""

    first_alone: ClassVar[bool] = True
    may_fail_to_read: ClassVar[bool] = True
    queue: str
    worker: str
    limit: int
    lease: int | None
    token: int
    codec: Codec

    def plan(self) -> Plan[list[Task[Any]]]:
        """Take tasks, and others for those whose payloads do not decode."""
        tasks: list[Task[Any]] = []
        while len(tasks) < self.limit:
            rows = yield from self._take(self.limit - len(tasks))
            if not (yield from self._decode_into(tasks, rows)):
                break
        return tasks

    def undo(self, answer: list[Task[Any]]) -> Operation[Any] | None:
        """Return the release of the tasks, so that another worker can claim them at once."""
        return ReleaseMany([(task.id, task.token) for task in answer]) if answer else None

    def _take(self, wanted: int) -> Plan[Rows]:
        take = Take(self.queue, self.worker, wanted, self.lease, self.token)
        rows = yield take
        return (yield from take.steps()) if rows is NO_STATEMENT else rows

    def _decode_into(self, tasks: list[Task[Any]], rows: Rows) -> Plan[int]:
        """Append the tasks of *rows*, in order; mark those dead that do not decode, and return their number."""
        if len(rows) > 1:
            in_turn = len(rows[0]) > _TURN and all(row[_TURN] is not None for row in rows)
            rows.sort(key=_turn_then_id if in_turn else _due_then_id)
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
                if len(columns) > _GROUP:
                    group = columns[_GROUP]
                    columns[_GROUP:] = ((group.decode() if isinstance(group, bytes) else group) or None,)
                tasks.append(Task(*columns))
            except DecodeError as error:
                poisonous += 1
                yield from Fail(row[0], self.token, str(error), "poison").rows()
        return poisonous


class QueueOrder:
    """Queues that are claimed from by their weights, or one after the other if *strict*.

    A queue with twice the weight has twice as many tasks handed out, while both have any.  Each has a clock of its own,
    which runs slower the more weight it has; the one that is furthest behind is next.  A queue that was empty when it
    was next gets no more later.
    """

    def __init__(self, weights: Mapping[str, float], claim: Callable[[str], Claim], strict: bool = False) -> None:
        self._weights = weights
        self._claim = claim
        self._strict = strict
        self._clocks = dict.fromkeys(weights, 0.0)

    def __iter__(self) -> Iterator[Claim]:
        """Yield the claims to make, until one returns tasks."""
        names = self._weights if self._strict else sorted(self._weights, key=self._clocks.__getitem__)
        return map(self._claim, names)

    def record(self, claim: Claim, found: int) -> None:
        """Record that *claim* has returned so many tasks."""
        queue = claim.queue
        if found:
            self._clocks[queue] += found / self._weights[queue]
        else:
            self._clocks[queue] = max(self._clocks.values())


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


class Finish(Procedure[list[int]], frozen=True):
    """Finish tasks, each with its result; return the ids of those whose lease was still held."""

    held: list[Ended]
    decode = column

    def steps(self) -> Plan[Rows]:
        """Mark the tasks done, then delete those that no queue keeps."""
        rows = yield step("MarkDone", held=self.held)
        ids = [id for id, _ in rows]
        if ids:
            yield from reserve_keys(ids)
            if loose := [id for id, kept in rows if not kept]:
                yield step("DeleteTasks", ids=loose)
            if len(loose) < len(ids):
                yield step("ForgetDone", ids=ids)
        return [(id,) for id in ids]


class Receive(Operation[list[Task[Any]]], frozen=True):
    """Claim and delete in one step: each task is handed out at most once."""

    queue: str
    limit: int
    token: int
    codec: Codec

    def plan(self) -> Plan[list[Task[Any]]]:
        """Claim tasks, and delete them."""
        claim = Claim(self.queue, "receive", self.limit, None, self.token, self.codec)
        tasks = yield from claim.plan()
        if tasks:
            yield from Remove([task.id for task in tasks]).rows()
        return tasks


class Sweep(Operation[int], frozen=True):
    """Move all due tasks; return their number."""

    queue: str

    def plan(self) -> Plan[int]:
        """Promote tasks until none is due."""
        total = 0
        while moved := (yield from Promote(self.queue, MOVED_AT_ONCE).plan()):
            total += moved
        return total


class TasksAhead(Probe, frozen=True):
    """A probe that is ready when a claim would return a task."""

    subject = "task:{0.queue}"
    queue: str

    def decode(self, rows: Rows) -> Readiness:
        """Return the readiness, due at the first time at which a row changes by itself or a token is added."""
        *gate_row, ready, wake_at, room_at = rows[0]
        gate = Gate(*gate_row)
        if gate.due or (ready and gate.most(1)):
            return Readiness(True, None, gate.now)
        moments = [wake_at] if wake_at is not None else []
        token_at = gate.next_token_at()
        if ready and token_at is not None:
            moments.append(token_at)
        if ready and room_at is not None:
            moments.append(room_at)
        return Readiness(False, min(moments, default=None), gate.now)


class TasksAheadInQueues(Probe, frozen=True):
    """`TasksAhead` for several queues at once."""

    queues: tuple[str, ...]

    @property
    def subjects(self) -> tuple[str, ...]:
        return tuple(f"task:{queue}" for queue in self.queues)

    def plan(self) -> Plan[Readiness]:
        """Return ready if one of them is, or the earliest due time."""
        moments: list[int] = []
        now = 0
        for queue in self.queues:
            readiness = yield from TasksAhead(queue).plan()
            if readiness.ready:
                return readiness
            now = readiness.now
            if readiness.due is not None:
                moments.append(readiness.due)
        return Readiness(False, min(moments, default=None), now)


def fresh_token() -> int:
    """Return a number that cannot be guessed."""
    return int.from_bytes(urandom(8)) >> 1
