"""Cancelled tasks and cancelled calls."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import eventkit
from eventkit import EventKit
from eventkit.testing import advance

from .calling import Caller
from .clauses import proves
from .exits import EXITS, cancel_at_each_await
from .processes import PATIENCE
from .threads import SOON, asleep, rolled_back
from .urls import with_options


def _run(main: Any) -> None:
    asyncio.run(asyncio.wait_for(main, 2 * PATIENCE))


@proves("W2")
def test_a_hundred_waiters_are_cancelled_at_once(url: str) -> None:
    """All of them end as cancelled, the remaining waiter still wakes, and no waiter stays registered."""

    async def main() -> None:
        async with eventkit.connect_async(with_options(url, fallback_poll=3600)) as kit:
            stream, queue, channel = kit.stream("t"), kit.queue("q"), kit.channel("c")
            await kit.queue("full").configure(max_size=1)
            await kit.queue("full").enqueue("in the way")
            staying = asyncio.create_task(anext(stream.subscribe()))
            for pause in (0.0, 0.001, 0.1):
                waiting = [
                    asyncio.create_task(call)
                    for _ in range(25)
                    for call in (
                        _next(stream.subscribe()),
                        _next(channel.listen()),
                        queue.claim("w", wait=PATIENCE),
                        kit.queue("full").enqueue(1, wait=PATIENCE),
                    )
                ]
                await asyncio.sleep(pause)
                for task in waiting:
                    task.cancel()
                ends = await asyncio.gather(*waiting, return_exceptions=True)
                assert all(isinstance(end, asyncio.CancelledError) for end in ends)
            await stream.publish("woken")
            assert (await asyncio.wait_for(staying, PATIENCE)).payload == "woken"

    _run(main())


async def _next(iterator: Any) -> Any:
    return await anext(iterator)


@asynccontextmanager
async def _view(url: str) -> AsyncIterator[Any]:
    """Provide the async view of a sync kit."""
    with eventkit.connect(url) as kit:
        async with kit.async_() as view:
            yield view


@proves("W2", "Q2")
@pytest.mark.parametrize(
    ("connect", "pause"),
    [
        *((eventkit.connect_async, pause) for pause in (0.0, 0.0005, 0.002, 0.01)),
        pytest.param(_view, 0.002, marks=proves("G16")),
    ],
)
def test_a_cancelled_claim_loses_no_task(url: str, connect: Any, pause: float) -> None:
    """A task that a cancelled claim had just got is released with its attempt; another worker can claim it at once."""

    async def main() -> None:
        async with connect(url) as kit:
            queue = kit.queue("q")
            claims = [asyncio.create_task(queue.claim("w", 1, wait=PATIENCE)) for _ in range(50)]
            await asyncio.sleep(0.05)
            await queue.enqueue_many(list(range(50)))
            await asyncio.sleep(pause)
            for claim in claims:
                claim.cancel()
            ends = await asyncio.gather(*claims, return_exceptions=True)
            got = [task.payload for end in ends if isinstance(end, list) for task in end]
            assert {type(end) for end in ends} <= {asyncio.CancelledError, list}, ends
            while len(got) < 50:
                rest = await queue.claim("w2", 50, wait=PATIENCE)
                assert rest
                assert {task.attempt for task in rest} == {1}
                got += [task.payload for task in rest]
            assert sorted(got) == list(range(50))

    _run(main())


@proves("Q2")
def test_a_claim_cancelled_at_any_step_loses_no_task(url: str) -> None:
    """At every step of the claim, the task is either returned or claimable by another worker at once."""

    async def main() -> None:
        async with eventkit.connect_async(url) as kit:
            queue = kit.queue("q")
            await queue.enqueue("task")
            cancelled = 0
            for turn in range(400):
                claim = asyncio.create_task(queue.claim("w"))
                for _ in range(turn % 80):
                    await asyncio.sleep(0)
                claim.cancel()
                try:
                    tasks = await claim
                except asyncio.CancelledError:
                    cancelled += 1
                    tasks = await queue.claim("w2", wait=5)
                assert [task.attempt for task in tasks] == [1]
                assert await queue.release(tasks[0])
            assert cancelled

    _run(main())


@proves("K1")
def test_a_lock_whose_acquire_is_cancelled_at_any_step_is_not_lost(url: str) -> None:
    """The lock is either held by the handle or free at once."""

    async def main() -> None:
        async with eventkit.connect_async(url) as kit:
            cancelled = 0
            for turn in range(320):
                lock = kit.lock("l")
                acquire = asyncio.create_task(lock.acquire())
                for _ in range(turn % 80):
                    await asyncio.sleep(0)
                acquire.cancel()
                try:
                    assert await acquire
                except asyncio.CancelledError:
                    cancelled += 1
                    lock = kit.lock("l")
                    assert await lock.acquire(wait=5)
                assert await lock.release()
            assert cancelled

    _run(main())


@proves("K1", "Q17", "S5", "G4")
@EXITS
@pytest.mark.parametrize(
    "what", ["lock", "task", "tasks", "events", "transaction", pytest.param("outbox", marks=proves("O1"))]
)
def test_leaving_is_not_cut_short_by_a_cancellation(url: str, what: str, again: bool) -> None:
    """The exit finishes its work before the cancellation is raised, at whichever await the cancellation arrives."""

    async def main() -> None:
        async with eventkit.connect_async(with_options(url, busy_timeout=1)) as kit:
            queue, stream, outbox = kit.queue("q"), kit.stream("t"), kit.queue("outbox:o")
            published = 0

            async def leave(leaving: asyncio.Event) -> None:
                nonlocal published
                match what:
                    case "lock":
                        async with kit.lock("l"):
                            leaving.set()
                    case "task":
                        await queue.enqueue(1)
                        [task] = await queue.claim("w")
                        async with queue.handling(task):
                            leaving.set()
                    case "tasks":
                        await queue.enqueue_many([1, 2, 3])
                        async with queue.work("w", batch=3) as tasks:
                            assert await queue.ack(await anext(tasks))
                            leaving.set()
                    case "events":
                        published = (await stream.publish_many([1, 2]))[0]
                        async with stream.subscribe("c") as events:
                            assert (await anext(events)).offset == published
                            await anext(events)
                            leaving.set()
                    case "transaction":
                        async with kit.transaction() as tx:
                            await stream.publish(1, tx=tx)
                            leaving.set()
                    case "outbox":
                        await deliver_one(leaving)

            async def deliver_one(leaving: asyncio.Event) -> None:
                async def deliver(message: Any) -> None:
                    leaving.set()
                    await asyncio.sleep(0)
                    box.stop()

                box = kit.outbox("o", deliver=deliver)
                async with kit.transaction() as tx:
                    await box.add(1, tx=tx)
                await box.run()

            async def check() -> None:
                match what:
                    case "lock":
                        lock = kit.lock("l")
                        assert await lock.acquire()
                        assert await lock.release()
                    case "task":
                        assert await queue.size() == 0
                    case "tasks":
                        rest = await queue.claim("w2", 3)
                        assert [(task.payload, task.attempt) for task in rest] == [(2, 1), (3, 1)]
                        assert len(await queue.ack_many(rest)) == 2
                    case "events":
                        assert await stream.offset("c") == published
                        await stream.save_offset("c", published + 1)
                    case "transaction":
                        async with kit.transaction() as tx:
                            await stream.publish(2, tx=tx)
                    case "outbox":
                        assert (await outbox.stats()).running == 0
                        await outbox.ack_many(await outbox.claim("w2"))

            await cancel_at_each_await(leave, again, check)

    _run(main())


@proves("Q17", "S5")
@EXITS
def test_closing_is_not_cut_short_by_a_cancellation(url: str, again: bool) -> None:
    """A kit that is left saves and releases what its loops hold, and leaves no thread or asyncio task behind."""

    async def main() -> None:
        async with eventkit.connect_async(url) as kit:
            queue, stream = kit.queue("q"), kit.stream("t")
            published = 0

            def running() -> int:
                return threading.active_count() + len(asyncio.all_tasks())

            before = running()

            async def leave(leaving: asyncio.Event) -> None:
                nonlocal published
                await queue.enqueue_many([1, 2, 3])
                published = (await stream.publish_many([1, 2]))[0]
                async with eventkit.connect_async(url) as leaving_kit:
                    tasks, events = leaving_kit.queue("q").work("w", batch=3), leaving_kit.stream("t").subscribe("c")
                    await queue.ack(await anext(tasks))
                    await anext(events)
                    await anext(events)
                    async with leaving_kit.transaction():
                        pass  # The pool keeps one connection for the next transaction.
                    leaving.set()

            async def check() -> None:
                assert await stream.offset("c") == published
                await stream.save_offset("c", published + 1)
                rest = await queue.claim("w2", 3)
                assert [(task.payload, task.attempt) for task in rest] == [(2, 1), (3, 1)]
                assert len(await queue.ack_many(rest)) == 2
                while running() > before:
                    await asyncio.sleep(0.001)

            await cancel_at_each_await(leave, again, check)

    _run(main())


@proves("G4")
def test_a_transaction_cancelled_at_any_step_is_all_or_nothing(url: str) -> None:
    """A transaction cancelled while it begins, writes or commits blocks no other and happened whole or not at all."""

    async def main() -> None:
        async with eventkit.connect_async(with_options(url, busy_timeout=20)) as kit:
            stream = kit.stream("t")

            async def write(number: int) -> None:
                async with kit.transaction() as tx:
                    await stream.publish(number, tx=tx)
                    await stream.publish(number, tx=tx)

            whole = 0.0
            for number in range(200):
                began = monotonic()
                task = asyncio.create_task(write(number))
                if number % 10 == 0:  # Measure how long one takes here, to cancel the others within that time.
                    await task
                    whole = monotonic() - began
                cancel_at = began + random.uniform(0, 1.5 * whole)
                while monotonic() < cancel_at:
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await kit.stream("free").publish(number)
            payloads = [event.payload for event in await stream.read()]
            assert payloads[::2] == payloads[1::2]
            assert 0 < len(set(payloads)) < 200

    _run(main())


@proves("W2", "Q17")
def test_a_cancelled_worker_gives_back_what_it_held(url: str) -> None:
    """The task being handled and those claimed with it become claimable by other workers at once."""

    async def main() -> None:
        async with eventkit.connect_async(url) as kit:
            queue = kit.queue("q")
            await queue.enqueue_many([1, 2, 3])
            busy = asyncio.Event()

            async def work() -> None:
                async with queue.work("w", batch=3) as tasks:
                    async for task in tasks:
                        async with queue.handling(task):
                            busy.set()
                            await asyncio.sleep(PATIENCE)

            worker = asyncio.create_task(work())
            await busy.wait()
            worker.cancel()
            with pytest.raises(asyncio.CancelledError):
                await worker
            again = await queue.claim("w2", 3)
            assert [(task.payload, task.attempt) for task in again] == [(1, 1), (2, 1), (3, 1)]

    _run(main())


@proves("W2")
def test_waiting_threads_do_not_hold_up_the_loop(url: str) -> None:
    """The event loop keeps running while a hundred calls wait."""

    async def main() -> None:
        async with eventkit.connect_async(url) as kit:
            waiting = [asyncio.create_task(kit.queue("q").claim("w", wait=PATIENCE)) for _ in range(100)]
            threads = threading.active_count()
            for _ in range(50):
                await asyncio.sleep(0.001)
            assert threading.active_count() <= threads + 1
            assert not any(task.done() for task in waiting)
            await kit.queue("q").enqueue_many(list(range(100)))
            claimed = await asyncio.gather(*waiting)
            assert sorted(task.payload for [task] in claimed) == list(range(100))

    _run(main())


@proves("G4")
def test_a_cancelled_task_takes_its_session_with_it(url: str, engine_url: str, flavour: str) -> None:
    """The transaction is rolled back whichever call was cancelled, and the engine serves the next one."""
    if flavour == "sync":
        pytest.skip("a session that blocks has no tasks")

    async def main() -> None:
        engine = create_async_engine(engine_url)
        async with eventkit.connect_async(url) as kit:
            for pause in (0.0, 0.001, 0.05):
                inside = asyncio.Event()

                async def work(inside: asyncio.Event = inside) -> None:
                    async with AsyncSession(engine) as session:
                        inside.set()
                        while True:
                            await kit.stream("t").publish(1, tx=session)

                task = asyncio.create_task(work())
                await inside.wait()
                await asyncio.sleep(pause)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert await kit.stream("t").read() == []
                async with AsyncSession(engine) as session:
                    await kit.stream("other").publish(pause, tx=session)
                    await session.commit()
            assert [event.payload for event in await kit.stream("other").read()] == [0.0, 0.001, 0.05]
        await engine.dispose()

    _run(main())


CHANNEL = "eventkit:cancelled"


def _notified(kit: EventKit) -> list[Any]:
    """Return the payloads sent on the channel so far."""
    end = kit.channel(CHANNEL).notify("end")
    with kit.channel(CHANNEL).listen(start="earliest") as heard:
        notified = []
        while (notification := next(heard)).id < end:
            notified.append(notification.payload)
    return [payload for payload in notified if payload != "end"]


@proves("Q9", "W1")
def test_the_worker_of_a_task_is_notified_of_its_cancellation(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    with kit.channel(CHANNEL).listen() as heard:
        for key in (None, "key"):
            id = queue.enqueue(1, key=key).id
            queue.claim("worker")
            waiting = asleep(heard.__next__)
            assert queue.cancel(id, running=True) is True
            assert waiting.result(SOON).payload == {"queue": "jobs", "id": id}


@proves("Q9", "G4")
def test_the_notification_of_a_cancellation_is_part_of_the_transaction(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    id = queue.enqueue(1).id
    queue.claim("worker")
    with rolled_back(kit) as tx:
        assert queue.cancel(id, running=True, tx=tx) is True
    assert _notified(kit) == []
    with kit.transaction() as tx:
        assert queue.cancel(id, running=True, tx=tx) is True
    assert _notified(kit) == [{"queue": "jobs", "id": id}]


@proves("Q9")
def test_no_notification_is_sent_for_a_task_that_does_not_run(kit: EventKit) -> None:
    """No notification is sent for a task that waits, whose lease has lapsed, that is dead, or that keeps running."""
    queue = kit.queue("jobs")
    ready, later, lapsed = queue.enqueue(1).id, queue.enqueue(2, delay=60).id, queue.enqueue(3, priority=1).id
    queue.claim("worker", lease=5)
    advance(kit, 5)
    dead = queue.enqueue(4, priority=2).id
    [task] = queue.claim("worker")
    queue.fail(task, "broken")
    running = queue.enqueue(5, priority=3).id
    queue.claim("worker")
    assert [queue.cancel(id, True) for id in (ready, later, lapsed, dead)] == [True, True, True, False]
    assert queue.cancel(running) is False
    assert _notified(kit) == []


@proves("Q9", "P2")
def test_the_sql_function_notifies_the_worker_too(kit: EventKit, caller: Caller) -> None:
    queue = kit.queue("jobs")
    queue.enqueue_many([1, 2])
    [task] = queue.claim("worker")
    waiting = queue.peek()[0].id
    assert caller.call("cancel", "jobs", waiting, True)
    assert caller.call("cancel", "jobs", task.id, True)
    assert _notified(kit) == [{"queue": "jobs", "id": task.id}]
