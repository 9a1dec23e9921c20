"""Iterators that are interrupted, closed from elsewhere and left (S5, Q17, N1)."""

import asyncio
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import eventkit
from eventkit import EventKit, TimedOut

from .clauses import proves
from .threads import PATIENCE, in_thread

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
    """A timeout around `anext` may end it anywhere: while it waits, claims, reads, or has just found something."""

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
    """Progress is saved meanwhile, however short the timeouts are."""
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
    """By another thread, or another task: the step ends normally, whether it sleeps already or is about to."""
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
    """The loop ends; what was handled is saved, and the kit works on."""
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
    """In the order it had and with its attempts, whether a variable keeps the iterator or not."""
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
    """In the next turns of the event loop, and before the kit is closed at the latest."""

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
            while (await queue.stats()).leased > 1:  # The first one was never acked.
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
