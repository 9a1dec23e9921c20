"""`Member`: one of the iterators that share the events of a stream as a consumer group.

The events of a key are handed out in order, by one member at a time.  A member reads the stream once for all of its
partitions.  It looks at its share of the partitions between two events, so that nothing of a partition is in progress
when another member gets it.
"""

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from heapq import heapify, heappop, heappush
from time import monotonic
from typing import Any

from . import checks, protocols
from .checks import MOST, Duration, default_worker
from .codec import Codec
from .errors import PASSING, LeaseLost
from .handling import Lease, logger
from .loops import AsyncMessages, Feed, Messages, located
from .operations import Operation
from .operations import consumer_group as operations
from .operations.claim import fresh_token
from .operations.consumer_group import ParkedRow, partition_of
from .operations.position import Position, ReadPosition, VerifyPosition
from .operations.stream import ReadHead
from .plans import HAND, Call, Plan, Sleep
from .retry import delay_after
from .values import Event

_LINGER = 0.1
"""Seconds without an event after which positions are saved."""

_CHECK = 0.25
"""Seconds after which a busy member looks for changes of its group."""

_LOCKED = 1.0
"""Seconds after which a member tries again to take partitions that a transaction has locked."""

_MOST_KEYS = 10_000
"""The maximum number of events that are looked at in one step."""

_MOST_RETRIED = 100
"""The maximum number of parked events that are handed out before others."""


class _Partition:
    """A partition of a member."""

    __slots__ = ("before", "full", "parked", "read", "saved", "stopped")

    def __init__(self, position: int, stopped: bool) -> None:
        self.saved = self.before = self.read = position
        """The stored position; and the offsets up to which the stream was read before this block, and with it."""
        self.parked = 0
        self.full = False
        """True if reading waits until fewer events are parked."""
        self.stopped = stopped

    def position(self, first: int) -> int:
        """Return the position to save, if *first* is the first event of this block that was not handled."""
        return max(self.saved, self.before, min(self.read, first - 1))


class _Parked:
    """An event that waits for its next attempt at *due*; or, where that is None, for the events of its key before it."""

    __slots__ = ("attempt", "due", "event", "key", "partition", "queued")

    def __init__(self, event: int, partition: int, key: str | None, attempt: int, due: float | None) -> None:
        self.event = event
        self.partition = partition
        self.key = key
        self.attempt = attempt
        """The number of attempts that have failed."""
        self.due = due
        self.queued = False

    @property
    def line(self) -> str | int:
        """The events that wait for each other: those of the key, or this one alone."""
        return self.event if self.key is None else self.key


class Membership(Feed[Event[Any]]):
    """The events of the partitions that a member of a group holds."""

    def __init__(
        self,
        stream: str,
        group: str,
        codec: Codec,
        origin: Operation[Any] | int,
        *,
        partitions: int | None,
        max_parked: int | None,
        lease_ms: int,
        batch: int,
        every_s: float,
        skip: bool,
    ) -> None:
        super().__init__()
        self._stream = stream
        self._group = group
        self._codec = codec
        self._origin = origin
        self._wanted = partitions
        self._max_parked = max_parked
        self._lease_ms = lease_ms
        self._batch = batch
        self._every_s = every_s
        self._skip = skip
        self.paused = False
        self._clear()

    def _clear(self) -> None:
        self._lease: Lease | None = None
        self._token = fresh_token()
        self._count = 0
        self._bound = 0
        self._generation = -1
        self._position: Position | None = None
        self.held: dict[int, _Partition] = {}
        self._lines: dict[str | int, deque[_Parked]] = {}
        """The parked events, by what they wait for, in order."""
        self._due: list[tuple[float, int, _Parked]] = []
        self._unwritten: dict[int, _Parked] = {}
        self._done: list[int] = []
        """The parked events that were handled, whose rows are still stored."""
        self._again: dict[int, _Parked] = {}
        """The parked events that are being handed out again."""
        self._rest: list[Event[Any]] = []
        """The events that were read, while parked ones are handed out."""
        self._retrying = False
        self._ended: Event[Any] | None = None
        """The event that was parked while it was in progress."""
        self._save_at = self._check_at = 0.0
        self._changes_at = float("inf")
        self.items.clear()

    def steps(self) -> Plan[None]:
        """Join; then read, hand out, and save from time to time and when idle."""
        while True:
            try:
                if self._lease is None:
                    yield from self._join()
                yield from self._look()
                block = yield from self._read()
                if block is None:
                    continue
                while self.items:
                    yield HAND
                    yield from self._look()
                if not block.more:
                    yield from self._idle(max(block.last, block.position.offset))
            except PASSING:
                continue

    def _join(self) -> Plan[None]:
        start = (yield from located(self._origin)).after
        began, seconds = monotonic(), self._lease_ms / 1000
        self._clear()
        token = self._token
        self._count = yield operations.JoinGroup(
            self._stream,
            self._group,
            default_worker(),
            token,
            self._lease_ms,
            self.paused,
            self._wanted,
            self._max_parked,
            start,
        )
        keep = operations.KeepMember(self._stream, self._group, token, self._lease_ms)
        self._lease = Lease(lambda: keep, seconds, began + seconds - monotonic(), self._lost)
        self.heartbeat.add(self._lease)
        self._save_at = monotonic() + self._every_s

    def _lost(self) -> None:
        """Fail: the lease has ended, and other members may have the partitions."""
        if self._lease is not None:
            self._lease = None
            self.failure = self._gone()
            self.stop.set()
            self.look_at = 0.0

    def _gone(self) -> LeaseLost:
        return LeaseLost(
            f"this member of group {self._group!r} of stream {self._stream!r} has lost its partitions, because its "
            f"lease ended, or the group was reset or removed: join again to continue"
        )

    def _look(self) -> Plan[None]:
        """Renew, save, and look at the share if it is time; and hand out parked events that are due."""
        while self._lease is not None and monotonic() >= self._lease.until:
            began = monotonic()
            self._lease.answered(began, (yield self._lease.renewal()))
        if self._lease is None:
            raise self._gone()
        if monotonic() >= self._save_at:
            yield from self._save()
        if monotonic() >= self._check_at:
            generation = yield operations.ReadGeneration(self._stream, self._group)
            self._check_at = monotonic() + _CHECK
            if generation != self._generation or monotonic() >= self._changes_at:
                yield from self._balance()
        while not self._retrying and self._due and self._due[0][0] <= monotonic():
            yield from self._hand_out_again()
        times = [self._save_at, self._check_at]
        if self._due and not self._retrying:
            times.append(self._due[0][0])
        if self._lease is not None:
            self.look_at = min(*times, self._lease.until)

    def _balance(self) -> Plan[None]:
        """Take partitions up to the share of this member, and release those beyond it."""
        began = monotonic()
        balance: operations.Balance | None = yield operations.BalanceGroup(
            self._stream, self._group, self._token, frozenset(self.held)
        )
        if balance is None or self.held.keys() - balance.held:
            raise self._gone()
        self._generation, self._bound = balance.generation, balance.max_parked
        for number, (position, stopped) in balance.held.items():
            if number in self.held:
                self.held[number].stopped = stopped
            else:
                self.held[number] = _Partition(position, stopped)
        for event, number, key, attempt, due in balance.parked:
            self._park(_Parked(event, number, key, attempt, None if due is None else began + due / 1000))
        for line in self._lines.values():
            self._schedule(line[0])  # Those of a partition that was stopped, and of new ones.
        surplus = sorted(self.held)[balance.share :]
        self._changes_at = float("inf") if balance.check is None else began + balance.check / 1000
        if len(self.held) < balance.share:
            self._changes_at = min(self._changes_at, began + _LOCKED)
        if surplus:
            yield from self._release(surplus)
        if self._position is None and self.held:
            self._position = yield ReadPosition(self._stream, max(part.read for part in self.held.values()))

    def _release(self, numbers: list[int]) -> Plan[None]:
        """Save and release partitions; what was read of them and not handed out is dropped."""
        first, gone = self._first(), set(numbers)
        yield self._saving(first, numbers)
        self._saved(first)
        self._keep(self.items, lambda event: self._number(event) not in gone)
        self._rest = [event for event in self._rest if self._number(event) not in gone]
        for number in numbers:
            del self.held[number]
        for parked in [one for one in self._again.values() if one.partition in gone]:
            del self._again[parked.event]
        self._lines = {name: line for name, line in self._lines.items() if line[0].partition not in gone}
        self._due = [entry for entry in self._due if entry[2].partition not in gone]
        heapify(self._due)

    def _read(self) -> Plan[operations.Block | None]:
        """Read the next block of the stream for all partitions that do not wait; None if the database has gone back."""
        for part in self.held.values():
            part.full = part.parked >= self._bound and part.full
        reads = {number: part.read for number, part in self.held.items() if not (part.full or part.stopped)}
        if not reads:
            return operations.Block([], MOST, False, self._position or Position("", MOST))
        assert self._position is not None
        after = min(reads.values())
        whole = len(reads) == self._count and max(reads.values()) == after
        block: operations.Block | None = yield operations.FollowGroup(
            self._stream,
            self._position,
            after,
            min(self._batch * self._count // len(reads), _MOST_KEYS),
            self._count,
            reads,
            whole,
            self._codec,
            self._skip,
        )
        if block is None:
            yield from self._rejoin()
            return None
        self._position = block.position
        for number in reads:
            part = self.held[number]
            part.before, part.read = part.read, max(part.read, block.last)
        self.items.extend(self._sifted(block.events) if self._lines or not whole else block.events)
        return block

    def _sifted(self, events: Iterable[Event[Any]]) -> list[Event[Any]]:
        """Return the events that can be handed out, and park those behind a parked event of their key."""
        passed = []
        for event in events:
            number = self._number(event)
            part = self.held[number]
            if part.full or part.stopped:
                continue
            if event.key is None or event.key not in self._lines:
                passed.append(event)
            elif part.parked >= self._bound:
                part.full, part.read = True, event.offset - 1
            else:
                parked = self._unwritten[event.offset] = _Parked(event.offset, number, event.key, 0, None)
                self._park(parked)
        return passed

    def _park(self, parked: _Parked) -> None:
        self._lines.setdefault(parked.line, deque()).append(parked)
        self.held[parked.partition].parked += 1

    def _schedule(self, parked: _Parked) -> None:
        """Hand out the first event of a line when it is due."""
        if parked.event not in self._again and not parked.queued:
            parked.queued = True
            heappush(self._due, (monotonic() if parked.due is None else parked.due, parked.event, parked))

    def _hand_out_again(self) -> Plan[None]:
        """Hand out the parked events that are due, before all others."""
        now, again = monotonic(), self._again
        while self._due and self._due[0][0] <= now and len(again) < _MOST_RETRIED:
            parked = heappop(self._due)[2]
            parked.queued = False
            if not self.held[parked.partition].stopped:
                again[parked.event] = parked
        if not again:
            return
        found = yield operations.LoadParked(self._stream, sorted(again), self._codec)
        self._retrying = True
        self._rest = list(self.items)
        self.items.clear()
        self.items.extend(found)
        while self.items:
            yield HAND
            yield from self._look()
        # A pruned event is as good as handled: there is nothing to hand out.
        self._finish(list(self._again.values()))
        self.items.extend(self._rest)
        self._rest, self._retrying = [], False

    def _finish(self, handled: list[_Parked]) -> None:
        """Forget parked events that were handled; those that follow them are due now."""
        for parked in handled:
            del self._again[parked.event]
            self.held[parked.partition].parked -= 1
            if self._unwritten.pop(parked.event, None) is None:
                self._done.append(parked.event)
            line = self._lines[parked.line]
            line.popleft()
            if line:
                self._schedule(line[0])
            else:
                del self._lines[parked.line]

    def _idle(self, after: int) -> Plan[None]:
        """Save, and wait for an event, a change of the group, or a parked event that is due."""
        position = self._position
        proof = (position.event, position.created) if position is not None else (0, 0)
        ahead = operations.MemberAhead(self._stream, self._group, self._generation, after, *proof)
        due = self._due[0][0] if self._due else float("inf")
        self._check_at = 0.0
        if self._saving(MOST).positions and (yield Sleep(ahead, min(due, monotonic() + _LINGER))):
            return
        yield from self._save()
        # A partition that waits for room is read again when a parked event was handled.
        until = min(due, self._changes_at)
        yield Sleep(ahead, None if until == float("inf") else until)

    def leave(self) -> Plan[None]:
        """Save the positions of handled events, and leave the group; the others hand out the rest."""
        lease = self._lease
        if lease is None:
            self._clear()
            return
        self.heartbeat.remove(lease)
        first = self._first()
        if self._again:
            waiting = {event.offset for event in self.items}
            if self.current is not None and self.current is not self.handled:
                waiting.add(self.current.offset)
            self._finish([one for one in self._again.values() if one.event not in waiting])
        saving, leaving = self._saving(first), operations.LeaveGroup(self._stream, self._group, self._token)
        self._clear()
        with suppress(LeaseLost, *PASSING):  # Events whose handling is not saved are handed out again.
            yield saving
        yield leaving

    def _rejoin(self) -> Plan[None]:
        """Begin again at the stored positions, after the database has gone back."""
        logger.warning(
            "the database has gone back, to a backup or a standby's state: this member of group %r of stream %r "
            "continues after the saved positions",
            self._group,
            self._stream,
        )
        assert self._lease is not None
        self.heartbeat.remove(self._lease)
        leaving = operations.LeaveGroup(self._stream, self._group, self._token)
        self._clear()
        self.current = self.handled = None
        yield leaving

    def _first(self) -> int:
        """Return the first event of the block that was not handled."""
        current = self.current
        if (
            current is not None
            and current is not self.handled
            and current is not self._ended
            and current.offset not in self._again
        ):
            return current.offset
        waiting = self._rest or self.items
        return waiting[0].offset if waiting else MOST

    def _saving(self, first: int, released: Iterable[int] = ()) -> operations.SaveMember:
        """Return the operation that saves what was handled before *first*, and what is parked."""
        rows = self._rows()
        needed = {*released, *(row[1] for row in rows)}
        positions = [
            (number, position)
            for number, part in self.held.items()
            if (position := part.position(first)) > part.saved or number in needed
        ]
        return self._operation(positions, rows, self._done.copy(), released)

    def _operation(
        self, positions: list[tuple[int, int]], parked: list[ParkedRow], done: list[int], released: Iterable[int] = ()
    ) -> operations.SaveMember:
        proof = self._position or Position("", 0)
        return operations.SaveMember(
            self._stream, self._group, self._token, proof, positions, parked, done, list(released)
        )

    def _rows(self) -> list[ParkedRow]:
        return [(one.event, one.partition, one.key, 0, None) for one in self._unwritten.values()]

    def _saved(self, first: int) -> None:
        """Remember that `_saving` was carried out."""
        for part in self.held.values():
            part.saved = part.position(first)
        self._unwritten.clear()
        self._done.clear()

    def _save(self) -> Plan[None]:
        self._save_at = monotonic() + self._every_s
        first = self._first()
        saving = self._saving(first)
        if not (saving.positions or saving.done):
            return
        try:
            yield saving
        except PASSING:
            return  # The next save includes it; until then, events would only be handed out again.
        except LeaseLost:
            if self._position is None or (yield VerifyPosition(self._stream, self._position)):
                raise
            yield from self._rejoin()
            yield from self._join()
        else:
            self._saved(first)

    def _number(self, event: Event[Any]) -> int:
        return partition_of(event.offset, event.key, self._count)

    def _in_progress(self, event: Event[Any]) -> int:
        """Return the partition of the event that was handed out last."""
        if event is not self.current or event is self._ended:
            raise ValueError(f"event {event.offset} is not in progress: pass the one that was handed out last")
        number = self._number(event)
        if number not in self.held:
            raise self._gone()
        return number

    def save(self, execute: Any, event: Event[Any], tx: Any) -> Plan[None]:
        """Save the position after the event in progress, in *tx*."""
        number = self._in_progress(event)
        again = event.offset in self._again
        position = self.held[number].saved if again else event.offset
        done = [event.offset] if again else []
        positions = {row[1]: self.held[row[1]].saved for row in self._rows()} | {number: position}
        yield Call(execute, self._operation(list(positions.items()), self._rows(), done), tx)

    def retry(self, event: Event[Any], delay_ms: int | None) -> Plan[None]:
        """Park the event in progress until its next attempt."""
        number = self._in_progress(event)
        parked = self._again.get(event.offset) or _Parked(event.offset, number, event.key, 0, None)
        attempt = parked.attempt + 1
        wait = delay_after(attempt, None) if delay_ms is None else delay_ms
        row = (event.offset, number, event.key, attempt, wait)
        yield self._operation([(number, self.held[number].saved)], [row], [])
        parked.attempt, parked.due = attempt, monotonic() + wait / 1000
        self._unwritten.pop(event.offset, None)
        self._ended = event
        if event.offset in self._again:
            del self._again[event.offset]
        else:
            self._park(parked)
            passed = self._sifted(self.items)
            self.items.clear()
            self.items.extend(passed)
        self._schedule(parked)
        self.look_at = min(self.look_at, parked.due)

    def stop_at(self, event: Event[Any]) -> Plan[None]:
        """Stop the partition of the event in progress until its group is resumed."""
        number = self._in_progress(event)
        yield operations.StopPartition(self._stream, self._group, self._token, number)
        part = self.held[number]
        part.stopped = True
        if event.offset in self._again:
            del self._again[event.offset]
        else:
            # It is read again when the partition goes on.
            part.read = event.offset - 1
        for waiting in (self.items, self._rest):
            self._keep(waiting, lambda one: self._number(one) != number)

    @staticmethod
    def _keep(waiting: Any, keep: Any) -> None:
        kept = [event for event in waiting if keep(event)]
        waiting.clear()
        waiting.extend(kept)

    @property
    def attempt(self) -> int:
        """The number of the attempt in progress, from 1."""
        parked = None if self.current is None else self._again.get(self.current.offset)
        return 1 if parked is None else parked.attempt + 1

    def pause(self, paused: bool) -> Plan[None]:
        """Let other members have the partitions, or take part again."""
        self.paused = paused
        if self._lease is not None:
            yield operations.PauseMember(self._stream, self._group, self._token, paused)


class _Handle:
    """The methods of a member that both flavours share."""

    _feed: Membership
    _loops: Any

    @property
    def partitions(self) -> frozenset[int]:
        return frozenset(self._feed.held)

    @property
    def attempt(self) -> int:
        return self._feed.attempt

    def save(self, event: Event[Any], *, tx: Any = None) -> Any:
        return self._loops.run(self._feed.save(self._loops.connection.execute, event, tx))

    def retry(self, event: Event[Any], *, delay: Duration | None = None) -> Any:
        wait = None if delay is None else checks.milliseconds("delay", delay)
        return self._loops.run(self._feed.retry(event, wait))

    def hold(self, event: Event[Any]) -> Any:
        return self._loops.run(self._feed.stop_at(event))

    def pause(self) -> Any:
        return self._loops.run(self._feed.pause(True))

    def resume(self) -> Any:
        return self._loops.run(self._feed.pause(False))


@protocols.documented(protocols.Member)
class Member(_Handle, Messages[Event[Any]]):
    """The implementation of `protocols.Member`."""


class AsyncMember(_Handle, AsyncMessages[Event[Any]]):
    """The implementation of `protocols_async.AsyncMember`."""


MEMBERS = {Messages: Member, AsyncMessages: AsyncMember}
"""The iterators of members, by the iterators of other loops in the same flavour."""


def drained(stream: str, group: str, seconds: float | None) -> Plan[bool]:
    """Wait until a group has handled all events that there are now, and none is parked; return whether it has."""
    if (yield operations.ReadGeneration(stream, group)) is None:
        return False
    head = yield ReadHead(stream)
    until = None if seconds is None else monotonic() + seconds
    done: bool = yield Sleep(operations.DrainAhead(stream, group, head), until)
    return done


def reset(stream: str, group: str, origin: Operation[Any] | int) -> Plan[bool]:
    """Move a group to the place of *origin*; return whether it exists."""
    start = yield from located(origin)
    done: bool = yield operations.ResetGroup(stream, group, start.after)
    return done
