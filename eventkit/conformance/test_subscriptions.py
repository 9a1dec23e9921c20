"""S5: subscribing; replay, then live."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eventkit import Closed, EventKit
from eventkit.testing import advance

from .clauses import proves
from .processes import spawn
from .streaming import END, go, publish_numbers, until_end
from .threads import eventually, in_thread, rest, take


def _payloads(events: Any, count: int) -> list[Any]:
    """The payloads of the next *count* events."""
    return [event.payload for event in take(events, count)]


@proves("S5", "S3")
def test_a_subscriber_gets_what_there_is_and_what_comes(kit: EventKit) -> None:
    """The events are those that `read` gives."""
    stream = kit.stream("orders")
    stream.publish_many(["a", "b"])
    with stream.subscribe() as events:
        received = take(events, 2)
        coming = in_thread(lambda: take(events, 3))
        kit.stream("others").publish("of another topic")
        stream.publish("c", key="key", headers={"h": "1"})
        stream.publish_many(["d", "e"])
        received += coming.result(30)
    assert received == stream.read()
    assert [event.payload for event in received] == ["a", "b", "c", "d", "e"]


@proves("S5")
def test_no_gap_and_no_duplicate_at_the_seam(kit: EventKit, url: str, flavour: str) -> None:
    """Subscribers that come at any moment of a busy publisher's work all get everything, once, in order."""
    stream = kit.stream("busy")
    with spawn(publish_numbers, url, flavour, "busy", 1500):
        go(kit)
        followers = []
        for batch in (1, 2, 10, 100, 1000):
            followers.append((events := stream.subscribe(batch=batch), in_thread(until_end, events)))
            eventually(lambda: stream.head() >= 150 * len(followers))
    stored = stream.read(limit=10_000)[:-1]
    assert [event.payload for event in stored] == list(range(1500))
    for events, following in followers:
        assert following.result(60) == stored
        events.close()


@proves("S5")
@pytest.mark.parametrize("batch", [1, 3, 1000])
def test_the_batch_is_only_how_much_is_read_at_a_time(kit: EventKit, batch: int) -> None:
    """Every batch size gives the same."""
    stream = kit.stream("orders")
    stream.publish_many(range(10))
    with stream.subscribe("consumer", batch=batch, save_every_n=1) as events:
        assert _payloads(events, 10) == list(range(10))


@proves("S5")
def test_committed_goes_on_after_the_saved_offset(kit: EventKit) -> None:
    """From the first event when none is saved, or no consumer named."""
    stream = kit.stream("orders")
    offsets = stream.publish_many(["a", "b", "c", "d"])
    with stream.subscribe("consumer") as events:
        assert _payloads(events, 1) == ["a"]
    starts: list[dict[str, Any]] = [{}, {"start": "committed"}]
    for start in starts:
        stream.seek("consumer", offsets[1])
        with stream.subscribe("consumer", **start) as events:
            assert _payloads(events, 2) == ["c", "d"]
        with stream.subscribe("another", **start) as events:
            assert _payloads(events, 1) == ["a"]
        with stream.subscribe(**start) as events:
            assert _payloads(events, 1) == ["a"]


@proves("S5")
def test_any_other_start_wins_over_the_saved_offset(kit: EventKit) -> None:
    """The first event, an offset, a moment; saved is, as ever, only what lies ahead of the saved offset."""
    stream = kit.stream("orders")
    offsets = stream.publish_many(["a", "b", "c"])
    advance(kit, 100)
    offsets += stream.publish_many(["d", "e"])
    moment = datetime.now(UTC) - timedelta(seconds=50)
    stream.save_offset("consumer", offsets[2])
    starts: list[tuple[Any, list[str]]] = [
        ("earliest", ["a", "b", "c"]),
        (0, ["a", "b", "c"]),
        (offsets[0], ["b", "c", "d"]),
        (moment, ["d", "e"]),
        (datetime(2001, 1, 1, tzinfo=UTC), ["a", "b", "c"]),
    ]
    for start, expected in starts:
        for consumer in ("consumer", "another", None):
            with stream.subscribe(consumer, start=start, save_every_n=1) as events:
                assert _payloads(events, len(expected)) == expected
        assert stream.offset("consumer") == (offsets[3] if start == moment else offsets[2])
        stream.seek("consumer", offsets[2])


@proves("S5")
def test_latest_gives_only_what_comes(kit: EventKit) -> None:
    """Though an offset is saved, and though it is read a good while later."""
    stream = kit.stream("orders")
    first = stream.publish_many(["a", "b"])[0]
    stream.save_offset("consumer", first)
    with stream.subscribe("consumer", start="latest") as events, kit.stream("new").subscribe(start="latest") as new:
        stream.publish("c")
        kit.stream("new").publish("first of all")
        assert _payloads(events, 1) == ["c"]
        assert _payloads(new, 1) == ["first of all"]


@proves("S5")
@pytest.mark.parametrize(
    "arguments",
    [
        {"start": "sometime"},
        {"start": -1},
        {"start": datetime(2030, 1, 1)},
        {"batch": 0},
        {"save_every_n": -1},
        {"save_every_s": -1},
        {"on_truncated": "perhaps"},
        {"consumer": ""},
    ],
    ids=str,
)
def test_subscribe_refuses_bad_arguments_at_once(kit: EventKit, arguments: dict[str, Any]) -> None:
    """At the call, not at the first step."""
    with pytest.raises(ValueError):  # noqa: PT011 - any of several arguments
        kit.stream("orders").subscribe(**arguments)


@proves("S5", "S4")
def test_consumers_each_get_everything(kit: EventKit) -> None:
    """At their own pace, and each with its own offset."""
    stream = kit.stream("orders")
    offsets = stream.publish_many(range(6))
    with (
        stream.subscribe("a", save_every_n=1) as a,
        stream.subscribe("b", save_every_n=1) as b,
        stream.subscribe() as anonymous,
    ):
        assert _payloads(a, 2) == [0, 1]
        assert _payloads(b, 5) == [0, 1, 2, 3, 4]
        assert _payloads(a, 2) == [2, 3]
        assert _payloads(anonymous, 6) == list(range(6))
    assert (stream.offset("a"), stream.offset("b")) == (offsets[2], offsets[3])
    assert [consumer.name for consumer in stream.consumers()] == ["a", "b"]


@proves("S5")
def test_a_closed_iterator_has_ended(kit: EventKit) -> None:
    """By `close`, which may be called again, or by ``with``; before, during and after its use."""
    stream = kit.stream("orders")
    stream.publish_many(range(3))
    never_used = stream.subscribe("a")
    never_used.close()
    assert rest(never_used) == []
    events = stream.subscribe("b")
    assert _payloads(events, 1) == [0]
    events.close()
    events.close()
    assert rest(events) == []
    with stream.subscribe("c") as events:
        assert _payloads(events, 2) == [0, 1]
    assert rest(events) == []
    with stream.subscribe("d"):
        pass
    assert stream.publish(3) > 0


@proves("S5", "G1")
def test_closing_the_kit_ends_waiting_iterators(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """Normally, in every thread that waits, and at once."""
    another = connect(url)
    stream = another.stream("orders")
    stream.publish("a")
    subscriptions = [stream.subscribe(f"consumer {n}") for n in range(3)]
    received: list[Any] = []
    waiting = [in_thread(lambda it=it: received.extend(it)) for it in subscriptions]
    eventually(lambda: all(kit.stream("orders").offset(f"consumer {n}") for n in range(3)))
    started = time.monotonic()
    another.close()
    for future in waiting:
        assert future.result(30) is None
    assert time.monotonic() - started < 4
    with pytest.raises(Closed):
        stream.subscribe("late")
    assert kit.stream("orders").publish("b") > 0


@proves("S5", "G1")
def test_nothing_is_handed_out_once_the_kit_is_closed(kit: EventKit) -> None:
    """Not even what was read already."""
    kit.stream("orders").publish_many(range(5))
    subscribers = [kit.stream("orders").subscribe(consumer) for consumer in ("consumer", None)]
    for events in subscribers:
        assert _payloads(events, 2) == [0, 1]
    kit.close()
    for events in subscribers:
        assert rest(events) == []


@proves("S5")
def test_a_subscriber_wakes_for_each_of_many_commits(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """One after another, by another kit, each in its turn."""
    publisher = connect(url).stream("orders")
    with kit.stream("orders").subscribe("consumer") as events:
        for n in range(30):
            coming = in_thread(lambda: take(events, 1)[0])
            time.sleep(0.002 * (n % 4))
            publisher.publish(n)
            assert coming.result(30).payload == n
    publisher.publish(END)
