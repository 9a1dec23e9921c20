"""Subscriptions: iterators that survive timeouts, and their start positions."""

import asyncio
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import eventkit
from eventkit import Closed, EventKit, TimedOut
from eventkit.testing import advance

from .clauses import proves
from .processes import spawn
from .streaming import END, go, publish_numbers, until_end
from .threads import PATIENCE, eventually, in_thread, rest, take


def _payloads(events: Any, count: int) -> list[Any]:
    """Return the payloads of the next *count* events."""
    return [event.payload for event in take(events, count)]


@proves("S5", "S3")
def test_a_subscriber_gets_what_there_is_and_what_comes(kit: EventKit) -> None:
    """Its events equal those of `read`."""
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
    """Subscribers that start while a publisher is busy all get every event once, in order."""
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
def test_any_other_start_wins_over_the_saved_offset(kit: EventKit) -> None:
    """The start is the first event, an offset or a moment; a save still only moves the offset forward."""
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
    """Neither a saved offset nor a late first read changes that."""
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
    """The call raises, not the first step."""
    with pytest.raises(ValueError):  # noqa: PT011 - any of several arguments
        kit.stream("orders").subscribe(**arguments)


@proves("S5")
def test_a_closed_iterator_has_ended(kit: EventKit) -> None:
    """`close`, which may be repeated, or ``with`` ends it before, during and after its use."""
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
    """They end normally and at once, in every waiting thread."""
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
    """Events already read are not handed out either."""
    kit.stream("orders").publish_many(range(5))
    subscribers = [kit.stream("orders").subscribe(consumer) for consumer in ("consumer", None)]
    for events in subscribers:
        assert _payloads(events, 2) == [0, 1]
    kit.close()
    for events in subscribers:
        assert rest(events) == []


@proves("S5")
def test_a_subscriber_wakes_for_each_of_many_commits(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """Another kit commits one event after the other, and the subscriber gets each before the next."""
    publisher = connect(url).stream("orders")
    with kit.stream("orders").subscribe("consumer") as events:
        for n in range(30):
            coming = in_thread(lambda: take(events, 1)[0])
            time.sleep(0.002 * (n % 4))
            publisher.publish(n)
            assert coming.result(30).payload == n
    publisher.publish(END)


KINDS = ["events", "tasks", "notifications"]


def _iterator(kit: Any, kind: str) -> Any:
    if kind == "events":
        return kit.stream("t").subscribe("consumer", start="earliest")
    return kit.queue("t").work("w", batch=3) if kind == "tasks" else kit.channel("t").listen(start="earliest")


def _send(kit: Any, kind: str, payload: int) -> Any:
    if kind == "events":
        return kit.stream("t").publish(payload)
    return kit.queue("t").enqueue(payload) if kind == "tasks" else kit.channel("t").notify(payload)


@proves("S5", "Q17", "N1")
@pytest.mark.parametrize("kind", KINDS)
def test_steps_that_are_cancelled_lose_nothing(url: str, kind: str) -> None:
    """A timeout around `anext` may end it anywhere: while it waits, claims, reads, or has just found an event."""

    async def main() -> None:
        async with eventkit.connect_async(url) as kit, _iterator(kit, kind) as messages:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(messages), 0.2)
            sent = 0
            got: list[Any] = []
            while len(got) < 60:
                if sent < 60:
                    await _send(kit, kind, sent)
                    sent += 1
                step = asyncio.create_task(anext(messages))
                for _ in range(random.randrange(80)):
                    await asyncio.sleep(0)
                if sent < 60 or random.random() < 0.5:
                    step.cancel()
                with suppress(asyncio.CancelledError):
                    got.append(await step)
                    if kind == "tasks":
                        assert await kit.queue("t").ack(got[-1])
                        assert got[-1].attempt == 1
            payloads = [message.payload for message in got]
            assert (sorted(payloads) if kind == "tasks" else payloads) == list(range(60))

    asyncio.run(asyncio.wait_for(main(), 2 * PATIENCE))


@proves("S5", "Q17", "N1")
@pytest.mark.parametrize("kind", KINDS)
def test_next_gives_up_after_its_timeout_and_goes_on(kit: EventKit, kind: str) -> None:
    """Progress is saved meanwhile, even with short timeouts."""
    with _iterator(kit, kind) as messages:
        for payload in range(3):
            with pytest.raises(TimedOut):
                messages.next(timeout=0.05)
            _send(kit, kind, payload)
            assert messages.next(timeout=PATIENCE).payload == payload
        if kind == "events":
            stream = kit.stream("t")
            deadline = time.monotonic() + PATIENCE
            while stream.offset("consumer") < stream.head():
                with pytest.raises(TimedOut):
                    messages.next(timeout=0.01)
                assert time.monotonic() < deadline


@proves("S5", "Q17", "N1")
@pytest.mark.parametrize("kind", KINDS)
def test_an_iterator_is_closed_while_a_step_waits(kit: EventKit, kind: str) -> None:
    """Another thread or task closes it: the step ends normally, whether it sleeps already or is about to."""
    for pause in (0.0, 0.01, 0.2):
        messages = _iterator(kit, kind)
        with pytest.raises(TimedOut):
            messages.next(timeout=0)
        waiting = in_thread(next, messages, "ended")
        time.sleep(pause)
        messages.close()
        assert waiting.result(PATIENCE) == "ended"
        assert next(messages, "ended") == "ended"


@proves("S5", "Q17", "N1")
@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_handler_closes_the_iterator_that_it_interrupts(url: str, kind: str) -> None:
    """The loop ends; handled events are saved, and the kit works on."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are handled in the main thread")
    with eventkit.connect(url) as kit:
        messages, seen = _iterator(kit, kind), []
        _send(kit, kind, 1)
        previous = signal.signal(signal.SIGALRM, lambda *_: messages.close())
        try:
            for message in messages:
                seen.append(message.payload)
                signal.setitimer(signal.ITIMER_REAL, 0.03)
        finally:
            signal.signal(signal.SIGALRM, previous)
        assert seen == [1]
        if kind == "events":
            assert kit.stream("t").offset("consumer") == kit.stream("t").head()


@proves("Q17", "Q22")
@pytest.mark.parametrize("kept", [True, False])
def test_leaving_a_loop_gives_back_the_claimed_rest(connect: Callable[..., Any], url: str, kept: bool) -> None:
    """The tasks return in their order with their attempts, also while a variable refers to the iterator."""
    with eventkit.connect(url) as kit:
        queue = kit.queue("t")
        queue.enqueue_many(range(8))
        tasks: Any = queue.work(batch=5)
        iterated = [tasks]
        if not kept:
            del tasks
        for task in iterated.pop():
            if task.payload == 1:
                assert queue.ack(task)
                break
        assert [(task.payload, task.attempt) for task in queue.claim("other", 8)] == [(n, 1) for n in range(2, 8)]


@proves("Q17", "S5")
def test_leaving_an_async_loop_gives_back_and_saves(url: str) -> None:
    """It happens in the next turns of the event loop, and before the kit is closed at the latest."""

    async def main() -> None:
        async with eventkit.connect_async(url) as kit, eventkit.connect_async(url) as closing:
            queue, stream = kit.queue("t"), kit.stream("t")
            await queue.enqueue_many(range(8))
            offsets = await stream.publish_many(range(3))
            tasks = queue.work(batch=5)
            async for task in tasks:
                if task.payload == 1:
                    assert await queue.ack(task)
                    break
            while (await queue.stats()).running > 1:  # The first task is not acked.
                await asyncio.sleep(0.01)
            rest = await queue.claim("other", 5)
            assert [(task.payload, task.attempt) for task in rest] == [(n, 1) for n in range(2, 7)]
            assert (await anext(tasks)).payload == 7
            async for event in closing.stream("t").subscribe("consumer"):
                if event.payload == 2:
                    break
            await closing.close()
            assert await stream.offset("consumer") == offsets[1]

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
