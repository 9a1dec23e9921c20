"""Operations on consumer groups: members join, share the partitions of a stream, and save their positions.

A partition belongs to the member whose lease has its token.  Every change of who takes part begins with the group's
row (`LockGroup`), so that these changes happen one after the other; saves do not, because the token fences them.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from zlib import crc32

from ..checks import MOST
from ..codec import Codec
from ..errors import LeaseLost
from ..values import Event, Group, GroupMember, GroupPartition
from . import (
    Operation,
    Plan,
    Probe,
    Read,
    Rows,
    Step,
    first_or_none,
    flag,
    step,
)
from .position import Position, VerifyPosition
from .stream import ReadEvents, ReadHead

PARTITIONS = 64
"""The number of partitions of a group, unless its first member says otherwise."""

MAX_PARKED = 1000
"""The number of events that may be parked in a partition, unless a member says otherwise."""

COUNTED = 10_000
"""The number of events up to which the lag of each partition is exact."""

ParkedRow = tuple[int, int, str | None, int, int | None]
"""``event, partition, key, attempt, due``; the last in milliseconds from now."""


def partition_of(offset: int, key: str | None, partitions: int) -> int:
    """Return the partition of an event, from 1: by its key, or by its offset if it has none."""
    return (offset if key is None else crc32(key.encode())) % partitions + 1


class JoinGroup(Operation[int], frozen=True):
    """Add a member to a group, which is created by its first member; return the number of partitions."""

    topic: str
    group: str
    holder: str
    token: int
    ttl: int
    paused: bool
    partitions: int | None
    max_parked: int | None
    position: int

    def plan(self) -> Plan[int]:
        """Create the group if there is none, remove members whose lease has ended, and add this one."""
        wanted, most = self.partitions or PARTITIONS, self.max_parked or MAX_PARKED
        while True:
            if (yield step("AddGroup", topic=self.topic, group=self.group, partitions=wanted, max_parked=most)):
                start = self.position
                yield step("AddPartitions", topic=self.topic, group=self.group, partitions=wanted, position=start)
            if locked := (yield _lock(self, 1)):
                break  # Otherwise, the group was removed in between.
        partitions = locked[0][0]
        if self.max_parked is not None:
            yield step("BoundParked", topic=self.topic, group=self.group, max_parked=most)
        if self.partitions not in (None, partitions):
            raise ValueError(
                f"group {self.group!r} of stream {self.topic!r} has {partitions} partitions, not {self.partitions}: "
                f"omit partitions=, or remove the group and let its first member create it again"
            )
        yield step("DropLapsedMembers", topic=self.topic, group=self.group)
        yield step(
            "AddMember",
            topic=self.topic,
            group=self.group,
            holder=self.holder,
            token=self.token,
            ttl=self.ttl,
            paused=self.paused,
        )
        return int(partitions)

    def undo(self, answer: int) -> Operation[Any]:
        """Return the departure of the member."""
        return LeaveGroup(self.topic, self.group, self.token)


class KeepMember(Operation[bool], frozen=True):
    """Renew the lease of a member; return False if it has ended."""

    topic: str
    group: str
    token: int
    ttl: int
    decode = flag


class PauseMember(Operation[bool], frozen=True):
    """Pause a member, so that others get its partitions, or resume it; return False if its lease has ended."""

    topic: str
    group: str
    token: int
    paused: bool

    def plan(self) -> Plan[bool]:
        yield _lock(self, 1)
        return bool((yield self))


class Balance(NamedTuple):
    """The share of a member in its group, the partitions that it holds, and the parked events of new ones."""

    generation: int
    max_parked: int
    share: int
    check: int | None
    """The milliseconds after which the lease of another member ends."""
    held: dict[int, tuple[int, bool]]
    """The position of each partition of this member, and whether it is stopped."""
    parked: Rows


class BalanceGroup(Operation[Balance | None], frozen=True):
    """Take free partitions for a member that has less than its share; None if the group was removed.

    The first members, by number, get one partition more where the partitions cannot be divided equally.
    """

    topic: str
    group: str
    token: int
    known: frozenset[int]
    """The partitions whose parked events the member has."""

    def plan(self) -> Plan[Balance | None]:
        """Take the lowest free partitions, and read what is parked in those that are new to the member."""
        if not (locked := (yield _lock(self, 0))):
            return None
        partitions, max_parked, paused, generation, _ = locked[0]
        members = yield step("ReadMembers", topic=self.topic, group=self.group)
        alive = {token for token, *_ in members}
        working = [] if paused else [token for token, _, _, resting, _ in members if not resting]
        share = 0
        if self.token in working:
            number, more = divmod(partitions, len(working))
            share = number + (working.index(self.token) < more)
        rows = yield step("ReadPartitions", topic=self.topic, group=self.group)
        held = {row[0]: row[1:3] for row in rows if row[3] == self.token}
        free = [row[0] for row in rows if row[3] not in alive][: max(0, share - len(held))]
        if free:
            taken = yield step("TakePartitions", topic=self.topic, group=self.group, token=self.token, taken=free)
            held |= {number: (position, stopped) for number, position, stopped in taken}
        new = [number for number in held if number not in self.known]
        parked = (yield step("ReadParked", topic=self.topic, group=self.group, partitions=new)) if new else []
        ends = [left for token, _, _, _, left in members if token != self.token]
        return Balance(
            generation,
            max_parked,
            share,
            min(ends, default=None),
            {number: (position, bool(stopped)) for number, (position, stopped) in held.items()},
            parked,
        )


class ReadGeneration(Read[int | None], frozen=True):
    """Read the number of changes of a group; None if it was removed."""

    topic: str
    group: str
    decode = first_or_none


class SaveMember(Operation[None], frozen=True):
    """Save positions of partitions and their parked events, and release partitions; all or nothing.

    Raise `LeaseLost` if another member has one of the partitions, or if *proof*, the last event that was read, is lost.
    """

    topic: str
    group: str
    token: int
    proof: Position
    positions: list[tuple[int, int]]
    """Each partition that *parked*, *done* or *release* is about, and its position; a lower one has no effect."""
    parked: list[ParkedRow]
    done: list[int]
    release: list[int]

    def plan(self) -> Plan[None]:
        """Save the positions first: that locks the partitions against takeover."""
        if self.release:
            yield _lock(self, 1)
        if self.positions:
            proved = self.proof.event if self.proof.created else 0  # A pruned event has no time.
            held = yield step(
                "SavePositions",
                topic=self.topic,
                group=self.group,
                token=self.token,
                positions=self.positions,
                event=proved,
                created=self.proof.created,
            )
            if len(held) < len(self.positions):
                raise LeaseLost(
                    f"a partition of group {self.group!r} of stream {self.topic!r} has moved to another member: "
                    f"nothing was saved; join again to continue"
                )
        if self.parked:
            yield step("AddParked", topic=self.topic, group=self.group, parked=self.parked)
        if self.done:
            yield step("DropParked", topic=self.topic, group=self.group, done=self.done)
        if self.release:
            yield step("TakePartitions", topic=self.topic, group=self.group, token=None, taken=self.release)


class StopPartition(Operation[None], frozen=True):
    """Hand out nothing more of a partition until its group is resumed or reset."""

    topic: str
    group: str
    token: int
    partition: int

    def plan(self) -> Plan[None]:
        if not (yield self):
            raise LeaseLost(f"partition {self.partition} of group {self.group!r} has moved to another member")


class LeaveGroup(Operation[None], frozen=True):
    """Remove a member from its group, so that others get its partitions."""

    topic: str
    group: str
    token: int

    def plan(self) -> Plan[None]:
        yield _lock(self, 1)
        yield self  # A partition is free without the lease of its member.


class Block(NamedTuple):
    """The events of a member after an offset: *last* is the offset up to which all were looked at."""

    events: list[Event[Any]]
    last: int
    more: bool
    position: Position


class FollowGroup(Read[Block | None], frozen=True):
    """Read the next events of a stream once for all partitions of a member; None if the database has gone back."""

    topic: str
    position: Position
    after: int
    limit: int
    partitions: int
    reads: dict[int, int]
    """The partitions to read, each with the offset after which to read it."""
    whole: bool
    """True if that is every event after *after*."""
    codec: Codec
    skip: bool

    def plan(self) -> Plan[Block | None]:
        """Read the keys, and the payloads of the member's own events; or all, where all events are its own."""
        if not (yield from VerifyPosition(self.topic, self.position).plan()):
            return None
        reading = ReadEvents(self.topic, self.after, self.limit, self.codec, self.skip)
        last: list[int] = []
        seen: Rows
        rows: Rows
        if self.whole:
            seen = rows = yield reading
        else:
            seen = yield step("ReadKeys", topic=self.topic, after=self.after, limit=self.limit)
            after, count = self.reads.get, self.partitions
            own = [offset for offset, key in seen if offset > after(partition_of(offset, key, count), MOST)]
            # The last one proves the position, also if it is of another member.
            last = [] if not seen or seen[-1][0] in own[-1:] else [seen[-1][0]]
            rows = (yield step("LoadEvents", topic=self.topic, offsets=own + last)) if seen else []
        yield from reading.check_gap(seen)
        position = self.position.past(rows) if rows and rows[-1][0] > self.position.offset else self.position
        if not self.whole and rows and rows[-1][0] in last:
            rows.pop()
        return Block(reading.decode(rows), seen[-1][0] if seen else self.after, len(seen) == self.limit, position)


class LoadParked(Read[list[Event[Any]]], frozen=True):
    """Read events by their offsets, in order."""

    topic: str
    offsets: list[int]
    codec: Codec

    def plan(self) -> Plan[list[Event[Any]]]:
        rows = yield step("LoadEvents", topic=self.topic, offsets=self.offsets)
        return ReadEvents(self.topic, 0, 0, self.codec, True).decode(rows)


class MemberAhead(Probe, frozen=True):
    """A probe that is ready when a member has an event to read, or has to look at its share again."""

    topic: str
    group: str
    generation: int
    after: int
    event: int
    created: int

    @property
    def subjects(self) -> tuple[str, ...]:
        return (f"event:{self.topic}", f"consumer:{self.topic}:{self.group}")


class PauseGroup(Operation[bool], frozen=True):
    """Pause a group; or resume it, with its stopped partitions.  Return whether it exists."""

    topic: str
    group: str
    paused: bool

    def plan(self) -> Plan[bool]:
        if not (yield _lock(self, 1)):
            return False
        yield self
        if not self.paused:
            yield step("StartPartitions", topic=self.topic, group=self.group)
        return True


class ResetGroup(Operation[bool], frozen=True):
    """Move all partitions of a group to an offset, and forget its parked events; return whether it exists."""

    topic: str
    group: str
    position: int

    def plan(self) -> Plan[bool]:
        """End the leases of the members, who get `LeaseLost`."""
        if not (yield _lock(self, 1)):
            return False
        yield self
        yield step("DropMembers", topic=self.topic, group=self.group)
        yield step("DropAllParked", topic=self.topic, group=self.group)
        return True


class RemoveGroup(Operation[bool], frozen=True):
    """Delete a group with its positions and parked events; return whether it existed."""

    topic: str
    group: str

    def plan(self) -> Plan[bool]:
        if not (yield _lock(self, 1)):
            return False  # A group that is created meanwhile stays as a whole.
        yield step("DropMembers", topic=self.topic, group=self.group)
        yield step("DropPartitions", topic=self.topic, group=self.group)
        yield step("DropAllParked", topic=self.topic, group=self.group)
        return bool((yield self))


class DrainAhead(Probe, frozen=True):
    """A probe that is ready when a group has handled all events up to an offset, and none is parked."""

    subject = "event:{0.topic}"
    topic: str
    group: str
    head: int


class ListGroups(Read[list[Group]], frozen=True):
    """Read the groups of a topic, with their members and partitions."""

    topic: str
    group: str | None = None

    def plan(self) -> Plan[list[Group]]:
        """Count what each group has still to handle, by the same function that divides the events."""
        rows = yield self
        [(head,)] = yield ReadHead(self.topic)
        groups = []
        for name, count, max_parked, paused in rows:
            groups.append((yield from self._group(name, count, max_parked, bool(paused), head)))
        return groups

    def _group(self, name: str, count: int, max_parked: int, paused: bool, head: int) -> Plan[Group]:
        members = yield step("ReadMembers", topic=self.topic, group=name)
        partitions = yield step("ReadPartitions", topic=self.topic, group=name)
        parked: dict[int, int] = dict((yield step("CountParked", topic=self.topic, group=name)))
        position = {row[0]: row[1] for row in partitions}
        keys = yield step("ReadKeys", topic=self.topic, after=min(position.values(), default=head), limit=COUNTED)
        lags = dict.fromkeys(position, 0)
        for offset, key in keys:
            number = partition_of(offset, key, count)
            lags[number] += offset > position[number]
        rest = 0
        if len(keys) == COUNTED:
            [(rest,)] = yield step("CountEvents", topic=self.topic, after=keys[-1][0], last=head)
        holders = {token: slot for token, slot, *_ in members}
        listed = [
            GroupPartition(
                number,
                offset,
                lags[number] + rest // count,
                parked.get(number, 0),
                holders.get(token),
                "stopped" if stopped else "full" if parked.get(number, 0) >= max_parked else "open",
            )
            for number, offset, stopped, token in partitions
        ]
        return Group(
            name,
            paused,
            sum(lags.values()) + rest,
            sum(parked.values()),
            max_parked,
            [
                GroupMember(slot, holder, bool(resting), sum(one.member == slot for one in listed))
                for _, slot, holder, resting, _ in members
            ],
            listed,
        )


def _lock(operation: Any, change: int) -> Step:
    """Lock the row of a group; with *change* 1, make its members look at it again."""
    return step("LockGroup", topic=operation.topic, group=operation.group, change=change)
