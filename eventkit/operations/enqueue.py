"""Operations that put tasks into a queue."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from itertools import chain, repeat
from typing import ClassVar, NamedTuple

from ..errors import KeyConflict, QueueFull
from ..values import Enqueued
from . import Operation, Plan, Probe, Readiness, Rows, step

TaskRow = tuple[
    str, str | None, int, int | None, str | None, int | None, int | None, int | None, int | None, str | None
]
"""``payload, headers, priority, max_attempts, key, delay, run_at, expires_in, expires_at, group``.

JSON text, and milliseconds from now or since 1970.
"""

PLAIN = (None, 0, None, None, None, None, None, None, None)
"""The fields of `TaskRow` after the payload, for a task that has nothing but a payload."""


class Enqueue(Operation[Enqueued], frozen=True):
    """Add one task that is due now, has no key and never expires: the common case, in one statement."""

    first_alone: ClassVar[bool] = True
    queue: str
    payload: str
    headers: str | None
    priority: int
    max_attempts: int | None

    def plan(self) -> Plan[Enqueued]:
        """Run one statement, which adds nothing if there is no room, or a limit that it does not check."""
        rows = yield self
        if rows and rows[0][0] is not None:
            return Enqueued(rows[0][0], True)
        task = (self.payload, self.headers, self.priority, self.max_attempts, *PLAIN[3:])
        return (yield from EnqueueOne(self.queue, task).plan())


class EnqueuePlain(Operation[list[Enqueued]], frozen=True):
    """Add tasks that have nothing but a payload, to a queue without limits for producers."""

    first_alone: ClassVar[bool] = True
    queue: str
    payloads: list[str]

    def plan(self) -> Plan[list[Enqueued]]:
        """Run one statement, which adds nothing if there is a bound; then check the bound and add them."""
        rows = yield self
        if not rows and self.payloads:
            return (yield from EnqueueMany(self.queue, [(payload, *PLAIN) for payload in self.payloads]).plan())
        # Equal to `Enqueued(id, True)` for each, in half the time.
        return list(map(tuple.__new__, repeat(Enqueued), zip(chain.from_iterable(rows), repeat(True))))


class EnqueueMany(Operation[list[Enqueued]], frozen=True):
    """Add tasks of any kind; a task whose key is taken is not added, and answers with the first one's id."""

    queue: str
    tasks: list[TaskRow]

    def plan(self) -> Plan[list[Enqueued]]:
        """Add the tasks, find the holders of taken keys, and check the bound if there is one."""
        if any(task[2] for task in self.tasks) and (yield step("ReadOrdered", queue=self.queue)):
            raise ValueError(f"queue {self.queue!r} is ordered, so its tasks have no priority: leave priority= out")
        bounded = yield from check_batch(self.queue, len(self.tasks), [task[0] for task in self.tasks])
        rows = yield self
        if bounded and rows:
            yield from check_bound(self.queue, len(rows))
        if len(rows) == len(self.tasks):
            return [Enqueued(id, True) for id, _ in rows]
        plain = iter([id for id, key in rows if key is None])
        created: dict[str, int] = {key: id for id, key in rows if key is not None}
        keys = Counter(task[4] for task in self.tasks if task[4] is not None)
        wanted = sorted(key for key, number in keys.items() if key not in created or number > 1)
        found = (yield step("FindKeys", queue=self.queue, keys=wanted)) if wanted else []
        holders = {key: (id, payload) for key, id, payload in found}
        answers: list[Enqueued] = []
        for task in self.tasks:
            key = task[4]
            if key is None:
                answers.append(Enqueued(next(plain), True))
            elif key in created:
                answers.append(Enqueued(created.pop(key), True))
            else:
                id, payload = holders[key]
                if payload is not None and not _same(task[0], payload):
                    raise KeyConflict(self.queue, key, id)
                answers.append(Enqueued(id, False))
        return answers


class EnqueueOne(Operation[Enqueued], frozen=True):
    """Add one task of any kind, unless its key is taken."""

    queue: str
    task: TaskRow

    def plan(self) -> Plan[Enqueued]:
        """Run `EnqueueMany` for one task."""
        [answer] = yield from EnqueueMany(self.queue, [self.task]).plan()
        return answer


class RoomAhead(Probe, frozen=True):
    """A probe that is ready when *count* more tasks fit into the queue."""

    subject = "task:{0.queue}"
    queue: str
    count: int

    def decode(self, rows: Rows) -> Readiness:
        """Return the readiness, due when the bucket of the queue's rate holds enough tokens."""
        fits, *columns = rows[0]
        bucket = Bucket(*columns)
        short = self.count - bucket.content()
        if bucket.rate is None or short <= ROUNDING:
            return Readiness(bool(fits), None, bucket.now)
        return Readiness(False, bucket.now + int(short * 1000 / bucket.rate) + 1, bucket.now)


ROUNDING = 1e-6
"""The part of a token that a bucket may lack because of rounding."""


class Bucket(NamedTuple):
    """A bucket of tokens, which gains *rate* a second, as it was at *refilled_at*.  Times are in milliseconds."""

    rate: float | None
    burst: float | None
    tokens: float | None
    refilled_at: int | None
    now: int

    @property
    def depth(self) -> float:
        """The most tokens that it holds."""
        return self.burst if self.burst is not None else max(1.0, self.rate or 0)

    def content(self) -> float:
        """Return the tokens in it by now; it is full if a clock that was ahead by more than a second refilled it."""
        if self.tokens is None or self.refilled_at is None or self.rate is None or self.refilled_at > self.now + 1000:
            return self.depth
        return min(self.depth, self.tokens + max(0, self.now - self.refilled_at) * self.rate / 1000)


def check_batch(queue: str, count: int, payloads: Iterable[str] = ()) -> Plan[bool]:
    """Return whether the queue has limits for producers; raise an error for a batch that they never allow.

    Until the transaction ends, no other process can fill the room.
    """
    rooms = yield step("ReadRoom", queue=queue)
    for max_size, _, max_bytes, *columns in rooms:
        bucket = Bucket(*columns)
        if max_bytes is not None and (largest := max((len(text.encode()) for text in payloads), default=0)) > max_bytes:
            raise ValueError(
                f"a payload has {largest:,} bytes as JSON, more than the max_bytes of queue {queue!r}, {max_bytes:,}: "
                f"store the data elsewhere and send a reference, or configure a larger max_bytes"
            )
        for setting, most in ("max_size", max_size), ("enqueue_burst", bucket.rate and bucket.depth):
            if most is not None and count > most:
                error = QueueFull(
                    f"{count} tasks at once never fit into queue {queue!r}, whose {setting} is {most:g}: "
                    f"enqueue fewer at a time, or configure a larger {setting}"
                )
                error.fits = False
                raise error
    return bool(rooms)


def check_bound(queue: str, added: int) -> Plan[None]:
    """Raise `QueueFull` if the rows just written exceed a limit; the transaction then rolls back."""
    for max_size, size, _, *columns in (yield step("ReadRoom", queue=queue)):
        bucket = Bucket(*columns)
        left = bucket.content() - added
        if max_size is not None and size > max_size:
            raise QueueFull(
                f"queue {queue!r} has reached its max_size: wait for room with enqueue(..., wait=seconds), "
                f"run more workers, or configure a larger max_size"
            )
        if bucket.rate is not None and left < -ROUNDING:
            error = QueueFull(
                f"queue {queue!r} has reached its enqueue_rate: try again in {-left / bucket.rate:.3g} s, or wait with "
                f"enqueue(..., wait=seconds)"
            )
            error.retry_after = -left / bucket.rate
            raise error
        if bucket.rate is not None:
            yield step("SpendEnqueueTokens", queue=queue, tokens=left, refilled_at=bucket.now)


def _same(text: str, other: str | bytes) -> bool:
    """Return whether two payloads are the same JSON value."""
    try:
        one, two = (json.loads(each, parse_int=_number, parse_float=_number) for each in (text, other))
    except (ValueError, ArithmeticError, RecursionError):
        return False
    return bool(one == two)


def _number(text: str) -> tuple[Decimal]:
    """Return a number in a tuple, because True equals 1."""
    return (Decimal(text),)
