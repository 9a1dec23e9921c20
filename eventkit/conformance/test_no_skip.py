"""S2: a reader at an offset never later finds an event at or below it."""

from typing import Any

import pytest

from eventkit import EventKit

from .clauses import proves, requires
from .processes import spawn
from .streaming import END, go, send_in_transactions, transaction, until_end
from .threads import in_thread, take


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
def test_nothing_is_skipped_among_racing_writers(kit: EventKit, url: str, flavour: str) -> None:
    """A reader gets the committed events in order, although transactions stay open or roll back."""
    _race(kit, url, flavour, writers=3, transactions=60)


@proves("S2")
@pytest.mark.slow
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
