"""Consumers: saved offsets, and leases on names."""

import asyncio
import gc
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from multiprocessing import get_context
from typing import Any

import pytest

import eventkit
from eventkit import EventKit, LeaseLost
from eventkit.testing import advance

from .clauses import proves
from .flavours import Loop, unwrapped
from .processes import spawn
from .streaming import consume
from .threads import PATIENCE, each, eventually, in_thread, take

NEVER_S = 10_000


@proves("S5")
def test_an_event_is_saved_after_the_next_was_asked_for(kit: EventKit) -> None:
    """The event is not saved while the loop's body still handles it."""
    stream = kit.stream("orders")
    offsets = [0, *stream.publish_many(range(5))]
    with stream.subscribe("consumer", save_every_n=1, save_every_s=0) as events:
        for handled, event in enumerate(each(events, 5)):
            assert stream.offset("consumer") == offsets[handled] < event.offset
    assert stream.offset("consumer") == offsets[4]


@proves("S5")
def test_save_every_n_saves_every_n_events(kit: EventKit) -> None:
    """It saves at no other time while events are pending."""
    stream = kit.stream("orders")
    offsets = [0, *stream.publish_many(range(10))]
    with stream.subscribe("consumer", batch=4, save_every_n=3, save_every_s=NEVER_S) as events:
        saved = [stream.offset("consumer") for _ in each(events, 10)]
    assert saved == [offsets[n] for n in (0, 0, 0, 3, 3, 3, 6, 6, 6, 9)]


@proves("S5")
def test_save_every_s_saves_by_the_clock(kit: EventKit) -> None:
    """An event handled when the interval has passed is saved as soon as the next one is requested."""
    stream = kit.stream("orders")
    offsets = [0, *stream.publish_many(range(4))]
    with stream.subscribe("consumer", save_every_n=0, save_every_s=timedelta(milliseconds=50)) as events:
        for handled, _ in enumerate(each(events, 4)):
            assert stream.offset("consumer") == offsets[handled]
            time.sleep(0.1)
    with stream.subscribe("slow", save_every_n=0, save_every_s=NEVER_S) as events:
        assert [stream.offset("slow") for _ in each(events, 4)] == [0, 0, 0, 0]


@proves("S5")
def test_by_default_a_crash_repeats_a_thousand_events_or_a_second(kit: EventKit) -> None:
    """A fast loop saves after 1,000 events, a slow one after a second."""
    stream = kit.stream("orders")
    offsets = stream.publish_many(range(1002))
    with stream.subscribe("fast") as events:
        take(events, 1001)
        assert stream.offset("fast") >= offsets[999]
    with stream.subscribe("slow") as events:
        take(events, 1)
        time.sleep(1.1)
        take(events, 1)
        assert stream.offset("slow") == offsets[0]


@proves("S5")
@pytest.mark.parametrize("automatic", [{"save_every_n": 1000, "save_every_s": 0}, {"save_every_n": 0}], ids=str)
def test_progress_is_saved_while_idle(kit: EventKit, automatic: dict[str, Any]) -> None:
    """With no further event pending, the handled events are saved."""
    stream = kit.stream("orders")
    offsets = stream.publish_many(range(3))
    events = stream.subscribe("consumer", **automatic)
    waiting: Future[list[Any]] = in_thread(list, events)
    eventually(lambda: stream.offset("consumer") == offsets[-1])
    last = stream.publish(3)
    eventually(lambda: stream.offset("consumer") == last)
    assert not waiting.done()
    kit.close()
    assert [event.payload for event in waiting.result(30)] == [0, 1, 2, 3]


@proves("S5")
def test_progress_is_saved_on_clean_exit(kit: EventKit) -> None:
    """`close` and leaving ``with`` save, after an exception in the body too; the current event is redelivered."""
    stream = kit.stream("orders")
    offsets = stream.publish_many(range(5))
    events = stream.subscribe("closed", save_every_n=1000, save_every_s=NEVER_S)
    take(events, 3)
    assert stream.offset("closed") == 0
    events.close()
    assert stream.offset("closed") == offsets[1]
    with stream.subscribe("with", save_every_n=1000, save_every_s=NEVER_S) as events:
        take(events, 3)
    assert stream.offset("with") == offsets[1]

    def fail_at(payload: int) -> None:
        with stream.subscribe("raised", save_every_n=1000, save_every_s=NEVER_S) as events:
            for event in events:
                if event.payload == payload:
                    raise LookupError

    with pytest.raises(LookupError):
        fail_at(3)
    assert stream.offset("raised") == offsets[2]
    with stream.subscribe("raised") as events:
        assert take(events, 1)[0].payload == 3


@proves("S5", "G1")
def test_closing_the_kit_saves_what_was_handled(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """Another thread closes the kit while a body runs; the loop ends when the body is done."""
    stream = connect(url).stream("orders")
    offsets = stream.publish_many(range(6))
    begun: list[int] = []
    may_end: list[bool] = []

    def work() -> None:
        for event in kit.stream("orders").subscribe("consumer", save_every_n=1000, save_every_s=NEVER_S):
            begun.append(event.payload)
            if event.payload == 3:
                eventually(lambda: may_end)

    working = in_thread(work)
    eventually(lambda: 3 in begun)
    assert stream.offset("consumer") == 0
    kit.close()
    assert stream.offset("consumer") == offsets[2]
    may_end.append(True)
    assert working.result(30) is None
    assert begun == [0, 1, 2, 3]
    with stream.subscribe("consumer") as events:
        assert take(events, 1)[0].payload == 3


@proves("S5", "G1")
def test_closing_an_async_kit_saves_what_an_async_for_handled(url: str) -> None:
    """The iterator is referenced by the loop alone."""

    async def run() -> None:
        async with eventkit.connect_async(url) as other, eventkit.connect_async(url) as kit:
            stream = other.stream("orders")
            offsets = await stream.publish_many(range(6))
            reached, may_end = asyncio.Event(), asyncio.Event()
            begun: list[int] = []

            async def work() -> None:
                subscription = kit.stream("orders").subscribe
                async for event in subscription("consumer", save_every_n=1000, save_every_s=NEVER_S):
                    begun.append(event.payload)
                    if event.payload == 3:
                        reached.set()
                        await may_end.wait()

            working = asyncio.ensure_future(work())
            await reached.wait()
            assert await stream.offset("consumer") == 0
            await kit.close()
            assert await stream.offset("consumer") == offsets[2]
            may_end.set()
            await working
            assert begun == [0, 1, 2, 3]

    asyncio.run(run())


@proves("S5")
def test_leaving_the_loop_is_a_clean_exit(kit: EventKit) -> None:
    """An iterator that is no longer referenced closes itself."""
    stream = kit.stream("orders")
    offsets = stream.publish_many(range(5))
    for event in stream.subscribe("consumer", save_every_n=1000, save_every_s=NEVER_S):
        if event.payload == 3:
            break
    eventually(lambda: stream.offset("consumer") == offsets[2])


@proves("S5")
def test_manual_mode_saves_nothing_by_itself(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """It saves neither while idle, nor on clean exit, nor when the kit is closed; the loop saves by itself."""
    stream = connect(url).stream("orders")
    offsets = stream.publish_many(range(3))
    manual: dict[str, Any] = {"save_every_n": 0, "save_every_s": 0}
    with kit.stream("orders").subscribe("consumer", **manual) as events:
        take(events, 3)
    assert stream.consumers() == []
    seen: list[Any] = []
    waiting = in_thread(lambda: seen.extend(kit.stream("orders").subscribe("consumer", **manual)))
    eventually(lambda: len(seen) == 3)
    stream.publish("wakes it")
    eventually(lambda: len(seen) == 4)
    kit.close()
    waiting.result(30)
    assert stream.consumers() == []
    with stream.subscribe("consumer", **manual) as events:
        for event in each(events, 2):
            stream.save_offset("consumer", event.offset)
    assert stream.offset("consumer") == offsets[1]


@proves("S5")
def test_without_a_consumer_nothing_is_saved(kit: EventKit) -> None:
    """No offset is saved without a name to save it for."""
    stream = kit.stream("orders")
    stream.publish_many(range(3))
    with stream.subscribe(save_every_n=1) as events:
        take(events, 3)
    assert stream.consumers() == []


@proves("S5", "S4")
def test_a_seek_back_is_not_undone_by_an_idle_subscriber(kit: EventKit) -> None:
    """A subscriber saves the events that it handles from now on, and does not repeat its last save."""
    stream = kit.stream("orders")
    offsets = stream.publish_many(range(3))
    waiting: Future[list[Any]] = in_thread(list, stream.subscribe("consumer", save_every_n=1))
    eventually(lambda: stream.offset("consumer") == offsets[-1])
    stream.seek("consumer", offsets[0])
    kit.stream("others").publish("a commit that concerns it not")
    time.sleep(0.2)
    assert stream.offset("consumer") == offsets[0]
    kit.close()
    waiting.result(30)


@proves("S4")
def test_a_removed_consumer_keeps_no_events(kit: EventKit) -> None:
    """It is gone with its offset, alone and once; under its name the next one begins at the first event."""
    stream, other = kit.stream("orders"), kit.stream("others")
    offsets = stream.publish_many(range(3))
    for handle, consumer, offset in ((stream, "old", 0), (stream, "new", offsets[1]), (other, "old", 7)):
        handle.seek(consumer, offset)
    assert stream.prune(keep_count=0) == 0
    assert [stream.remove_consumer("old") for _ in range(2)] == [True, False]
    assert [one.name for one in stream.consumers()] == ["new"]
    assert (stream.offset("old"), other.offset("old")) == (0, 7)
    assert stream.prune(keep_count=0) == 2
    with stream.subscribe("old") as events:
        assert next(events).offset == offsets[2]


@proves("S5")
@pytest.mark.parametrize("window", [1, 10])
def test_a_crash_repeats_at_most_the_unsaved_window(kit: EventKit, url: str, flavour: str, window: int) -> None:
    """A consumer killed in the body of an event gets that event again, and few before it."""
    stream = kit.stream("orders")
    offsets = stream.publish_many(range(100))
    receiving, sending = get_context("spawn").Pipe(duplex=False)
    options = {"save_every_n": window, "save_every_s": 0}
    received: list[int] = []
    with spawn(consume, url, flavour, "orders", options, 34, sending) as consumer:
        while 34 not in received:
            assert receiving.poll(PATIENCE)
            received.append(receiving.recv())
        consumer.kill()
    advance(kit, 15)  # The name is free by then.
    receiving.close()
    sending.close()
    assert received == list(range(35))
    assert stream.offset("consumer") == offsets[33 - (34 % window)]
    with stream.subscribe("consumer") as events:
        again = [event.payload for event in take(events, 50)]
    assert again == list(range(34 - (34 % window), 84 - (34 % window)))


LEASE = 12
"""Seconds for which a name is leased."""


def _subscribe(kit: Any, **options: Any) -> Any:
    return kit.stream("t").subscribe("consumer", **options)


def _payloads(events: Any, count: int) -> list[int]:
    return [event.payload for event in take(events, count)]


@proves("S10")
@pytest.mark.parametrize("start", ["committed", "earliest", "latest"])
def test_a_second_subscriber_waits_and_goes_on_where_the_first_was(
    kit: EventKit, connect: Callable[..., Any], url: str, caplog: pytest.LogCaptureFixture, start: str
) -> None:
    """Together they handle each event once, with any start of the second one; its waiting is logged once."""
    other = connect(url)
    with _subscribe(kit, start="earliest") as first:
        kit.stream("t").publish_many(range(5))
        assert _payloads(first, 3) == [0, 1, 2]
        caplog.set_level(logging.WARNING)
        second = _subscribe(other, start=start)
        waiting = in_thread(lambda: [next(second).payload for _ in range(4)])
        eventually(lambda: "waits as a standby" in caplog.text)
        for payload in (5, 6):
            kit.stream("t").publish(payload)
            time.sleep(0.1)
        assert not waiting.done()
        assert _payloads(first, 1) == [3]
    assert waiting.result(LEASE / 2) == [3, 4, 5, 6]
    assert caplog.text.count("waits as a standby") == 1
    second.close()


@proves("S10")
@pytest.mark.parametrize("leave", ["close", "break", "drop", "kit"])
def test_a_name_that_is_given_up_is_free_at_once(
    connect: Callable[..., Any], url: str, loop: Loop | None, leave: str
) -> None:
    """`close`, ``break`` while a variable refers to the iterator, its collection and closing the kit free it."""
    kit, other = connect(url), connect(url)
    kit.stream("t").publish_many(range(3))
    events = _subscribe(kit)
    if leave == "break":
        for _ in events if loop is None else [loop.run(_first(unwrapped(events)))]:
            break
    else:
        take(events, 1)
    waiting = in_thread(_payloads, _subscribe(other), 2)
    if leave in ("close", "kit"):
        (events if leave == "close" else kit).close()
    elif leave == "drop":
        del events
        gc.collect()
    assert waiting.result(LEASE / 2) == [0, 1]


async def _first(events: Any) -> Any:
    return await anext(aiter(events))


@proves("S10")
def test_a_holder_that_was_replaced_saves_nothing(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """It gets `LeaseLost` before another event, and has ended then."""
    kit.stream("t").publish_many(range(3))
    first = _subscribe(kit, save_every_n=1)
    assert _payloads(first, 1) == [0]
    advance(kit, LEASE + 1)
    with _subscribe(connect(url)) as second:
        assert _payloads(second, 1) == [0]
        with pytest.raises(LeaseLost, match="subscribe again"):
            next(first)
        first.close()
        assert kit.stream("t").offset("consumer") == 0
        assert next(first, "ended") == "ended"
        assert _payloads(second, 2) == [1, 2]


@proves("S10")
def test_a_holder_that_was_replaced_while_it_sleeps_is_woken(
    kit: EventKit, connect: Callable[..., Any], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes when it should have renewed its lease."""
    monkeypatch.setattr("eventkit.stream.HOLD_MS", 1500)
    waiting = in_thread(next, _subscribe(kit))
    time.sleep(0.2)
    with _subscribe(connect(url)) as second:
        advance(kit, LEASE)
        following: Any = in_thread(next, second)
        with pytest.raises(LeaseLost):
            waiting.result(PATIENCE)
        kit.stream("t").publish("for the second")
        assert following.result(PATIENCE).payload == "for the second"


@proves("S10")
def test_a_name_is_kept_while_an_event_is_handled_for_long(
    kit: EventKit, connect: Callable[..., Any], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder renews its lease while it handles an event and while it is idle."""
    monkeypatch.setattr("eventkit.stream.HOLD_MS", 900)
    stream = kit.stream("t")
    stream.publish_many(range(2))
    with _subscribe(kit) as first:
        assert _payloads(first, 1) == [0]
        waiting = in_thread(_payloads, second := _subscribe(connect(url)), 1)
        time.sleep(1.4)
        assert _payloads(first, 1) == [1]
        following = in_thread(_payloads, first, 1)
        time.sleep(1.4)
        stream.publish(2)
        assert following.result(PATIENCE) == [2]
        assert not waiting.done()
    assert waiting.result(PATIENCE) == [2]
    second.close()


@proves("S10", "S4")
def test_others_may_save_and_share_the_name_on_purpose(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """`save_offset` needs no lease, and with ``exclusive=False`` each subscriber gets all events."""
    offsets = kit.stream("t").publish_many(range(3))
    with _subscribe(kit) as held:
        assert _payloads(held, 1) == [0]
        other = connect(url)
        for _ in range(2):
            with _subscribe(other, exclusive=False, start="earliest") as shared:
                assert _payloads(shared, 3) == [0, 1, 2]
        assert other.stream("t").save_offset("consumer", offsets[2])
    with pytest.raises(TypeError):
        _subscribe(kit, exclusive=1)


@pytest.mark.slow
@proves("S10")
def test_a_holder_that_was_killed_is_replaced_within_15_seconds(kit: EventKit, url: str, flavour: str) -> None:
    """A standby that already waits takes over; no event is lost."""
    kit.stream("t").publish_many(range(20))
    receiving, sending = get_context("spawn").Pipe(duplex=False)
    with spawn(consume, url, flavour, "t", {"save_every_n": 1, "save_every_s": 0}, 10, sending) as holder:
        while receiving.recv() != 10:
            pass
        with _subscribe(kit) as standby:
            waiting = in_thread(_payloads, standby, 10)
            time.sleep(1)
            assert not waiting.done()
            holder.kill()
            assert waiting.result(15) == list(range(10, 20))
    receiving.close()
    sending.close()
