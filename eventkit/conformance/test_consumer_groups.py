"""Consumer groups: members that share a stream, in order for each key."""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from typing import Any

import pytest

from eventkit import EventKit, LeaseLost, NewEvent, TimedOut, Truncated
from eventkit.testing import advance

from .clauses import both_flavours, one_flavour, proves
from .processes import spawn
from .streaming import partition_of, take_part
from .threads import PATIENCE, eventually, in_thread, rolled_back, take

NEVER_S = 10_000
LEASE = 12
"""The default lease of a member in seconds."""


def publish(kit: Any, count: int, keys: int, stream: str = "orders") -> list[int]:
    """Publish the numbers below *count*, in turn under each of some keys; return the offsets."""
    offsets: list[int] = kit.stream(stream).publish_many([NewEvent(n, key=f"key {n % keys}") for n in range(count)])
    return offsets


def join(kit: Any, **options: Any) -> Any:
    """Join the group ``workers`` of the stream ``orders``."""
    return kit.stream("orders").join("workers", **{"partitions": 8} | options)


def only(kit: Any) -> Any:
    """Return the one group of the stream."""
    [group] = kit.stream("orders").groups()
    return group


def payloads(member: Any, count: int) -> list[int]:
    """Return the payloads of the next *count* events."""
    return [event.payload for event in take(member, count)]


def no_more(member: Any) -> bool:
    """Return whether a member gets no further event soon."""
    with pytest.raises(TimedOut):
        member.next(timeout=0.3)
    return True


def _save_with_effect(kit: Any, member: Any, event: Any) -> None:
    with kit.transaction() as tx:
        kit.stream("effects").publish(event.payload, tx=tx)
        member.save(event, tx=tx)


class Working:
    """A member that handles events in a thread until it is closed."""

    def __init__(self, kit: Any, log: list[tuple[int, str, int]], number: int, **options: Any) -> None:
        self.member = join(kit, **options)
        self._log, self._number = log, number
        self._done = in_thread(self._work)

    def _work(self) -> None:
        for event in self.member:
            self._log.append((self._number, event.key, event.payload))

    def close(self) -> None:
        """Leave the group."""
        self.member.close()
        self._done.result(PATIENCE)


@contextmanager
def working(*workers: Working) -> Iterator[None]:
    """Close members at the end."""
    try:
        yield
    finally:
        for worker in workers:
            worker.close()


def in_order(handled: list[tuple[str, int]]) -> bool:
    """Return whether the numbers of each key grow."""
    of_key: dict[str, list[int]] = defaultdict(list)
    for key, payload in handled:
        of_key[key].append(payload)
    return all(found == sorted(set(found)) for found in of_key.values())


@proves("S11")
def test_the_partition_of_an_event_is_the_same_everywhere() -> None:
    """It follows from the bytes of the key, or from the offset: a changed function would mix up stored positions."""
    keys = ["", "a", "tenant-7", "Zürich", "🦄", "k" * 1000]
    assert [partition_of(1, key, 64) for key in keys] == [1, 4, 11, 63, 33, 44]
    assert [partition_of(offset, None, 4) for offset in range(1, 9)] == [2, 3, 4, 1, 2, 3, 4, 1]


@proves("S11")
def test_members_share_the_events_in_order_for_each_key(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """Each event is handled once, each key by one member, while events are published."""
    handled: list[tuple[int, str, int]] = []
    members = [Working(connect(url), handled, number) for number in range(3)]
    with working(*members):
        eventually(lambda: sorted(len(one.member.partitions) for one in members) == [2, 3, 3])
        for start in range(0, 300, 50):
            kit.stream("orders").publish_many([NewEvent(n, key=f"key {n % 20}") for n in range(start, start + 50)])
        eventually(lambda: len(handled) >= 300)
        assert kit.stream("orders").drain_group("workers", timeout=PATIENCE)
    assert sorted(payload for _, _, payload in handled) == list(range(300))
    assert in_order([(key, payload) for _, key, payload in handled])
    assert len({(member, key) for member, key, _ in handled}) == 20
    assert len({member for member, _, _ in handled}) == 3


@proves("S11")
@one_flavour
def test_events_without_a_key_are_spread(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """Their offsets divide them among the members."""
    handled: list[tuple[int, str, int]] = []
    members = [Working(connect(url), handled, number) for number in range(2)]
    with working(*members):
        eventually(lambda: [len(one.member.partitions) for one in members] == [4, 4])
        kit.stream("orders").publish_many(range(80))
        eventually(lambda: len(handled) == 80)
    assert sorted(payload for _, _, payload in handled) == list(range(80))
    assert {number for number, _, _ in handled} == {0, 1}


@proves("S11")
@one_flavour
def test_a_member_loads_its_own_events_only(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """An event in another member's partition is not handed out, and small batches lose nothing."""
    handled: list[tuple[int, str, int]] = []
    members = [Working(connect(url), handled, number, batch=3) for number in range(2)]
    with working(*members):
        eventually(lambda: [len(one.member.partitions) for one in members] == [4, 4])
        publish(kit, 200, 40)
        eventually(lambda: len(handled) == 200)
    assert in_order([(key, payload) for _, key, payload in handled])


@proves("S11")
@one_flavour
def test_a_key_of_any_length_keeps_its_order(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """Keys that begin alike are different ones, also where an index has only their beginnings."""
    draw = random.Random(1)
    long = "".join(chr(draw.randrange(0x10000, 0x11000)) for _ in range(999))
    keys = ["k", long[:199], long[:200], long[:201], long + "a", long + "b", *(f"key {n}" for n in range(8))]
    events = [NewEvent(n, key=key) for n in range(10) for key in keys]
    handled: list[tuple[int, str, int]] = []
    members = [Working(connect(url), handled, number) for number in range(2)]
    with working(*members):
        eventually(lambda: [len(one.member.partitions) for one in members] == [4, 4])
        kit.stream("orders").publish_many(events)
        eventually(lambda: len(handled) == len(events))
    assert in_order([(key, payload) for _, key, payload in handled])
    assert len({(number, key) for number, key, _ in handled}) == len(keys)


@proves("S11")
@one_flavour
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"partitions": 0}, ValueError),
        ({"partitions": 1.5}, TypeError),
        ({"lease": 0.5}, ValueError),
        ({"lease": 601}, ValueError),
        ({"start": "committed"}, ValueError),
        ({"max_parked": 0}, ValueError),
    ],
    ids=str,
)
def test_wrong_options_of_a_member_are_refused(kit: EventKit, wrong: dict[str, Any], error: type[Exception]) -> None:
    """Nothing is written."""
    with pytest.raises(error):
        join(kit, **wrong)
    assert kit.stream("orders").groups() == []


@proves("S11")
@one_flavour
def test_the_first_member_sets_the_number_of_partitions_and_the_start(kit: EventKit) -> None:
    """A later one with another number is refused, and its start has no effect."""
    offsets = publish(kit, 6, 2)
    with join(kit, partitions=4, start=offsets[1]) as member:
        assert payloads(member, 2) == [2, 3]
    with join(kit, partitions=None, start="earliest") as member:
        assert payloads(member, 2) == [3, 4]
    with pytest.raises(ValueError, match="has 4 partitions, not 5"):
        next(join(kit, partitions=5))
    with kit.stream("orders").join("late", start="latest") as late:
        assert no_more(late)
        kit.stream("orders").publish(6)
        assert payloads(late, 1) == [6]
    with kit.stream("orders").join("by time", start=datetime.now(UTC) - timedelta(hours=1)) as by_time:
        assert payloads(by_time, 7) == list(range(7))
    assert len(kit.stream("orders").groups()[0].partitions) == 64


@proves("S12")
def test_partitions_are_balanced_when_members_join_leave_and_pause(
    kit: EventKit, connect: Callable[..., Any], url: str
) -> None:
    """Shares differ by one at most; a member that leaves or pauses hands over at once, without a lease in between."""
    handled: list[tuple[int, str, int]] = []

    def shares(*expected: int) -> None:
        def as_expected() -> bool:
            held = [one.member.partitions for one in members]
            return [len(one) for one in held] == list(expected) and len(frozenset().union(*held)) == sum(expected)

        eventually(as_expected)

    members = [Working(kit, handled, 0, lease=600)]
    shares(8)
    members += [Working(connect(url), handled, number, lease=600) for number in (1, 2)]
    eventually(lambda: sorted(len(one.member.partitions) for one in members) == [2, 3, 3])
    members.pop(1).close()
    shares(4, 4)
    members[0].member.pause()
    shares(0, 8)
    assert [(one.paused, one.partitions) for one in only(kit).members] == [(True, 0), (False, 8)]
    members[0].member.resume()
    shares(4, 4)
    with working(*members):
        publish(kit, 40, 10)
        eventually(lambda: len(handled) == 40)
    assert only(kit).members == []


@proves("S12", "S13")
def test_a_member_that_was_killed_is_replaced(kit: EventKit, url: str, flavour: str) -> None:
    """Another one goes on after its saved positions, in order for each key, within the lease; parked events stay."""
    publish(kit, 60, 6)
    kit.stream("orders").publish(n := "conformance: end", key="key 1")
    kit.stream("orders").publish(60, key="key 1")
    receiving, sending = get_context("spawn").Pipe(duplex=False)
    options = {"partitions": 8, "lease": 1, "save_every_s": 0}
    received: list[Any] = []
    with spawn(take_part, url, flavour, "orders", options, 61, sending) as killed:
        while n not in received:
            assert receiving.poll(PATIENCE)
            received.append(receiving.recv())
        kit.stream("orders").publish(61, key="key 2")
        while ("key 2", 61) not in received:
            assert receiving.poll(PATIENCE)
            received.append(receiving.recv())
        with join(kit, lease=1) as member:
            waiting = in_thread(lambda: [(event.key, event.payload) for event in take(member, 1)])
            killed.kill()
            assert waiting.result(PATIENCE) == [("key 2", 61)]
            # The event that failed, and the one behind it, have not been lost with the process.
            assert only(kit).parked == 2
            kit.stream("orders").publish(62, key="key 1")
            kit.stream("orders").publish(63, key="key 3")
            assert payloads(member, 1) == [63]
            eventually(lambda: no_more(member) and only(kit).parked == 3)
    receiving.close()
    sending.close()
    assert in_order([one for one in received if one != n])


@proves("S12", "S14")
def test_a_member_that_lost_its_lease_saves_nothing(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """Its transaction cannot commit, and its iterator raises `LeaseLost`; the other member has every event."""
    publish(kit, 4, 4)
    first = join(kit, save_every_s=0)
    [event] = take(first, 1)
    advance(kit, LEASE + 1)
    with join(connect(url)) as second:
        assert payloads(second, 1) == [0]
        with pytest.raises(LeaseLost, match="another member"):
            _save_with_effect(kit, first, event)
        with pytest.raises(LeaseLost, match="join again"):
            next(first)
        first.close()
        assert next(first, "ended") == "ended"
        assert payloads(second, 3) == [1, 2, 3]
    assert kit.stream("effects").head() == 0
    assert only(kit).lag == 1


@proves("S14")
def test_effects_and_the_position_commit_together(kit: EventKit) -> None:
    """A transaction that is rolled back moves nothing; after one that commits, the event never comes again."""
    publish(kit, 3, 1)
    with join(kit, save_every_s=NEVER_S) as member:
        [event] = take(member, 1)
        with rolled_back(kit) as tx:
            member.save(event, tx=tx)
    with join(kit, save_every_s=NEVER_S) as member:
        [again] = take(member, 1)
        assert again.payload == 0
        _save_with_effect(kit, member, again)
    with join(kit) as member:
        assert payloads(member, 1) == [1]
        with pytest.raises(ValueError, match="in progress"):
            member.save(again)
        [other] = take(member, 1)
        member.save(other)
        assert only(kit).lag == 0


@proves("S13")
def test_a_failed_event_holds_only_its_key(kit: EventKit) -> None:
    """It is handed out again after the delay, before those of its key that came later, and each attempt is counted."""
    publish(kit, 12, 3)
    attempts = []
    handled: list[tuple[str, int]] = []
    with join(kit) as member:
        for event in member:
            if event.payload == 1 and member.attempt < 3:
                attempts.append(member.attempt)
                member.retry(event, delay=0.05)
                with pytest.raises(ValueError, match="in progress"):
                    member.retry(event)
                if member.attempt == 1:
                    eventually(lambda: only(kit).parked >= 1)
                continue
            handled.append((event.key, event.payload))
            if len(handled) == 12:
                break
    assert attempts == [1, 2]
    assert in_order(handled)
    assert sorted(payload for _, payload in handled) == list(range(12))
    assert [payload for key, payload in handled[:8] if key == "key 1"] == []


@proves("S13")
@one_flavour
def test_an_event_that_fails_at_once_and_always_holds_only_its_key(kit: EventKit) -> None:
    """Other events are handed out between its attempts, those that were read and those that come later."""
    publish(kit, 12, 3)
    others, attempts = list[int](), 0
    with join(kit) as member:
        while len(others) < 16 and attempts < 1000:
            event = member.next(timeout=PATIENCE)
            if event.key == "key 1":
                attempts += 1
                member.retry(event, delay=0)
                continue
            others.append(event.payload)
            if len(others) == 8:
                publish(kit, 12, 3)
    assert sorted(others) == sorted(2 * [0, 2, 3, 5, 6, 8, 9, 11])
    assert attempts > 1


@proves("S13", "S14")
def test_an_event_that_counts_as_handled_is_not_retried(kit: EventKit) -> None:
    """Its position may be saved: a partition that stopped there, and moved, would lose it."""
    publish(kit, 1, 1)
    with join(kit) as member:
        [event] = take(member, 1)
        assert no_more(member)
        for refused in (member.retry, member.hold):
            with pytest.raises(ValueError, match="in progress"):
                refused(event)
        member.save(event)
        assert [(one.lag, one.parked) for one in kit.stream("orders").groups()] == [(0, 0)]
        assert {one.state for one in only(kit).partitions} == {"open"}


@proves("S13")
@one_flavour
def test_an_event_without_a_key_holds_nothing(kit: EventKit) -> None:
    """The events after it are handed out while it waits; by default the next attempt follows in about a second."""
    kit.stream("orders").publish_many(range(5))
    with join(kit) as member:
        [event] = take(member, 1)
        member.retry(event)
        assert payloads(member, 4) == [1, 2, 3, 4]
        assert no_more(member)
        assert payloads(member, 1) == [0]
        assert member.attempt == 2


@proves("S13")
def test_parked_events_move_with_their_partition(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """The next member continues with the next attempt, and keeps the order."""
    publish(kit, 6, 1)
    with join(kit) as first:
        [event] = take(first, 1)
        first.retry(event, delay=0.1)
        assert only(kit).parked == 1
    with join(connect(url)) as second:
        assert payloads(second, 1) == [0]
        assert second.attempt == 2
        assert payloads(second, 5) == [1, 2, 3, 4, 5]
        assert no_more(second)
        assert only(kit).parked == 0


@proves("S13")
def test_a_partition_waits_when_too_many_events_are_parked(kit: EventKit) -> None:
    """It is shown as full, the others go on, and it continues in order when there is room again."""
    stream = kit.stream("orders")
    stream.publish_many([NewEvent(n, key="broken") for n in range(8)])
    stream.publish_many([NewEvent(n, key="fine") for n in range(100, 103)])
    assert partition_of(1, "broken", 8) != partition_of(1, "fine", 8)
    with join(kit, max_parked=3) as member:
        [event] = take(member, 1)
        member.retry(event, delay=1)
        assert payloads(member, 3) == [100, 101, 102]
        eventually(lambda: only(kit).parked == 3 if no_more(member) else False)
        full = [one for one in only(kit).partitions if one.state == "full"]
        assert [(one.partition, one.parked) for one in full] == [(partition_of(1, "broken", 8), 3)]
        assert payloads(member, 8) == list(range(8))
        assert no_more(member)
    group = only(kit)
    assert (group.parked, group.lag, {one.state for one in group.partitions}) == (0, 0, {"open"})


@proves("S15")
def test_retention_waits_for_the_slowest_partition_and_for_parked_events(kit: EventKit) -> None:
    """Neither what a partition has still to read is pruned, nor an event that is to be tried again."""
    stream = kit.stream("orders")
    offsets = publish(kit, 10, 5)
    with join(kit) as member:
        events = take(member, 4)
        assert stream.prune(keep_count=0) == 0
        member.retry(events[-1], delay=NEVER_S)
        assert payloads(member, 4) == [4, 5, 6, 7]
    assert stream.prune(keep_count=0) == 3
    with join(kit) as member:
        assert payloads(member, 1) == [7]
        assert payloads(member, 1) == [9]
        assert no_more(member)
    assert stream.prune(keep_count=0) == 0
    assert only(kit).parked == 2
    stream.remove_group("workers")
    assert stream.prune(keep_count=0) == 7
    assert stream.head() == offsets[-1]


@proves("S15")
@one_flavour
def test_a_member_behind_pruned_events_says_so(kit: EventKit) -> None:
    """It raises `Truncated`, or continues with what is left, as a single subscriber does."""
    stream = kit.stream("orders")
    offsets = publish(kit, 10, 5)
    with join(kit, start=offsets[0]) as member:
        assert payloads(member, 1) == [1]
    stream.prune(keep_count=3, keep_unconsumed=False)
    with pytest.raises(Truncated):
        next(join(kit))
    with join(kit, on_truncated="skip") as member:
        assert payloads(member, 3) == [7, 8, 9]


@proves("S16")
def test_a_group_is_paused_resumed_and_drained(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """A paused group hands out nothing; drained means that all of it was handled and nothing is parked."""
    stream = kit.stream("orders")
    handled: list[tuple[int, str, int]] = []
    member = Working(connect(url), handled, 0)
    with working(member):
        eventually(lambda: len(member.member.partitions) == 8)
        assert stream.pause_group("workers")
        eventually(lambda: not member.member.partitions)
        publish(kit, 10, 5)
        assert not stream.drain_group("workers", timeout=0.3)
        assert handled == []
        group = only(kit)
        assert (group.paused, group.lag, sum(one.lag for one in group.partitions)) == (True, 10, 10)
        assert stream.resume_group("workers")
        assert stream.drain_group("workers", timeout=PATIENCE)
        assert len(handled) == 10
    assert only(kit).lag == 0
    unknown = [stream.pause_group("no group"), stream.resume_group("no group"), stream.reset_group("no group", 0)]
    assert unknown == [False, False, False]
    assert not stream.drain_group("no group")


@proves("S16")
@one_flavour
def test_a_group_that_was_removed_is_not_drained(kit: EventKit) -> None:
    """Its events were not handled."""
    publish(kit, 2, 1)
    with join(kit) as member:
        assert payloads(member, 1) == [0]
    waiting = in_thread(lambda: kit.stream("orders").drain_group("workers", timeout=PATIENCE))
    time.sleep(0.3)
    assert not waiting.done()
    assert kit.stream("orders").remove_group("workers")
    assert waiting.result(PATIENCE) is False


@proves("S16")
def test_a_group_is_reset_to_an_offset_or_a_time(kit: EventKit) -> None:
    """Its members get `LeaseLost`, parked events are forgotten, and the next members begin there."""
    stream = kit.stream("orders")
    offsets = publish(kit, 6, 3)
    member = join(kit)
    assert payloads(member, 4) == [0, 1, 2, 3]
    assert stream.reset_group("workers", offsets[1])
    with pytest.raises(LeaseLost):
        take(member, 20)
    with join(kit) as member:
        [event] = take(member, 1)
        assert event.payload == 2
        member.retry(event, delay=NEVER_S)
    assert stream.reset_group("workers", datetime.now(UTC) - timedelta(hours=1))
    assert only(kit).parked == 0
    with join(kit) as member:
        assert payloads(member, 6) == list(range(6))
    assert stream.reset_group("workers", "latest")
    with join(kit) as member:
        assert no_more(member)


@proves("S16")
def test_a_partition_that_was_stopped_goes_on_when_the_group_is_resumed(kit: EventKit) -> None:
    """The event that stopped it comes first; meanwhile other partitions continue, also in another member."""
    stream = kit.stream("orders")
    stream.publish_many([NewEvent(n, key="broken") for n in range(3)])
    stream.publish_many([NewEvent(n, key="fine") for n in range(100, 102)])
    with join(kit) as member:
        [event] = take(member, 1)
        member.hold(event)
        assert payloads(member, 2) == [100, 101]
        assert no_more(member)
    stopped = [one.partition for one in only(kit).partitions if one.state == "stopped"]
    assert stopped == [partition_of(1, "broken", 8)]
    with join(kit) as member:
        assert no_more(member) if only(kit).lag == 3 else payloads(member, 1) == [101]
        assert stream.resume_group("workers")
        assert payloads(member, 3) == [0, 1, 2]


@proves("S13", "S14", "S16")
@one_flavour
@pytest.mark.parametrize("seed", range(4))
def test_with_any_failures_each_event_has_one_effect_in_order_for_its_key(
    kit: EventKit, connect: Callable[..., Any], url: str, seed: int
) -> None:
    """Members fail, stop partitions, leave, and vanish without leaving, in a random order."""
    chance, stream, handled = random.Random(seed), kit.stream("orders"), list[tuple[str, int]]()
    publish(kit, 150, 12)
    deadline = time.monotonic() + PATIENCE
    while len(handled) < 150:
        assert time.monotonic() < deadline, only(kit)
        every_s = chance.choice((0, 0.01, NEVER_S))
        member = join(
            connect(url), partitions=3, batch=chance.choice((3, 20, 1000)), max_parked=6, save_every_s=every_s
        )
        for _ in range(chance.randrange(60)):
            try:
                event = member.next(timeout=0.15)
            except TimedOut:
                assert stream.resume_group("workers")
                break
            fate = chance.random()
            if fate < 0.15:
                member.retry(event, delay=chance.choice((0, 0.005, 0.05)))
            elif fate < 0.18:
                member.hold(event)
            else:
                member.save(event)
                handled.append((event.key, event.payload))
        if chance.random() < 0.5:
            member.close()
        else:
            advance(kit, LEASE + 1)
    assert sorted(payload for _, payload in handled) == list(range(150))
    assert in_order(handled)


@proves("S16")
@one_flavour
def test_a_removed_group_begins_anew(kit: EventKit) -> None:
    """Its members get `LeaseLost`; nothing of it is left."""
    stream = kit.stream("orders")
    publish(kit, 4, 4)
    member = join(kit)
    assert payloads(member, 2) == [0, 1]
    assert [stream.remove_group("workers") for _ in range(2)] == [True, False]
    with pytest.raises(LeaseLost):
        take(member, 20)
    assert stream.groups() == []
    with join(kit, partitions=2) as member:
        assert payloads(member, 4) == [0, 1, 2, 3]


@proves("S11", "S16")
@one_flavour
def test_groups_and_consumers_do_not_affect_each_other(kit: EventKit) -> None:
    """Two groups and a consumer of one name each get all events."""
    stream = kit.stream("orders")
    publish(kit, 5, 5)
    with join(kit) as one, stream.join("others") as two, stream.subscribe("workers") as three:
        for events in (one, two, three):
            assert payloads(events, 5) == [0, 1, 2, 3, 4]
    assert [group.name for group in stream.groups()] == ["others", "workers"]
    assert [consumer.name for consumer in stream.consumers()] == ["workers"]


@proves("S12")
@both_flavours
def test_a_key_is_never_in_progress_in_two_members(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """A member that has to share waits for the end of the event in progress before it hands its partition over."""
    publish(kit, 60, 20)
    with join(kit, partitions=2) as first:
        take(first, 1)
        with join(connect(url), partitions=2) as second:
            got: list[Any] = []
            taking = in_thread(lambda: got.append(second.next()))
            threading.Event().wait(0.6)
            assert not got
            rest = in_thread(lambda: [first.next(timeout=1) for _ in range(3)])
            taking.result(PATIENCE)
            assert rest.result(PATIENCE)
            assert not first.partitions & second.partitions
            assert len(first.partitions | second.partitions) == 2


@proves("S16")
@one_flavour
def test_groups_show_the_lag_of_each_partition(kit: EventKit) -> None:
    """It counts the events that the partition has still to hand out; parked ones count apart."""
    offsets = publish(kit, 9, 3)
    with join(kit) as member:
        events = take(member, 2)
        member.retry(events[-1], delay=NEVER_S)
    expected: dict[int, int] = defaultdict(int)
    for n, offset in enumerate(offsets[2:], 2):
        expected[partition_of(offset, f"key {n % 3}", 8)] += n % 3 != 1
    group = only(kit)
    assert {one.partition: one.lag for one in group.partitions if one.lag} == {
        number: lag for number, lag in expected.items() if lag
    }
    assert (group.lag, group.parked, group.max_parked) == (5, 3, 1000)
