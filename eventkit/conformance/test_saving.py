"""S5: when the progress of a subscriber is saved, and what comes again after a crash."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from multiprocessing import get_context
from typing import Any

import pytest

import eventkit
from eventkit import EventKit
from eventkit.testing import advance

from .clauses import proves
from .processes import spawn
from .streaming import consume
from .threads import PATIENCE, each, eventually, in_thread, take

NEVER_S = 10_000


@proves("S5")
def test_an_event_is_saved_after_the_next_was_asked_for(kit: EventKit) -> None:
    """Not while the loop's body is still at it."""
    stream = kit.stream("orders")
    offsets = [0, *stream.publish_many(range(5))]
    with stream.subscribe("consumer", save_every_n=1, save_every_s=0) as events:
        for handled, event in enumerate(each(events, 5)):
            assert stream.offset("consumer") == offsets[handled] < event.offset
    assert stream.offset("consumer") == offsets[4]


@proves("S5")
def test_save_every_n_saves_every_n_events(kit: EventKit) -> None:
    """And at no other time while there is something to do."""
    stream = kit.stream("orders")
    offsets = [0, *stream.publish_many(range(10))]
    with stream.subscribe("consumer", batch=4, save_every_n=3, save_every_s=NEVER_S) as events:
        saved = [stream.offset("consumer") for _ in each(events, 10)]
    assert saved == [offsets[n] for n in (0, 0, 0, 3, 3, 3, 6, 6, 6, 9)]


@proves("S5")
def test_save_every_s_saves_by_the_clock(kit: EventKit) -> None:
    """An event that is handled when the time has come is saved as soon as the next is asked for."""
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
    """When there is nothing more to do, what was handled is saved without another event."""
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
    """By `close` and by ``with``, an exception in the body included; the event it was at comes again."""
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
    """From another thread, while a body is at work; and the loop ends when that is done."""
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
    """Nothing but the loop itself holds the iterator."""

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
    """Nobody has to close what nobody holds any more."""
    stream = kit.stream("orders")
    offsets = stream.publish_many(range(5))
    for event in stream.subscribe("consumer", save_every_n=1000, save_every_s=NEVER_S):
        if event.payload == 3:
            break
    eventually(lambda: stream.offset("consumer") == offsets[2])


@proves("S5")
def test_manual_mode_saves_nothing_by_itself(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """Neither while idle, nor on clean exit, nor when the kit is closed; the loop saves for itself."""
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
    """There is nobody to save it for."""
    stream = kit.stream("orders")
    stream.publish_many(range(3))
    with stream.subscribe(save_every_n=1) as events:
        take(events, 3)
    assert stream.consumers() == []


@proves("S5", "S4")
def test_a_seek_back_is_not_undone_by_an_idle_subscriber(kit: EventKit) -> None:
    """A subscriber saves what it handles from now on, not again what it has saved."""
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


@proves("S5")
@pytest.mark.parametrize("window", [1, 10])
def test_a_crash_repeats_at_most_the_unsaved_window(kit: EventKit, url: str, flavour: str, window: int) -> None:
    """A consumer killed in the body of an event loses nothing: that event comes again, and few before it."""
    stream = kit.stream("orders")
    offsets = stream.publish_many(range(100))
    receiving, sending = get_context("spawn").Pipe(duplex=False)
    options = {"save_every_n": window, "save_every_s": 0}
    told: list[int] = []
    with spawn(consume, url, flavour, "orders", options, 34, sending) as consumer:
        while 34 not in told:
            assert receiving.poll(PATIENCE)
            told.append(receiving.recv())
        consumer.kill()
    advance(kit, 15)  # By then the name is free.
    receiving.close()
    sending.close()
    assert told == list(range(35))
    assert stream.offset("consumer") == offsets[33 - (34 % window)]
    with stream.subscribe("consumer") as events:
        again = [event.payload for event in take(events, 50)]
    assert again == list(range(34 - (34 % window), 84 - (34 % window)))
