"""Calling the subscribers and listeners of an application."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from ..app.declarations import ListenerDeclaration, SubscriberDeclaration, check_payload
from ..errors import LeaseLost
from ..handling import Permanent, pause
from ..values import Event
from .lifecycle import Shared

logger = logging.getLogger("eventkit.worker")


class Stopped(Exception):
    """Raised when an event could not be handled, and the subscriber must not continue without it."""


class Subscriptions:
    """The consumers of streams, the members of groups, and the listeners of channels.

    One worker at a time follows a consumer, and holds its name; the others wait as standbys.  Each worker is a member
    of a group.  Listeners receive all notifications in each worker.
    """

    def __init__(self, shared: Shared) -> None:
        self._kit = shared.kit
        self._threads = shared.threads
        self._recovery = shared.recovery
        self._metrics = shared.metrics
        self._following: set[asyncio.Task[Any]] = set()
        self._handling: set[asyncio.Task[Any]] = set()
        self._stopping = False

    async def follow(self, declaration: SubscriberDeclaration) -> None:
        """Call a subscriber with the events of its stream, while this worker holds the name or a partition."""
        me = self._joined()
        stream = self._kit.stream(declaration.stream, type=declaration.type)
        join, handle = (stream.join, self._take_part) if declaration.in_group else (stream.subscribe, self._handle)
        while not self._stopping:
            try:
                async with join(declaration.consumer) as events:
                    async for event in events:
                        self._handling.add(me)
                        try:
                            await handle(declaration, event, events)
                        finally:
                            self._handling.discard(me)
                        if self._stopping:
                            return
                return
            except LeaseLost as lost:
                logger.warning("%s", lost)
            except Stopped:
                return

    async def listen(self, declaration: ListenerDeclaration, channel: str, attached: asyncio.Event) -> None:
        """Call a listener with the notifications of one of its channels that are sent after *attached* is set."""
        me = self._joined()
        function = declaration.function
        async with await self._kit.channel(channel, type=declaration.type).listen() as heard:
            attached.set()
            async for notification in heard:
                outcome = "failed"
                self._handling.add(me)
                try:
                    check_payload(declaration, notification)
                    await self._threads.call(function, notification)
                    outcome = "handled"
                except Exception:
                    logger.exception("listener %s failed on notification %s", function.__name__, notification.id)
                finally:
                    self._handling.discard(me)
                    self._metrics.notifications.of(channel, outcome).value += 1
                if self._stopping:
                    return

    def _joined(self) -> "asyncio.Task[Any]":
        me = asyncio.current_task()
        assert me is not None
        self._following.add(me)
        me.add_done_callback(self._following.discard)
        return me

    async def stop(self, seconds: float) -> None:
        """Wait *seconds* for handlers in progress; cancel everything else now."""
        self._stopping = True
        for task in self._following - self._handling:
            task.cancel()
        if self._handling:
            await asyncio.wait(self._handling, timeout=seconds)
        for task in list(self._following):
            task.cancel()

    async def _handle(self, declaration: SubscriberDeclaration, event: Event[Any], events: Any) -> None:
        """Call the function until it succeeds; in the end skip the event, or stop the consumer."""
        attempt = 1
        while (failure := await self._attempt(declaration, event, attempt)) is not None:
            if isinstance(failure, Permanent) or attempt >= declaration.max_attempts:
                break
            await asyncio.sleep((pause(failure, attempt, declaration.backoff) or 0) / 1000)
            attempt += 1
        else:
            return
        if declaration.then == "stop":
            what = f"{declaration.function.__name__} failed on event {event.offset} of {declaration.stream!r}"
            logger.critical("%s and is not retried: consumer %r stops there", what, declaration.consumer)
            raise Stopped
        save = partial(self._kit.stream(declaration.stream).save_offset, declaration.consumer, event.offset)
        await self._skip(declaration, event, failure, save)

    async def _take_part(self, declaration: SubscriberDeclaration, event: Event[Any], member: Any) -> None:
        """Call the function once; if it fails, park the event, and in the end skip it, or stop its partition."""
        failure = await self._attempt(declaration, event, member.attempt)
        through = self._recovery.through
        if failure is None:
            if self._stopping:  # The loop does not ask for the next event, after which this one would count as handled.
                await through(partial(member.save, event))
        elif not (isinstance(failure, Permanent) or member.attempt >= declaration.max_attempts):
            seconds = (pause(failure, member.attempt, declaration.backoff) or 0) / 1000
            await through(partial(member.retry, event, delay=seconds))
        elif declaration.then == "dead":
            await self._skip(declaration, event, failure, partial(member.save, event))
        else:
            logger.critical(
                "%s failed on event %s of %r and is not retried: its partition of group %r stops there until the group "
                "is resumed",
                declaration.function.__name__,
                event.offset,
                declaration.stream,
                declaration.consumer,
            )
            await through(member.hold, event)

    async def _attempt(self, declaration: SubscriberDeclaration, event: Event[Any], attempt: int) -> Exception | None:
        """Call the function with an event; return what it raised."""
        outcome, failure = "handled", None
        try:
            check_payload(declaration, event)
            await self._threads.call(declaration.function, event)
        except Exception as error:
            outcome, failure = "failed", error
            name = declaration.function.__name__
            logger.warning(
                "%s failed on event %s of %r in attempt %s",
                name,
                event.offset,
                declaration.stream,
                attempt,
                exc_info=failure,
            )
        self._metrics.events.of(declaration.stream, declaration.consumer, outcome).value += 1
        return failure

    async def _skip(
        self, declaration: SubscriberDeclaration, event: Event[Any], error: Exception, save: Callable[..., Any]
    ) -> None:
        """Publish the event to the stream *dead_letters*, and *save* the offset after it: both or neither."""
        letters = self._kit.stream(declaration.dead_letters)

        async def both() -> None:
            async with self._kit.transaction() as tx:
                await letters.publish_many([declaration.dead_letter(event, error)], tx=tx)
                await save(tx=tx)

        await self._recovery.through(both)
        self._metrics.events.of(declaration.stream, declaration.consumer, "skipped").value += 1
