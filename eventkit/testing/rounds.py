"""`drain`: run all due work in the test's process."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ..app.application import Application
from ..app.context import AsyncTaskContext, TaskContext
from ..app.declarations import ListenerDeclaration, SubscriberDeclaration, TaskDeclaration
from ..app.outcome import (
    Dead,
    Done,
    Refused,
    batch_arguments,
    decode,
    explained,
    failed,
    readable,
    resolve,
    settle,
    skipped,
    succeeded,
)
from ..codec import Codec
from ..handling import Retry, Snooze
from ..operations.channel import ReadNotifications
from ..values import Event, Notification, Task

AT_MOST = 10_000
"""The number of runs after which a drain fails, because a task enqueues itself again and again."""

AT_ONCE = 100
"""The number of tasks, events and notifications that are fetched together."""

Plan = Generator[Callable[[], Any], Any, None]

_heard: WeakKeyDictionary[Any, dict[ListenerDeclaration, int]] = WeakKeyDictionary()
"""The last notification that each listener was called with, on each kit."""


class Ran(NamedTuple):
    """One call of a function for a *message*: what it returned, and what it raised, if it did."""

    name: str
    message: Task[Any] | Event[Any] | Notification[Any]
    result: Any
    error: BaseException | None


class _Readied(NamedTuple):
    """A task with its declaration, its arguments, and its context."""

    task: Task[Any]
    declaration: TaskDeclaration
    arguments: dict[str, Any]
    context: Any


class Rounds:
    """One drain of an app."""

    def __init__(self, app: Application, kit: Any, raising: bool) -> None:
        self.ran: list[Ran] = []
        self._app = app
        self._kit = kit
        self._raising = raising
        self._is_async = is_async(kit)
        self._stopped: set[SubscriberDeclaration] = set()

    def plan(self) -> Plan:
        """Run rounds, until one finds nothing to do."""
        yield partial(self._app.install, self._kit)
        before = -1
        while len(self.ran) > before:
            before = len(self.ran)
            yield self._kit.schedules.tick
            for name in self._app.queues:
                yield from self._queue(name)
            for subscriber in self._app.subscribers:
                yield from self._subscriber(subscriber)
            for listener in self._app.listeners:
                yield from self._listener(listener)

    def _queue(self, name: str) -> Plan:
        """Run the due tasks of a queue; release those that were claimed and not run."""
        queue = self._kit.queue(name)
        tasks: list[Task[Any]] = yield partial(queue.claim, "drain", AT_ONCE)
        try:
            while tasks:
                try:
                    first = self._readied(tasks[0])
                except Refused as error:
                    task = tasks.pop(0)
                    yield partial(settle, queue, task, Dead(explained(error), error.reason))
                    self._report(_name(task), task, None, error)
                    continue
                batch = [first, *self._alike(first, tasks[1:])]
                taken = [one.task for one in batch]
                tasks = [task for task in tasks if task not in taken]
                yield from self._run(queue, batch)
        finally:
            for task in tasks:
                yield partial(queue.release, task)

    def _alike(self, first: _Readied, tasks: list[Task[Any]]) -> list[_Readied]:
        """Return the tasks to run in one call with the *first*."""
        alike: list[_Readied] = []
        for task in tasks:
            if len(alike) + 1 >= first.declaration.batch:
                break
            if _name(task) == first.declaration.name:
                with suppress(Refused):  # A later call handles it.
                    alike.append(self._readied(task))
        return alike

    def _run(self, queue: Any, batch: list[_Readied]) -> Plan:
        """Run one call for a task, or for a batch of them."""
        declaration, arguments = batch[0].declaration, batch[0].arguments
        if declaration.batch > 1:
            arguments = batch_arguments(declaration, [one.arguments for one in batch])
        if declaration.signature.context is not None:
            arguments = {**arguments, declaration.signature.context: batch[0].context}
        result: Any = None
        error: Exception | None = None
        try:
            result = yield partial(self._call, declaration.function, **arguments)
        except Exception as raised:
            error = raised
        for one in batch:
            yield from self._settle(queue, one, result, error)

    def _settle(self, queue: Any, one: _Readied, result: Any, error: Exception | None) -> Plan:
        """Store the outcome of a task, call the hooks, and record the run."""
        declaration, task, context = one.declaration, one.task, one.context
        outcome = succeeded(declaration, result) if error is None else failed(declaration, task, error)
        if not context.settled:
            yield partial(settle, queue, task, outcome)
        elif isinstance(outcome, Done) and result is not None:
            yield partial(self._kit.results.save, task.id, outcome.result)
        if error is None and isinstance(outcome, Dead):
            error = Refused(outcome.error)
        hooks: tuple[Callable[..., Any], ...] = (*declaration.on_failure, *self._app.failure_hooks)
        if error is None:
            hooks = (*declaration.on_success, *self._app.success_hooks)
        if not isinstance(error, Snooze):
            for hook in hooks:
                yield partial(self._call, hook, context, result if error is None else error)
        self._report(declaration.name, task, result, error)

    def _subscriber(self, declaration: SubscriberDeclaration) -> Plan:
        """Run the events after a consumer's offset; a retry follows at once."""
        stream = self._kit.stream(declaration.topic, type=declaration.type)
        after = yield partial(stream.offset, declaration.consumer)
        events: list[Event[Any]] = []
        if declaration not in self._stopped:
            events = yield partial(stream.read, after, AT_ONCE, on_truncated="skip")
        for event in events:
            result, error = yield from self._tried(declaration, event, 1 if self._raising else 1 + declaration.retries)
            if error is None:
                yield partial(stream.save_offset, declaration.consumer, event.offset)
            elif declaration.then == "skip" and not self._raising:
                skip: Any = _skip_async if self._is_async else _skip
                yield partial(skip, self._kit, declaration, event, error)
            else:
                self._stopped.add(declaration)
            self._report(declaration.function.__name__, event, result, error)
            if declaration in self._stopped:
                return

    def _listener(self, declaration: ListenerDeclaration) -> Plan:
        """Run the notifications that no drain on this kit has called a listener with."""
        heard = _heard.setdefault(self._kit, {})
        read = ReadNotifications(declaration.channels, heard.get(declaration, 0), AT_ONCE, Codec(declaration.type))
        notifications: list[Notification[Any]] = yield partial(self._kit._connection.execute, read)
        for notification in notifications:
            heard[declaration] = notification.id
            result, error = yield from self._tried(declaration, notification, 1)
            self._report(declaration.function.__name__, notification, result, error)

    def _tried(
        self, declaration: SubscriberDeclaration | ListenerDeclaration, message: Any, tries: int
    ) -> Generator[Callable[[], Any], Any, tuple[Any, Exception | None]]:
        """Return what the function returned for a message, and what it raised the last time."""
        error: Exception | None = None
        for _ in range(tries):
            try:
                readable(declaration, message)
                return (yield partial(self._call, declaration.function, message)), None
            except Refused as refused:
                return None, refused
            except Exception as raised:
                error = raised
        return None, error

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return the result of the function, in the flavour of the drain."""
        if self._is_async and not inspect.iscoroutinefunction(function):
            return asyncio.to_thread(function, *args, **kwargs)
        answer = function(*args, **kwargs)
        return answer if self._is_async or not isinstance(answer, Coroutine) else asyncio.run(answer)

    def _readied(self, task: Task[Any]) -> _Readied:
        declaration = resolve(self._app, task.payload)
        return _Readied(task, declaration, decode(declaration, task.payload), self._context(declaration, task))

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


def is_async(kit: Any) -> bool:
    """Return whether the kit's calls are awaited."""
    return hasattr(kit, "__aenter__")


def _name(task: Task[Any]) -> str:
    return str(task.payload.get("task")) if isinstance(task.payload, dict) else "?"


def _skip(kit: Any, declaration: SubscriberDeclaration, event: Event[Any], error: Exception) -> None:
    with kit.transaction() as tx:
        kit.stream(declaration.dead_letters).publish_many([skipped(declaration, event, error)], tx=tx)
        kit.stream(declaration.topic).save_offset(declaration.consumer, event.offset, tx=tx)


async def _skip_async(kit: Any, declaration: SubscriberDeclaration, event: Event[Any], error: Exception) -> None:
    async with kit.transaction() as tx:
        await kit.stream(declaration.dead_letters).publish_many([skipped(declaration, event, error)], tx=tx)
        await kit.stream(declaration.topic).save_offset(declaration.consumer, event.offset, tx=tx)


def drain(app: Application, *, raising: bool = True) -> list[Ran]:
    """Run everything that is due: tasks, and those they enqueue; schedules; subscribers and listeners.

    It ends when nothing is due.  An exception of a function, other than `Retry` and `Snooze`, is raised here, after the
    task's outcome is stored as by a worker; with ``raising=False`` it is in the list, and the drain continues.  A retry
    is due after its delay, so `advance` and drain again.  Declared schedules are stored first; rates and pauses hold.
    """
    kit = _bound(app)
    if is_async(kit):
        raise TypeError("the app is bound to an async kit: await drain_async(app)")
    rounds = Rounds(app, kit, raising)
    _run(rounds.plan())
    return rounds.ran


async def drain_async(app: Application, kit: Any = None, *, raising: bool = True) -> list[Ran]:
    """`drain`, awaited; plain functions run in a thread, as they do in a worker.

    An `App` that is bound to a blocking kit also needs *kit*, an async one of the same database.
    """
    bound = _bound(app)
    kit = bound if kit is None else kit
    if not is_async(kit):
        raise TypeError("drain_async() needs an async kit: bind one, or drain_async(app, kit), or drain(app)")
    rounds = Rounds(app, kit, raising)
    await _run_async(rounds.plan())
    return rounds.ran


def _run(plan: Plan) -> None:
    try:
        step = next(plan)
        while True:
            try:
                answer = step()
            except BaseException as error:
                step = plan.throw(error)
            else:
                step = plan.send(answer)
    except StopIteration:
        return


async def _run_async(plan: Plan) -> None:
    try:
        step = next(plan)
        while True:
            try:
                answer = step()
                answer = await answer if inspect.isawaitable(answer) else answer
            except BaseException as error:
                step = plan.throw(error)
            else:
                step = plan.send(answer)
    except StopIteration:
        return


def _bound(app: Application) -> Any:
    if app.bound is None:
        raise RuntimeError("a drain runs the work in the test's database: call app.bind(kit) first")
    return app.bound
