"""Everything that waits, for asyncio.  `loops` is the same for threads, and says why."""

import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from .codec import Codec
from .errors import PASSING, Closed, EventkitError, QueueFull, Unavailable
from .handling import first_beat, logger, outcome, report
from .messages import AsyncMessages
from .operations import Operation, Origin, Probe, channel, finish, stream
from .protocols import AsyncConnection
from .records import Event, Notification, Task
from .rota import Rota
from .telemetry import tracing

M = TypeVar("M")
T = TypeVar("T")

_LINGER = 0.1
"""Seconds without an event after which progress is saved."""


class AsyncLoops:
    """The loops of one kit."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._open: WeakKeyDictionary[AsyncGenerator[Any], Callable[[], Awaitable[None]]] = WeakKeyDictionary()

    def subscribe(
        self,
        topic: str,
        codec: Codec,
        consumer: str | None,
        origin: Operation[Any] | int,
        *,
        batch: int,
        every_n: int,
        every_s: float,
        skip: bool,
    ) -> AsyncMessages[Event[Any]]:
        """The events after *origin*, and then those to come."""
        connection = self._connection
        after = saved = -1
        seen: frozenset[int] = frozenset()
        handled: Event[Any] | None = None
        automatic = consumer is not None and (every_n > 0 or every_s > 0)
        window = every_n if automatic and every_n else sys.maxsize
        save_at = monotonic() + every_s if automatic and every_s else float("inf")

        async def attach() -> None:
            nonlocal after, saved, seen
            if after < 0:
                after, seen = await self._locate(origin)
                saved = after

        def unsaved() -> int:
            """The offset that is to be saved; 0 for none."""
            return handled.offset if automatic and handled is not None and handled.offset > saved else 0

        async def save() -> None:
            nonlocal saved, save_at
            if every_s:
                save_at = monotonic() + every_s
            if consumer is not None and (offset := unsaved()):
                try:
                    await connection.execute(stream.SaveOffset(topic, consumer, offset))
                    saved = offset
                except PASSING:
                    pass  # The next occasion will do: what is not saved is only delivered again.

        async def settle() -> None:
            nonlocal save_at
            await save()
            save_at = 0.0

        async def events() -> AsyncGenerator[Event[Any]]:
            nonlocal after, handled
            left = window
            try:
                await attach()
                while not connection.closing:
                    wanted = min(batch, left)
                    try:
                        found = await connection.execute(stream.ReadEvents(topic, after, wanted, codec, skip))
                    except PASSING:
                        continue
                    for event in [event for event in found if event.offset not in seen] if seen else found:
                        yield event
                        # A million times a second, so: no more than this for each.
                        handled = event
                        if monotonic() >= save_at:
                            await save()
                            if connection.closing:
                                return
                    if found:
                        after = found[-1].offset
                        left -= len(found)
                    if not left:
                        await save()
                        left = window
                    if len(found) < wanted:
                        # What comes at once is waited for, or a busy stream would cost a write for each few events.
                        if unsaved() and await connection.sleep(stream.EventsAhead(topic, after), _LINGER):
                            continue
                        await save()
                        if connection.closing or not await connection.sleep(stream.EventsAhead(topic, after)):
                            return
            except Closed:
                return
            finally:
                if not connection.closing:
                    await save()

        return self._track(AsyncMessages(events(), settle, attach))

    def work(self, rota: Rota, probe: Probe) -> AsyncMessages[Task[Any]]:
        """The tasks of the queues of *rota*, claimed as they come."""
        connection = self._connection
        claimed: deque[Task[Any]] = deque()
        claiming = asyncio.Lock()

        async def attach() -> None:
            """There is nothing to attach: tasks wait for their worker."""

        async def settle() -> None:
            async with claiming:
                held = [(task.id, task.token) for task in claimed]
                claimed.clear()
                if held:
                    await connection.execute(finish.ReleaseMany(held))

        async def tasks() -> AsyncGenerator[Task[Any]]:
            try:
                while True:
                    async with claiming:
                        if connection.closing:
                            return
                        try:
                            for claim in rota:
                                claimed.extend(await connection.execute(claim))
                                rota.note(claim, len(claimed))
                                if claimed:
                                    break
                        except PASSING:
                            continue
                    if not claimed and not await connection.sleep(probe):
                        return
                    while claimed:
                        yield claimed.popleft()
            except Closed:
                return
            finally:
                if not connection.closing:
                    await settle()

        return self._track(AsyncMessages(tasks(), settle, attach))

    def listen(
        self, channels: tuple[str, ...], codec: Codec, origin: Operation[Any] | int
    ) -> AsyncMessages[Notification[Any]]:
        """The notifications of some channels that are committed from now on."""
        connection = self._connection
        after = -1
        seen: frozenset[int] = frozenset()

        async def attach() -> None:
            nonlocal after, seen
            if after < 0:
                after, seen = await self._locate(origin)

        async def settle() -> None:
            """Listeners keep nothing."""

        async def notifications() -> AsyncGenerator[Notification[Any]]:
            nonlocal after
            try:
                await attach()
                while not connection.closing:
                    try:
                        found = await connection.execute(channel.ReadNotifications(channels, after, 1000, codec))
                    except PASSING:
                        continue
                    for notification in found:
                        after = notification.id
                        if after not in seen:
                            yield notification
                        if connection.closing:
                            return
                    if not found and not await connection.sleep(channel.NotificationsAhead(channels, after)):
                        return
            except Closed:
                return

        return self._track(AsyncMessages(notifications(), settle, attach))

    async def attempt(self, operation: Operation[T], probe: Probe, wait: float) -> T:
        """The answer, asked for again whenever it may come to something, for *wait* seconds."""
        deadline = monotonic() + wait
        while True:
            answer = await self._connection.execute(operation)
            left = deadline - monotonic()
            if answer or left <= 0 or not await self._connection.sleep(probe, left):
                return answer

    async def enqueue(self, operation: Operation[Any], probe: Probe, wait: float) -> Any:
        """The enqueue, tried again whenever there may be room, for *wait* seconds."""
        deadline = monotonic() + wait
        while True:
            try:
                return await self._connection.execute(operation)
            except QueueFull:
                if not await self._connection.sleep(probe, max(0.0, deadline - monotonic())):
                    raise

    async def repeat(self, work: Callable[[], Any], probe: Probe) -> None:
        """Do *work* whenever *probe* is ready, until the kit is closed."""
        connection = self._connection
        await connection.execute(probe)  # A kit that is closed says so; from here on, closing it is the end.
        try:
            while not connection.closing:
                try:
                    await work()
                except PASSING:
                    continue
                if not await connection.sleep(probe):
                    return
        except Closed:
            return

    def handling(self, task: Task[Any], done: Operation[bool] | None = None) -> "AsyncHandling":
        """Around the work on *task*; *done* is to take the place of the ack."""
        return AsyncHandling(self._connection, task, done)

    async def close(self) -> None:
        """Settle every open iterator."""
        for settle in list(self._open.values()):
            await settle()

    async def _locate(self, origin: Operation[Any] | int) -> Origin:
        place = await self._connection.execute(origin) if isinstance(origin, Operation) else origin
        return place if isinstance(place, Origin) else Origin(place)

    def _track(self, messages: AsyncMessages[M]) -> AsyncMessages[M]:
        # By the generator, because that is all an ``async for`` statement keeps.
        self._open[aiter(messages)] = messages.settle
        return messages


class AsyncHandling:
    """Keeps a task's lease while the body runs; then acks it, or does what the exception asks for."""

    def __init__(self, connection: AsyncConnection, task: Task[Any], done: Operation[bool] | None) -> None:
        self._connection = connection
        self._task = task
        self._done = done
        self._tracing = tracing(task)
        self._beating: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Task[Any]:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(first_beat(self._task, time.time()), self._start_beating)
        self._tracing.__enter__()
        return self._task

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._tracing.__exit__(None, None, None)
        try:
            while True:
                try:
                    still_ours = await self._connection.execute(outcome(self._task, error, self._done))
                    break
                except PASSING:
                    continue  # The work is done; losing the answer would have it done twice.
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._beating is not None:
                self._beating.cancel()
        report(self._task, error, still_ours)
        return isinstance(error, Exception)

    def _start_beating(self) -> None:
        self._beating = asyncio.ensure_future(self._beat())

    async def _beat(self) -> None:
        task = self._task
        while True:
            again = task.lease_ms / 3000
            try:
                if not await self._connection.execute(finish.Extend(task.id, task.token, task.lease_ms)):
                    logger.warning("the lease of task %s of queue %r was lost while it ran", task.id, task.queue)
                    return
            except Unavailable:
                again = min(1.0, again)
            except EventkitError:
                return
            await asyncio.sleep(again)
