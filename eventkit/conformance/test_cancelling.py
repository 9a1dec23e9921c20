"""Tasks of asyncio that are cancelled while they wait or write (W2, Q2, G4)."""

import asyncio
import random
import threading
from time import monotonic
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import eventkit

from .clauses import proves
from .processes import PATIENCE
from .urls import with_options


def _run(main: Any) -> None:
    asyncio.run(asyncio.wait_for(main, 2 * PATIENCE))


@proves("W2")
def test_a_hundred_waiters_are_cancelled_at_once(url: str) -> None:
    """They all end, as cancelled; who waits on is woken as ever, and nothing stays behind."""

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


@proves("W2", "Q2")
@pytest.mark.parametrize("pause", [0.0, 0.0005, 0.002, 0.01])
def test_a_cancelled_claim_loses_no_task(url: str, pause: float) -> None:
    """What a cancelled claim had got just then is given back, with the attempt: somebody else has it at once."""

    async def main() -> None:
        async with eventkit.connect_async(url) as kit:
            queue = kit.queue("q")
            claims = [asyncio.create_task(queue.claim("w", 1, wait=PATIENCE)) for _ in range(50)]
            await asyncio.sleep(0.05)
            await queue.enqueue_many(list(range(50)))
            await asyncio.sleep(pause)
            for claim in claims:
                claim.cancel()
            ends = await asyncio.gather(*claims, return_exceptions=True)
            got = [task.payload for end in ends if isinstance(end, list) for task in end]
            assert all(isinstance(end, asyncio.CancelledError | list) for end in ends)
            while len(got) < 50:
                rest = await queue.claim("w2", 50, wait=PATIENCE)
                assert rest
                assert {task.attempt for task in rest} == {1}
                got += [task.payload for task in rest]
            assert sorted(got) == list(range(50))

    _run(main())


@proves("Q2")
def test_a_claim_cancelled_at_any_step_loses_no_task(url: str) -> None:
    """Whether it has not begun, is under way or has just been answered: the task is returned, or anybody's at once."""

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
    """It is held by the handle, or anybody's at once."""

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


@proves("K1", "Q17")
@pytest.mark.parametrize("what", ["lock", "task"])
def test_leaving_is_not_cut_short_by_a_cancellation(url: str, what: str) -> None:
    """A lock is released and a task acked before the cancellation is raised, wherever in the exit it arrives."""

    async def main() -> None:
        async with eventkit.connect_async(url) as kit:
            queue = kit.queue("q")

            async def once(leaving: asyncio.Event) -> None:
                if what == "lock":
                    async with kit.lock("l"):
                        leaving.set()
                else:
                    [task] = await queue.claim("w")
                    async with queue.handling(task):
                        leaving.set()

            cancelled = 0
            for number in range(100):
                if what == "task":
                    await queue.enqueue(number)
                work = asyncio.create_task(once(leaving := asyncio.Event()))
                await leaving.wait()
                for _ in range(random.randrange(20)):
                    await asyncio.sleep(0)
                work.cancel()
                [end] = await asyncio.gather(work, return_exceptions=True)
                cancelled += isinstance(end, asyncio.CancelledError)
                if what == "lock":
                    lock = kit.lock("l")
                    assert await lock.acquire()
                    await lock.release()
                else:
                    assert await queue.size() == 0
            assert cancelled

    _run(main())


@proves("G4")
def test_a_transaction_cancelled_at_any_step_is_all_or_nothing(url: str) -> None:
    """Cancelled while it begins, writes or commits, it holds nobody up afterwards and has happened whole, or not."""

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
                if number % 10 == 0:  # How long one takes here and now, to cancel the others within that time.
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
    """A task that is handled when its worker is cancelled, and those claimed with it, go to others at once."""

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
    """While a hundred calls wait, the event loop goes on turning."""

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
    """Wherever the call was: nothing of the transaction is left, and the engine serves the next one."""
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
