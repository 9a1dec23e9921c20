"""S10: a consumer's name has one holder at a time."""

import gc
import logging
import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import pytest

from eventkit import EventKit, LeaseLost
from eventkit.testing import advance

from .clauses import proves
from .flavours import Loop, unwrapped
from .processes import spawn
from .streaming import consume
from .threads import PATIENCE, eventually, in_thread, take

LEASE = 12
"""Seconds for which a name is taken."""


def _subscribe(kit: Any, **options: Any) -> Any:
    return kit.stream("t").subscribe("consumer", **options)


def _payloads(events: Any, count: int) -> list[int]:
    return [event.payload for event in take(events, count)]


@proves("S10")
@pytest.mark.parametrize("start", ["committed", "earliest", "latest"])
def test_a_second_subscriber_waits_and_goes_on_where_the_first_was(
    kit: EventKit, connect: Callable[..., Any], url: str, caplog: pytest.LogCaptureFixture, start: str
) -> None:
    """Together they handle each event once, whatever the second one's start; that it waits is logged once."""
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
    """By `close`, by ``break`` though a variable keeps the iterator, by collecting it, and by closing the kit."""
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
    """As soon as it should have renewed its lease."""
    monkeypatch.setattr("eventkit.feeds.HOLD_MS", 1500)
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
    """And while there is nothing to do: the holder renews its lease."""
    monkeypatch.setattr("eventkit.feeds.HOLD_MS", 900)
    stream = kit.stream("t")
    stream.publish_many(range(2))
    with _subscribe(kit) as first:
        assert _payloads(first, 1) == [0]
        waiting = in_thread(_payloads, second := _subscribe(connect(url)), 1)
        time.sleep(2)
        assert _payloads(first, 1) == [1]
        following = in_thread(_payloads, first, 1)
        time.sleep(2)
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
    """By a standby that waits since before; no event is lost."""
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
