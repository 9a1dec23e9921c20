"""The caller's own transaction: ``tx=`` (G4), here that of `kit.transaction`."""

import asyncio
import threading
import time
from typing import Any

import pytest

import eventkit
from eventkit import EventKit
from eventkit.kit import backend_of

from .clauses import proves
from .flavours import Blocking, unwrapped
from .processes import PATIENCE, background
from .urls import with_options
from .writes import WRITES, prepare, sent, visible


class _Undo(Exception):
    """An error that rolls back the transaction."""


def _sql(kit: Any, tx: Any, statement: str) -> None:
    """Execute *statement* on the connection of `kit.transaction`."""
    if not isinstance(kit, Blocking):
        tx.execute(statement)
        return

    async def execute() -> None:
        await unwrapped(tx).execute(statement)

    kit._loop.run(execute())


@proves("G4")
def test_a_call_is_part_of_the_transaction(kit: EventKit) -> None:
    """An exception or a rollback to a savepoint undoes it; others see it from the commit on, not before."""
    other = kit.stream("other")
    for name, write in WRITES.items():
        task = prepare(kit, name)
        before = visible(kit)

        with pytest.raises(_Undo), kit.transaction() as tx:  # noqa: PT012
            assert write(kit, task, tx) is not False, name
            raise _Undo
        assert (visible(kit), sent(kit)) == (before, []), name

        with kit.transaction() as tx:
            other.publish(f"before {name}", tx=tx)
            _sql(kit, tx, "SAVEPOINT one")
            assert write(kit, task, tx) is not False, name
            _sql(kit, tx, "ROLLBACK TO SAVEPOINT one")
            _sql(kit, tx, "RELEASE SAVEPOINT one")
            other.publish(f"after {name}", tx=tx)
        assert (visible(kit), sent(kit)) == (before, []), name
        assert [event.payload for event in other.read()][-2:] == [f"before {name}", f"after {name}"]

        with kit.transaction() as tx:
            assert write(kit, task, tx) is not False, name
            assert visible(kit) == before, name
        assert (visible(kit), sent(kit)) != (before, []), name


@proves("G4")
def test_a_failing_call_leaves_the_transaction_as_it_was(kit: EventKit) -> None:
    """A call in a transaction happens whole or not at all, and the transaction can go on."""
    queue = kit.queue("q")
    queue.configure(max_size=2)
    with kit.transaction() as tx:
        queue.enqueue(1, tx=tx)
        with pytest.raises(eventkit.QueueFull):
            queue.enqueue_many([2, 3], tx=tx)
        with pytest.raises(ValueError, match="nan"):
            queue.enqueue(float("nan"), tx=tx)
        queue.enqueue(4, tx=tx)
    assert [info.payload for info in queue.tasks()] == [1, 4]


@proves("G4", "W2")
def test_no_waiter_wakes_before_the_commit(kit: EventKit) -> None:
    """Waiters sleep through an open transaction and a rolled-back one, and wake at the commit."""
    kit.queue("full").configure(max_size=1)
    kit.queue("full").enqueue("in the way")
    events, tasks, notifications = kit.stream("t").subscribe(), kit.queue("q").work("w"), kit.channel("c").listen()
    waiting = [
        background(lambda: next(events).payload),
        background(lambda: next(tasks).payload),
        background(lambda: next(notifications).payload),
        background(lambda: kit.queue("claimed").claim("w", wait=PATIENCE)[0].payload),
        background(lambda: kit.queue("full").enqueue("waited", wait=PATIENCE).created),
    ]

    def write(payload: str, tx: Any) -> None:
        kit.stream("t").publish(payload, tx=tx)
        kit.queue("q").enqueue(payload, tx=tx)
        kit.channel("c").notify(payload, tx=tx)
        kit.queue("claimed").enqueue(payload, tx=tx)
        kit.queue("full").receive(tx=tx)
        time.sleep(0.3)
        assert not any(future.done() for future in waiting)

    with pytest.raises(_Undo), kit.transaction() as tx:  # noqa: PT012
        write("undone", tx)
        raise _Undo
    time.sleep(0.3)
    assert not any(future.done() for future in waiting)
    with kit.transaction() as tx:
        write("done", tx)
    assert [future.result(PATIENCE) for future in waiting] == ["done", "done", "done", "done", True]


@proves("G4")
def test_forgetting_tx_never_waits_for_oneself(url: str, flavour: str) -> None:
    """A call without ``tx=`` inside the transaction succeeds or is refused at once with a reason; it never waits.

    A backend that declares ``concurrent_writers`` refuses none.
    """
    url = with_options(url, busy_timeout=50)
    concurrent = "concurrent_writers" in backend_of(url).capabilities

    def refusal(error: eventkit.Busy) -> None:
        assert "pass tx=" in str(error)
        assert not concurrent

    def blocking() -> None:
        with eventkit.connect(url) as kit, kit.transaction() as tx:
            kit.stream("t").publish("in", tx=tx)
            for forgetful in (
                lambda: kit.stream("t").publish("out"),
                lambda: kit.queue("q").enqueue_many([1, 2]),
                lambda: kit.transaction().__enter__(),
            ):
                try:
                    forgetful()
                except eventkit.Busy as error:
                    refusal(error)

    async def awaited() -> None:
        async with eventkit.connect_async(url) as kit, kit.transaction() as tx:
            await kit.stream("t").publish("in", tx=tx)
            for forgetful in (
                lambda: kit.stream("t").publish("out"),
                lambda: kit.queue("q").enqueue_many([1, 2]),
                lambda: kit.transaction().__aenter__(),
            ):
                try:
                    await forgetful()
                except eventkit.Busy as error:
                    refusal(error)

    began = time.monotonic()
    blocking() if flavour == "sync" else asyncio.run(awaited())
    assert time.monotonic() - began < 20
    with eventkit.connect(url) as kit:
        assert "in" in [event.payload for event in kit.stream("t").read()]


@proves("G4", "G12")
def test_others_wait_for_the_transaction_and_succeed(kit: EventKit) -> None:
    """Threads and tasks that write meanwhile, in transactions of their own too, succeed after it."""
    begun = threading.Event()

    def in_a_transaction(number: int) -> None:
        with kit.transaction() as tx:
            kit.stream("t").publish(number, tx=tx)

    def alone(number: int) -> None:
        kit.stream("t").publish(number)

    def waits(number: int) -> None:
        begun.wait()
        (alone if number % 2 else in_a_transaction)(number)

    others = [background(waits, number) for number in range(10)]
    with kit.transaction() as tx:
        kit.stream("t").publish(-1, tx=tx)
        begun.set()
        time.sleep(0.5)
        kit.stream("t").publish(-2, tx=tx)
    for future in others:
        future.result(PATIENCE)
    assert sorted(event.payload for event in kit.stream("t").read()) == [-2, -1, *range(10)]


@proves("G4")
def test_a_cancelled_task_rolls_back(url: str) -> None:
    """A task cancelled inside its transaction leaves no writes, and the kit is free for others."""

    async def main() -> None:
        async with eventkit.connect_async(url) as kit:
            for pause in (0.0, 0.001, 0.05):
                inside = asyncio.Event()

                async def work(inside: asyncio.Event = inside) -> None:
                    async with kit.transaction() as tx:
                        inside.set()
                        while True:
                            await kit.stream("t").publish(1, tx=tx)

                task = asyncio.create_task(work())
                await inside.wait()
                await asyncio.sleep(pause)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert await kit.stream("t").read() == []
                await kit.stream("other").publish(2)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


@proves("G4", "G13")
def test_what_is_no_transaction_is_refused(kit: EventKit) -> None:
    """Any other ``tx=`` is a `TypeError` that names the accepted kinds, and nothing is written."""
    for nothing in (object(), "tx", 5, True, (), kit.stream("t")):
        with pytest.raises(TypeError, match=r"tx= is .*kit\.transaction\(\)"):
            kit.stream("t").publish(1, tx=nothing)
    assert kit.stream("t").head() == 0


@proves("G4")
def test_each_flavour_takes_its_own_transactions(url: str) -> None:
    """A sync kit refuses the transaction of an async one, and the other way round, with a `TypeError`."""

    async def main() -> None:
        with eventkit.connect(url) as sync:
            async with eventkit.connect_async(url) as kit:
                with sync.transaction() as tx, pytest.raises(TypeError, match="tx= is"):
                    await kit.stream("t").publish(1, tx=tx)
                async with kit.transaction() as tx:
                    with pytest.raises(TypeError, match="tx= is"):
                        sync.stream("t").publish(1, tx=tx)
                assert await kit.stream("t").head() == 0

    asyncio.run(main())
