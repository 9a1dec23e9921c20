"""Delivering what is in outboxes, for asyncio.  `deliveries` is the same for threads."""

import asyncio
import inspect
from time import monotonic
from typing import Any

from .delivery import Round, age_when_claimed, message_of, when_delivered
from .errors import PASSING
from .feeds import Tasks
from .loops_async import AsyncLoops
from .messages import AsyncMessages
from .protocols import AsyncConnection
from .records import Message, Task


class AsyncDeliveries:
    """The workers of a kit's outboxes.  What they have begun is finished before the kit is closed."""

    awaits = True
    """Whether a callable may be a coroutine function."""

    def __init__(self, connection: AsyncConnection, loops: AsyncLoops) -> None:
        self._connection = connection
        self._loops = loops
        self._changed = asyncio.Condition()
        self._running: dict[AsyncMessages[Task[Any]], asyncio.Task[Any] | None] = {}

    async def run(self, round: Round) -> None:
        """Deliver until the outbox is stopped or the kit is closed."""
        while not self._connection.closing:
            try:
                await self._connection.execute(round.opening)
                break
            except PASSING:
                continue  # As for every loop, what passes by itself is no reason to end.
        tasks = self._loops.iterate(Tasks(round.rota, round.lookout))
        self._running[tasks] = asyncio.current_task()
        try:
            async for task in tasks:
                await self._deliver(round, task)
                if self._connection.closing or round.lookout.stopped.is_set():
                    return
        finally:
            try:
                await tasks.aclose()
            finally:
                del self._running[tasks]
                async with self._changed:
                    self._changed.notify_all()

    def rouse(self) -> None:
        """Let everybody who sleeps look whether to go on."""
        self._connection.rouse()

    async def close(self) -> None:
        """Give back what was not begun, and wait for what was; not for the delivery that asks for it."""
        async with self._changed:
            for tasks in list(self._running):
                await tasks.settle()
            me = asyncio.current_task()
            await self._changed.wait_for(lambda: all(task is me for task in self._running.values()))

    async def _deliver(self, round: Round, task: Task[Any]) -> None:
        began = monotonic()
        delivered = cancelled = False
        try:
            async with self._loops.handling(task, when_delivered(task, round.ordered)):
                cancelled = await _call(round, message_of(task))
                delivered = True
        finally:
            round.tally.count(delivered, age_when_claimed(task) + monotonic() - began)
        if cancelled:
            raise asyncio.CancelledError


async def _call(round: Round, message: Message[Any]) -> bool:
    """Deliver the message; whether we were cancelled meanwhile.  A callable that blocks has a thread to itself.

    A thread cannot be stopped, so what it does counts: a message that is on its way is not given to somebody else.
    """
    cancelled = False
    if inspect.iscoroutinefunction(round.deliver):
        await round.deliver(message)
        return cancelled
    work = asyncio.ensure_future(asyncio.to_thread(round.deliver, message))
    try:
        answer = await asyncio.shield(work)
    except asyncio.CancelledError:
        cancelled = True
        await asyncio.wait({work})
        answer = work.result()
    if inspect.isawaitable(answer):
        await answer
    return cancelled
