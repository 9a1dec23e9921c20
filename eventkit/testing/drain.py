"""`drain`: run all due work in the test's process."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ..app.app import Application
from ..app.declarations import (
    ListenerDeclaration,
    OutboxDeclaration,
    Refused,
    SubscriberDeclaration,
    TaskDeclaration,
    check_payload,
)
from ..app.task import AsyncTaskContext, TaskContext, at_once, is_async, now
from ..codec import Codec, encode_json
from ..errors import TimedOut
from ..handling import Permanent, Retry, Snooze, failure, outcome
from ..operations.channel import ReadNotifications
from ..operations.claim import Claim, fresh_token
from ..operations.coordination import AckWithResult, OpenOutbox, SaveTaskResult
from ..outbox import message_of
from ..values import Event, Message, Notification, Task

AT_MOST = 10_000
"""The number of runs after which a drain fails, because a task enqueues itself again and again."""

AT_ONCE = 100
"""The number of tasks, events and notifications that are fetched together."""

_heard: WeakKeyDictionary[Any, dict[ListenerDeclaration, int]] = WeakKeyDictionary()
"""The last notification that each listener was called with, on each kit."""


class Ran(NamedTuple):
    """One call of a function for a *message*: what it returned, and what it raised, if it did."""

    name: str
    message: Task[Any] | Event[Any] | Notification[Any] | Message[Any]
    result: Any
    error: BaseException | None


class _Drain:
    def __init__(self, app: Application, kit: Any, raising: bool) -> None:
        self.ran: list[Ran] = []
        self._app = app
        self._kit = kit
        self._raising = raising
        self._is_async = is_async(kit)
        self._stopped: set[SubscriberDeclaration] = set()

    async def run(self) -> list[Ran]:
        """Run rounds, until one finds nothing to do."""
        await now(self._app.install(self._kit))
        before = -1
        while len(self.ran) > before:
            before = len(self.ran)
            await now(self._kit.schedules.tick())
            for name in {task.queue: None for task in self._app.tasks.values()}:
                await self._queue(self._kit.queue(name))
            for subscriber in self._app.subscribers:
                await (self._member(subscriber) if subscriber.in_group else self._subscriber(subscriber))
            for listener in self._app.listeners:
                await self._listener(listener)
            for outbox in self._app.outboxes:
                await self._outbox(outbox)
        return self.ran

    async def _queue(self, queue: Any) -> None:
        """Run the due tasks of a queue; release those that were claimed and not run."""
        tasks: list[Task[Any]] = await now(queue.claim("drain", AT_ONCE))
        try:
            while tasks:
                task = tasks[0]
                try:
                    declaration = self._app.resolve(task.payload)
                    arguments = {task.id: declaration.arguments(task)}
                except Refused as error:
                    del tasks[0]
                    await now(queue._execute(failure(task, error)))
                    self._report(_name(task), task, None, error)
                    continue
                for other in tasks[1:]:
                    if len(arguments) < declaration.batch and _name(other) == declaration.name:
                        with suppress(Refused):  # A later call handles it.
                            arguments[other.id] = declaration.arguments(other)
                batch = [(one, self._context(declaration, one)) for one in tasks if one.id in arguments]
                tasks = [one for one in tasks if one.id not in arguments]
                await self._run(queue, declaration, batch, [*arguments.values()])
        finally:
            for task in tasks:
                await now(queue.release(task))

    async def _run(
        self, queue: Any, declaration: TaskDeclaration, batch: list[tuple[Task[Any], Any]], every: list[dict[str, Any]]
    ) -> None:
        """Run one call for the tasks of a batch, each with its context and its arguments."""
        arguments = declaration.of_batch(every) if declaration.batch > 1 else every[0]
        if declaration.signature.context is not None:
            arguments[declaration.signature.context] = batch[0][1]
        result: Any = None
        error: Exception | None = None
        saved: str | None = None
        try:
            result = await self._call(declaration.function, **arguments)
            saved = declaration.result(result)
        except Exception as raised:
            error = raised
        for task, context in batch:
            operation: Any = None
            if context.settled:
                if saved is not None:
                    operation = SaveTaskResult(encode_json(task.id), saved, task.queue, declaration.result_ttl)
            elif error is not None:
                final = declaration.is_final(error)
                operation = failure(task, error, declaration.max_attempts, declaration.backoff, final)
            elif saved is not None:
                operation = AckWithResult(task.id, task.token, task.queue, saved, declaration.result_ttl)
            else:
                operation = outcome(task, None)
            if operation is not None:
                await now(queue._execute(operation))
            hooks = (*declaration.on_failure, *self._app.failure_hooks)
            if error is None:
                hooks = (*declaration.on_success, *self._app.success_hooks)
            if not isinstance(error, Snooze):
                for hook in hooks:
                    await self._call(hook, context, result if error is None else error)
            self._report(declaration.name, task, result, error)

    async def _subscriber(self, declaration: SubscriberDeclaration) -> None:
        """Run the events after a consumer's offset; a retry follows at once."""
        stream = self._kit.stream(declaration.stream, type=declaration.type)
        after = await now(stream.offset(declaration.consumer))
        if declaration in self._stopped:
            return
        events: list[Event[Any]] = await now(stream.read(after, AT_ONCE, on_truncated="skip"))
        for event in events:
            result, error = await self._tried(declaration, event, 1 if self._raising else declaration.max_attempts)
            if error is None:
                await now(stream.save_offset(declaration.consumer, event.offset))
            elif declaration.then == "skip" and not self._raising:
                save = partial(stream.save_offset, declaration.consumer, event.offset)
                await self._skip(declaration, event, error, save)
            else:
                self._stopped.add(declaration)
            self._report(declaration.function.__name__, event, result, error)
            if declaration in self._stopped:
                return

    async def _member(self, declaration: SubscriberDeclaration) -> None:
        """Run the events of a group; a retry follows at once."""
        if declaration in self._stopped:
            return
        member = self._kit.stream(declaration.stream, type=declaration.type).join(declaration.consumer)
        try:
            with suppress(TimedOut):
                while True:
                    event = await now(member.next(timeout=0))
                    tries = 1 if self._raising else declaration.max_attempts
                    result, error = await self._tried(declaration, event, tries)
                    if error is not None and declaration.then == "dead" and not self._raising:
                        await self._skip(declaration, event, error, partial(member.save, event))
                    elif error is not None:
                        self._stopped.add(declaration)
                        if not self._raising:
                            await now(member.hold(event))
                    self._report(declaration.function.__name__, event, result, error)
        finally:
            await now(member.aclose() if self._is_async else member.close())

    async def _skip(
        self, declaration: SubscriberDeclaration, event: Event[Any], error: Exception, save: Callable[..., Any]
    ) -> None:
        """Publish an event to the stream for those that failed, and *save* the offset after it."""
        async with AsyncExitStack() as stack:
            opened = self._kit.transaction()
            tx = await stack.enter_async_context(opened) if self._is_async else stack.enter_context(opened)
            letter = declaration.dead_letter(event, error)
            await now(self._kit.stream(declaration.dead_letters).publish_many([letter], tx=tx))
            await now(save(tx=tx))

    async def _listener(self, declaration: ListenerDeclaration) -> None:
        """Run the notifications that no drain on this kit has called a listener with."""
        heard = _heard.setdefault(self._kit, {})
        read = ReadNotifications(declaration.channels, heard.get(declaration, 0), AT_ONCE, Codec(declaration.type))
        notifications: list[Notification[Any]] = await now(self._kit._connection.execute(read))
        for notification in notifications:
            heard[declaration] = notification.id
            result, error = await self._tried(declaration, notification, 1)
            self._report(declaration.function.__name__, notification, result, error)

    async def _outbox(self, declaration: OutboxDeclaration) -> None:
        """Deliver the due messages of an outbox."""
        execute = self._kit._connection.execute
        await now(execute(OpenOutbox(declaration.queue, declaration.ordered)))
        codec = Codec(declaration.type)
        while tasks := await now(execute(Claim(declaration.queue, "drain", 1, None, fresh_token(), codec))):
            task, error = tasks[0], None
            message = message_of(task)
            try:
                await self._call(declaration.function, message)
            except Exception as raised:
                error = raised
            await now(execute(outcome(task, error)))
            self._report(declaration.name, message, None, error)

    async def _tried(
        self, declaration: SubscriberDeclaration | ListenerDeclaration, message: Any, tries: int
    ) -> tuple[Any, Exception | None]:
        """Return what the function returned for a message, and what it raised the last time."""
        error: Exception | None = None
        for _ in range(tries):
            try:
                check_payload(declaration, message)
                return await self._call(declaration.function, message), None
            except Exception as raised:
                error = raised
                if isinstance(error, Permanent):
                    break
        return None, error

    async def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._is_async and not inspect.iscoroutinefunction(function):
            return await asyncio.to_thread(function, *args, **kwargs)
        answer = function(*args, **kwargs)
        if not isinstance(answer, Coroutine):
            return answer
        return await answer if self._is_async else asyncio.run(answer)

    def _context(self, declaration: TaskDeclaration, task: Task[Any]) -> Any:
        """Return the task's context, of the function's flavour if the function takes one."""
        if declaration.is_async == self._is_async or declaration.signature.context is None:
            return AsyncTaskContext(task, self._kit) if self._is_async else TaskContext(task, self._kit)
        if declaration.is_async:
            raise TypeError(f"the context of {declaration.name} needs an async kit: await drain_async(app, async_kit)")
        if is_async(self._app.kit):
            raise TypeError(f"the context of {declaration.name} needs a kit that blocks: bind the app to one")
        return TaskContext(task, self._app.kit)

    def _report(self, name: str, message: Any, result: Any, error: Exception | None) -> None:
        self.ran.append(Ran(name, message, result, error))
        if error is not None and self._raising and not isinstance(error, Retry | Snooze):
            raise error
        if len(self.ran) >= AT_MOST:
            raise RuntimeError(f"{AT_MOST:,} runs, and work is still due: does {name!r} enqueue itself?")


def _name(task: Task[Any]) -> str:
    return str(task.payload.get("task")) if isinstance(task.payload, dict) else "?"


def drain(app: Application, *, raising: bool = True) -> list[Ran]:
    """Run everything that is due: tasks, and those they enqueue; schedules; subscribers, listeners and outboxes.

    It ends when nothing is due.  An exception of a function, other than `Retry` and `Snooze`, is raised here, after the
    task's outcome is stored as by a worker; with ``raising=False`` it is in the list, and the drain continues.  A retry
    is due after its delay, so `advance` and drain again.  Declared schedules are stored first; rates and pauses hold.
    """
    kit = _bound(app)
    if is_async(kit):
        raise TypeError("the app is bound to an async kit: await drain_async(app)")
    return at_once(_Drain(app, kit, raising).run())


async def drain_async(app: Application, kit: Any = None, *, raising: bool = True) -> list[Ran]:
    """`drain`, awaited; plain functions run in a thread, as they do in a worker.

    An `App` that is bound to a blocking kit also needs *kit*, an async one of the same database.
    """
    bound = _bound(app)
    kit = bound if kit is None else kit
    if not is_async(kit):
        raise TypeError("drain_async() needs an async kit: bind one, or drain_async(app, kit), or drain(app)")
    return await _Drain(app, kit, raising).run()


def _bound(app: Application) -> Any:
    if app.bound is None:
        raise RuntimeError("a drain runs the work in the test's database: call app.bind(kit) first")
    return app.bound
