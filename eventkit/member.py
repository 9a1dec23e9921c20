"""`Member`: one of the iterators that share the events of a stream as a consumer group.

The events of a key are handed out in order, by one member at a time.  A member reads the stream once for all of its
partitions.  It looks at its share of the partitions between two events, so that nothing of a partition is in progress
when another member gets it.
"""

from collections.abc import Iterable
from contextlib import suppress
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
from .operations.consumer_group import ParkedRow
from .operations.position import Position, ReadPosition, VerifyPosition
from .operations.stream import ReadHead
from .partitions import Partition, Partitions
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

_NEVER = float("inf")


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
        self._paused = False
        self._clear()

    def _clear(self) -> None:
        self.partitions = Partitions(self.items)
        self._lease: Lease | None = None
        self._token = fresh_token()
        self._generation = -1
        self._position: Position | None = None
        self._parked: Event[Any] | None = None
        """The event that was parked, or has stopped its partition, while it was in progress."""
        self._save_at = self._check_at = 0.0
        self._changes_at = _NEVER

    def steps(self) -> Plan[None]:
        """Join; then read, hand out, and save from time to time and when idle."""
        while True:
            try:
                if self._lease is None:
                    yield from self._join()
                yield from self._look()
                parts = self.partitions
                if parts.retrying and not self.items:
                    parts.end_again()
                if not parts.retrying and (parts.again or parts.due <= monotonic()):
                    if offsets := parts.take_due():
                        parts.begin_again((yield operations.LoadParked(self._stream, offsets, self._codec)))
                elif not self.items:
                    yield from self._read()
                if self.items:
                    yield HAND
            except PASSING:
                continue

    def _join(self) -> Plan[None]:
        start = (yield from located(self._origin)).after
        began, seconds = monotonic(), self._lease_ms / 1000
        self._clear()
        token = self._token
        self.partitions.count = yield operations.JoinGroup(
            self._stream,
            self._group,
            default_worker(),
            token,
            self._lease_ms,
            self._paused,
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
        """Renew, save, and look at the share if it is time."""
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
        due = _NEVER if self.partitions.retrying else self.partitions.due
        if (lease := self._lease) is not None:
            self.look_at = min(self._save_at, self._check_at, due, lease.until)

    def _balance(self) -> Plan[None]:
        """Take partitions up to the share of this member, and release those beyond it."""
        began, held = monotonic(), self.partitions.held
        balance: operations.Balance | None = yield operations.BalanceGroup(
            self._stream, self._group, self._token, frozenset(held)
        )
        if balance is None or held.keys() - balance.held:
            yield from self._begin_again()
            return
        self._generation, self.partitions.bound = balance.generation, balance.max_parked
        for number, (position, stopped) in balance.held.items():
            held.setdefault(number, Partition(position, stopped)).stopped = stopped
        for event, number, key, attempt, due in balance.parked:
            self.partitions.park(event, number, key, attempt, None if due is None else began + due / 1000)
        self.partitions.schedule()
        self._changes_at = _NEVER if balance.check is None else began + balance.check / 1000
        if len(held) < balance.share:
            self._changes_at = min(self._changes_at, began + _LOCKED)
        if surplus := sorted(held)[balance.share :]:
            yield from self._save_all(surplus)
            self.partitions.release(surplus)
        if self._position is None and held:
            self._position = yield ReadPosition(self._stream, max(part.read for part in held.values()))

    def _read(self) -> Plan[None]:
        """Read the next block of the stream for all partitions that do not wait; without one, sleep."""
        reads = self.partitions.reads()
        if not reads or self._position is None:
            yield from self._idle(MOST)
            return
        after, share = min(reads.values()), self.partitions.count / len(reads)
        whole = share == 1 and max(reads.values()) == after
        block: operations.Block | None = yield operations.FollowGroup(
            self._stream,
            self._position,
            after,
            min(int(self._batch * share), _MOST_KEYS),
            self.partitions.count,
            reads,
            whole,
            self._codec,
            self._skip,
        )
        if block is None:
            yield from self._begin_again()
            return
        self._position = block.position
        self.partitions.add(reads, block.events, block.last, own=whole)
        if not (self.items or block.more):
            yield from self._idle(max(block.last, block.position.offset))

    def _idle(self, after: int) -> Plan[None]:
        """Save, and wait for an event, a change of the group, or a parked event that is due."""
        self.partitions.again_at = 0.0
        if self.partitions.due <= monotonic():
            return
        position = self._position
        proof = (position.event, position.created) if position is not None else (0, 0)
        ahead = operations.MemberAhead(self._stream, self._group, self._generation, after, *proof)
        self._check_at = 0.0
        linger = min(self.partitions.due, monotonic() + _LINGER)
        if self.partitions.unsaved(None)[0] and (yield Sleep(ahead, linger)):
            return
        yield from self._save()
        until = min(self.partitions.due, self._changes_at)
        yield Sleep(ahead, None if until == _NEVER else until)

    def leave(self) -> Plan[None]:
        """Save the positions of handled events, and leave the group; the others hand out the rest."""
        lease = self._lease
        if lease is None:
            self._clear()
            return
        self.heartbeat.remove(lease)
        saving, leaving = self._saving(), operations.LeaveGroup(self._stream, self._group, self._token)
        self._clear()
        if saving.positions:
            with suppress(LeaseLost, *PASSING):  # Events whose handling is not saved are handed out again.
                yield saving
        yield leaving

    def _begin_again(self) -> Plan[None]:
        """Join again at the stored positions if the database has gone back; else raise `LeaseLost`."""
        if self._position is None or (yield VerifyPosition(self._stream, self._position)):
            raise self._gone()
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
        yield from self._join()

    def _in_progress(self) -> Event[Any] | None:
        """Return the event that was handed out last, if it was neither handled nor parked."""
        current = self.current
        return None if current is self.handled or current is self._parked else current

    def _saving(self, released: Iterable[int] = ()) -> operations.SaveMember:
        """Return the operation that saves what was handled, and what is parked."""
        self.partitions.finish(self._in_progress())
        positions, rows = self.partitions.unsaved(self._in_progress(), released)
        return self._operation(positions, rows, list(self.partitions.done), released)

    def _operation(
        self, positions: list[tuple[int, int]], parked: list[ParkedRow], done: list[int], released: Iterable[int] = ()
    ) -> operations.SaveMember:
        proof = self._position or Position("", 0)
        return operations.SaveMember(
            self._stream, self._group, self._token, proof, positions, parked, done, list(released)
        )

    def _save(self) -> Plan[None]:
        try:
            yield from self._save_all()
        except PASSING:
            pass  # The next save includes it; until then, events would only be handed out again.
        except LeaseLost:
            yield from self._begin_again()
        self._save_at = monotonic() + self._every_s

    def _save_all(self, released: Iterable[int] = ()) -> Plan[None]:
        saving = self._saving(released)
        if saving.positions:
            yield saving
            self.partitions.done.clear()
            self.partitions.saved(dict(saving.positions))

    def _reached(self, event: Event[Any], current: Event[Any] | None) -> dict[int, int]:
        """Return the partition of an event, which has to be *current*, and its position after the event."""
        if event is not current or event is self._parked:
            raise ValueError(f"event {event.offset} is not in progress: pass the one that was handed out last")
        number = self.partitions.number(event) if self.partitions.held else 0
        if number not in self.partitions.held:
            raise self._gone()
        return {number: max(event.offset, self.partitions.held[number].saved)}

    def save(self, execute: Any, event: Event[Any], tx: Any) -> Plan[None]:
        """Save the position after the event in progress, in *tx*."""
        position = self._reached(event, self.current)
        done = [event.offset] if event.offset in self.partitions.again else []
        operation = self._operation(list(position.items()), self.partitions.rows(position), done)
        yield Call(execute, operation, tx)

    def retry(self, event: Event[Any], delay_ms: int | None) -> Plan[None]:
        """Park the event in progress until its next attempt."""
        position, attempt = self._reached(event, self._in_progress()), self.attempt
        wait = delay_after(attempt, None) if delay_ms is None else delay_ms
        [number] = position
        row = (event.offset, number, event.key, attempt, wait)
        yield self._operation(list(position.items()), [*self.partitions.rows(position), row], [])
        self._parked = event
        self.partitions.saved(position)
        self.partitions.defer(event, attempt, monotonic() + wait / 1000)
        self.look_at = min(self.look_at, self.partitions.due)

    def hold(self, event: Event[Any]) -> Plan[None]:
        """Stop the partition of the event in progress until its group is resumed."""
        [number] = self._reached(event, self._in_progress())
        yield operations.StopPartition(self._stream, self._group, self._token, number)
        self._parked = event
        self.partitions.stop(event)

    @property
    def attempt(self) -> int:
        """The number of the attempt in progress, from 1."""
        parked = None if self.current is None else self.partitions.again.get(self.current.offset)
        return 1 if parked is None else parked.attempt + 1

    def pause(self, paused: bool) -> Plan[None]:
        """Let other members have the partitions, or take part again."""
        self._paused = paused
        if self._lease is not None:
            yield operations.PauseMember(self._stream, self._group, self._token, paused)


class _Handle:
    """The methods of a member that both flavours share."""

    _feed: Any
    _loops: Any

    @property
    def partitions(self) -> frozenset[int]:
        return frozenset(self._feed.partitions.held)

    @property
    def attempt(self) -> int:
        attempt: int = self._feed.attempt
        return attempt

    def save(self, event: Event[Any], *, tx: Any = None) -> Any:
        return self._loops.run(self._feed.save(self._loops.connection.execute, event, tx))

    def retry(self, event: Event[Any], *, delay: Duration | None = None) -> Any:
        wait = None if delay is None else checks.milliseconds("delay", delay)
        return self._loops.run(self._feed.retry(event, wait))

    def hold(self, event: Event[Any]) -> Any:
        return self._loops.run(self._feed.hold(event))

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
    probe = operations.DrainAhead(stream, group, head)
    while not (done := (yield probe).ready) and (yield Sleep(probe, until)):
        pass
    return done and (yield operations.ReadGeneration(stream, group)) is not None


def reset(stream: str, group: str, origin: Operation[Any] | int) -> Plan[bool]:
    """Move a group to the place of *origin*; return whether it exists."""
    start = yield from located(origin)
    done: bool = yield operations.ResetGroup(stream, group, start.after)
    return done
