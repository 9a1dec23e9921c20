"""Readers behind writers that prune (S8) or commit late (S2)."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from eventkit import EventKit, Truncated
from eventkit.testing import advance

from .clauses import both_flavours, proves, requires
from .processes import spawn
from .streaming import END, go, publish_and_prune, send_in_transactions, transaction, until_end
from .test_channels import RETENTIONS
from .threads import each, in_thread, take


def _numbers(stream: Any) -> list[int]:
    """Return the payloads of the remaining events."""
    return [event.payload for event in stream.read()]


def _aged(kit: Any) -> Any:
    """Return a stream whose events 0 to 3 are 100 seconds old, 4 to 6 are 50, and 7 to 9 are new."""
    stream = kit.stream("orders")
    stream.publish_many(range(4))
    advance(kit, 50)
    stream.publish_many(range(4, 7))
    advance(kit, 50)
    stream.publish_many(range(7, 10))
    return stream


@proves("S8")
@pytest.mark.parametrize(
    ("retention", "left"),
    [*RETENTIONS, ({"older_than": 25}, range(7, 10)), ({"older_than": 0}, range(0))],
    ids=str,
)
def test_prune_drops_what_is_too_old_and_what_is_too_much(
    kit: EventKit, retention: dict[str, int], left: range
) -> None:
    """Two limits together drop what either drops; the answer is the number dropped; other topics are unchanged."""
    stream = _aged(kit)
    other = kit.stream("others")
    other.publish_many(range(10))
    if retention == {"older_than": 0}:
        advance(kit, 1)
    assert stream.prune(**retention) == 10 - len(left)
    assert _numbers(stream) == list(left)
    assert stream.prune(**retention) == 0
    assert _numbers(other) == list(range(10))


@proves("S8")
def test_prune_requires_a_limit(kit: EventKit) -> None:
    """Missing or invalid limits are an error."""
    stream = kit.stream("orders")
    stream.publish(1)
    refused: list[dict[str, Any]] = [{}, {"keep_unconsumed": False}, {"keep_count": -1}, {"older_than": -1}]
    for arguments in refused:
        with pytest.raises(ValueError):  # noqa: PT011 - any of several arguments
            stream.prune(**arguments)
    assert _numbers(stream) == [1]


@proves("S8")
def test_what_a_consumer_has_not_read_is_kept(kit: EventKit) -> None:
    """The slowest consumer decides, unless ``keep_unconsumed`` is off; consumers of other topics do not count."""
    stream = _aged(kit)
    offsets = [event.offset for event in stream.read()]
    kit.stream("others").save_offset("elsewhere", 1)
    stream.save_offset("fast", offsets[8])
    stream.save_offset("slow", offsets[2])
    assert stream.prune(older_than=75) == 3
    assert _numbers(stream) == list(range(3, 10))
    assert stream.prune(keep_count=0) == 0
    stream.save_offset("slow", offsets[5])
    assert stream.prune(older_than=75, keep_count=1) == 3
    assert _numbers(stream) == list(range(6, 10))
    assert stream.prune(keep_count=1, keep_unconsumed=False) == 3
    assert _numbers(stream) == [9]


@proves("S8")
@pytest.mark.parametrize("keep", [0, 4])
def test_a_position_that_was_pruned_away_is_truncated(kit: EventKit, keep: int) -> None:
    """The error has the first and the last offset that are missing, also when no event is left."""
    stream = kit.stream("orders")
    offsets = stream.publish_many(range(10))
    last = offsets[9 - keep]
    stream.prune(keep_count=keep)
    for position in (0, 2, 8 - keep):
        with pytest.raises(Truncated, match="on_truncated") as caught:
            stream.read(offsets[position])
        assert offsets[position] < caught.value.first <= offsets[position + 1]
        assert caught.value.last == last
        with pytest.raises(Truncated) as caught, stream.subscribe(start=offsets[position]) as events:
            take(events, 1)
        assert caught.value.last == last
    assert [event.payload for event in stream.read(last)] == list(range(10 - keep, 10))
    assert stream.read(offsets[9]) == []
    with stream.subscribe(start=last) as events:
        stream.publish(10)
        assert [event.payload for event in take(events, keep + 1)] == list(range(10 - keep, 11))


@proves("S8")
@both_flavours
def test_skip_goes_on_with_what_is_left(kit: EventKit) -> None:
    """It does so in `read` as in `subscribe`."""
    stream = kit.stream("orders")
    offsets = stream.publish_many(range(10))
    stream.save_offset("consumer", offsets[1])
    stream.prune(keep_count=3, keep_unconsumed=False)
    assert [event.payload for event in stream.read(offsets[1], on_truncated="skip")] == [7, 8, 9]
    with pytest.raises(Truncated), stream.subscribe("consumer") as events:
        take(events, 1)
    assert stream.offset("consumer") == offsets[1]
    with stream.subscribe("consumer", on_truncated="skip") as events:
        assert [event.payload for event in take(events, 3)] == [7, 8, 9]
    assert stream.offset("consumer") == offsets[8]


@proves("S8")
def test_holes_are_not_truncation(kit: EventKit) -> None:
    """Offsets of other topics, or pruned before the position, are not missing events."""
    stream, others = kit.stream("orders"), kit.stream("others")
    offsets = []
    for n in range(6):
        others.publish_many(range(3))
        offsets.append(stream.publish(n))
    stream.prune(keep_count=3)
    others.prune(keep_count=0)
    assert [event.payload for event in stream.read(offsets[2])] == [3, 4, 5]
    assert [event.payload for event in stream.read(offsets[4])] == [5]
    last = stream.publish(6)
    with stream.subscribe(start=offsets[5]) as events:
        assert take(events, 1)[0].offset == last


@proves("S8", "S5")
@both_flavours
def test_a_subscriber_overtaken_by_pruning_gets_an_error(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """It gets the error in the middle of a batch, and the events it handled are saved."""
    stream = connect(url).stream("orders")
    offsets = stream.publish_many(range(10))
    events = kit.stream("orders").subscribe("consumer", batch=2, save_every_n=1000)
    assert [event.payload for event in take(events, 2)] == [0, 1]
    stream.prune(keep_count=3, keep_unconsumed=False)
    with pytest.raises(Truncated) as caught:
        take(events, 1)
    assert offsets[1] < caught.value.first <= offsets[2]
    assert caught.value.last == offsets[6]
    assert stream.offset("consumer") == offsets[1]


@proves("S8")
@both_flavours
def test_nothing_is_skipped_silently_in_a_race(kit: EventKit, url: str, flavour: str) -> None:
    """A reader that pruning overtakes again and again has seen every event, or got an error for it."""
    stream = kit.stream("raced")
    seen: list[int] = []
    missed: list[int] = []
    with spawn(publish_and_prune, url, flavour, "raced", 1200) as publisher:
        go(kit)
        after, ended = 0, False
        while not ended:
            time.sleep(0.01)
            try:
                with stream.subscribe(start=after, batch=3) as events:
                    for event in each(events, 20):
                        ended = event.payload == END
                        if ended:
                            break
                        seen.append(after := event.offset)
            except Truncated as error:
                missed += range(error.first, error.last + 1)
                after = error.last
        offsets: list[int] = publisher.result()
    assert seen == sorted(set(seen))
    # Before its first event a reader is at the beginning, wherever that is, and misses nothing.
    assert {offset for offset in offsets if offset >= seen[0]} == {*seen, *missed} & set(offsets)
    assert not set(seen) & set(missed)
    assert missed


def _race(kit: Any, url: str, flavour: str, writers: int, transactions: int) -> None:
    """Race writers against a live reader that saves each event, and one that polls."""
    stream = kit.stream("raced")
    live = stream.subscribe("live", batch=7, save_every_n=1)
    following = in_thread(until_end, live)

    def poll() -> list[Any]:
        seen: list[Any] = []
        while not seen or seen[-1].payload != END:
            seen += stream.read(seen[-1].offset if seen else 0, limit=50)
        return seen[:-1]

    polling = in_thread(poll)
    processes = [spawn(send_in_transactions, url, flavour, "stream", writer, transactions) for writer in range(writers)]
    go(kit)
    committed = [process.result() for process in processes]
    stream.publish(END)

    received = following.result(60)
    stored = stream.read(limit=1_000_000)[:-1]
    assert sorted(event.payload for event in stored) == sorted(payload for sent in committed for payload in sent)
    assert received == stored
    assert polling.result(60) == stored
    assert [event.offset for event in stored] == sorted({event.offset for event in stored})
    for writer, sent in enumerate(committed):
        assert [event.payload for event in received if event.payload[0] == writer] == sent
    live.close()
    assert stream.offset("live") == stored[-1].offset


@proves("S2")
@both_flavours
def test_nothing_is_skipped_among_racing_writers(kit: EventKit, url: str, flavour: str) -> None:
    """A reader gets the committed events in order, although transactions stay open or roll back."""
    _race(kit, url, flavour, writers=3, transactions=60)


@proves("S2")
@pytest.mark.slow
@both_flavours
def test_nothing_is_skipped_in_a_long_race(kit: EventKit, url: str, flavour: str) -> None:
    """More writers race for longer."""
    _race(kit, url, flavour, writers=6, transactions=600)


def _publish_one_by_one(kit: Any, count: int) -> None:
    stream = kit.stream("orders")
    with kit.transaction() as tx:
        offsets = [stream.publish(n, tx=tx) for n in range(count)]
    events = stream.read(limit=count + 1)
    assert [event.offset for event in events] == offsets == sorted(set(offsets))
    assert [event.payload for event in events] == list(range(count))


@proves("S2")
def test_one_transaction_publishes_thousands_one_by_one(kit: EventKit) -> None:
    """The events keep their order."""
    _publish_one_by_one(kit, 10_000)


@proves("S2")
@pytest.mark.slow
def test_one_transaction_publishes_a_hundred_thousand_one_by_one(kit: EventKit) -> None:
    """The events keep their order."""
    _publish_one_by_one(kit, 100_000)


@proves("S2")
def test_one_transaction_publishes_to_many_topics(kit: EventKit) -> None:
    """Each of more than 32 topics has its event; after a rollback none has."""
    topics = [kit.stream(f"topic {n}") for n in range(50)]
    for commit in (True, False):
        with transaction(kit, commit=commit) as tx:
            for n, topic in enumerate(topics):
                topic.publish(n, tx=tx)
        assert [[event.payload for event in topic.read()] for topic in topics] == [[n] for n in range(50)]


@proves("S2")
@requires("concurrent_writers")
@pytest.mark.parametrize("topics", [1, 40])
def test_an_offset_committed_late_is_not_skipped(kit: EventKit, topics: int) -> None:
    """A reader stays below the offset of an open transaction, however many topics that publishes to."""
    stream = kit.stream("orders")
    with kit.transaction() as tx:
        for n in range(topics - 1):
            kit.stream(f"topic {n}").publish(n, tx=tx)
        early = stream.publish("early", tx=tx)
        late = stream.publish("late, and committed first")
        before = [event.offset for event in stream.read()]
        head = stream.head()
    assert [event.offset for event in stream.read(before[-1] if before else 0)] == [early, late][len(before) :]
    assert early < late
    assert head < early
    assert stream.head() == late


@proves("S2")
@requires("concurrent_writers")
def test_a_savepoint_rolled_back_does_not_lift_the_guard(kit: EventKit) -> None:
    """A reader skips no event that the transaction publishes after the rollback."""
    stream = kit.stream("orders")
    with kit.transaction() as tx:
        tx.execute("SAVEPOINT inner_part")
        stream.publish("undone", tx=tx)
        tx.execute("ROLLBACK TO SAVEPOINT inner_part")
        early = stream.publish("early", tx=tx)
        late = stream.publish("late, and committed first")
        assert stream.read() == []
    assert [event.offset for event in stream.read()] == [early, late]


@proves("S2")
@requires("concurrent_writers")
def test_publishers_do_not_wait_for_each_other(kit: EventKit) -> None:
    """A reader of one topic does not wait for publishers of another either."""
    orders, others = kit.stream("orders"), kit.stream("others")
    with kit.transaction() as tx:
        orders.publish("open", tx=tx)
        committed = in_thread(orders.publish, "committed").result(5)
        offset = others.publish("at once")
        assert [event.offset for event in others.read()] == [offset]
        assert others.head() == offset
    assert orders.read()[-1].offset == committed


@proves("S2", "S5")
@requires("concurrent_writers")
@both_flavours
def test_latest_leaves_out_what_was_visible(kit: EventKit) -> None:
    """An event above the settled head that was committed before is not delivered; one that commits later is."""
    stream = kit.stream("orders")
    with kit.transaction() as tx:
        early = stream.publish("early", tx=tx)
        stream.publish("late, and committed first")
        events = stream.subscribe(start="latest")
    last = stream.publish("after")
    with events:
        assert [event.offset for event in take(events, 2)] == [early, last]
