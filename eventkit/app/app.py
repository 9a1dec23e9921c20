"""`App`: through which a developer's modules declare tasks, and enqueue them.

Declaring touches no database: a module that declares tasks can be imported anywhere.
"""

import asyncio
import importlib
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from os import getpid
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from .. import checks, retry
from ..handling import APPS
from ..kit import connect, connect_async
from ..protocols import AsyncEventKit, EventKit
from ..values import CatchUp, Event, Notification, Then
from .declarations import (
    Backoff,
    Hook,
    ListenerDeclaration,
    Refused,
    ScheduleDeclaration,
    SubscriberDeclaration,
    TaskDeclaration,
    TaskOptions,
    declare_schedule,
    declare_task,
    payload_type,
)
from .task import AsyncTaskFunction, Context, Function, TaskFunction, at_once, is_async, now, reached

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C", bound=Context)
F = TypeVar("F", bound=Callable[..., Any])

MARK = "eventkit-app"
"""The header of a schedule, and of the tasks it creates, that names the application."""

logger = logging.getLogger("eventkit")


class Untyped:
    """A type that no function takes as its first argument, except one that takes anything and may take a context."""


class Declares(Protocol):
    """The decorator ``app.task``, also as ``app.task(…)`` with options."""

    @overload
    def __call__(self, function: Callable[Concatenate[Untyped, ...], Any], /) -> TaskFunction[..., ..., Any, Any]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[C, P], Coroutine[Any, Any, R]], /
    ) -> TaskFunction[Concatenate[C, P], P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TaskFunction[P, P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[C, P], R], /) -> TaskFunction[Concatenate[C, P], P, R, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, P, R, R]: ...
    @overload
    def __call__(self, **options: Unpack[TaskOptions]) -> "Declares": ...
    @overload  # The function takes a list, and `enqueue` an item of it.
    def __call__(
        self, *, batch: int, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[[list[T]], R]], TaskFunction[[list[T]], [T], R, None]]: ...


class AsyncDeclares(Protocol):
    """`Declares` for an `AsyncApp`."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Untyped, ...], Any], /
    ) -> AsyncTaskFunction[..., ..., Any, Any]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[C, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTaskFunction[Concatenate[C, P], P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTaskFunction[P, P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[C, P], R], /
    ) -> AsyncTaskFunction[Concatenate[C, P], P, R, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> AsyncTaskFunction[P, P, R, R]: ...
    @overload
    def __call__(self, **options: Unpack[TaskOptions]) -> "AsyncDeclares": ...
    @overload
    def __call__(
        self, *, batch: int, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[[list[T]], R]], AsyncTaskFunction[[list[T]], [T], R, None]]: ...


class Runs(Protocol):
    """The worker that `App.worker` returns, as far as starting and stopping it."""

    def run(self) -> int:
        """Run until a signal arrives; return the exit code."""
        ...

    async def serve(self) -> None:
        """Run in the current event loop until it is stopped."""
        ...

    def stop(self) -> None:
        """Finish the running tasks, start no others, and end."""
        ...


class Application:
    """The common part of `App` and `AsyncApp`: everything but the types of enqueueing.

    It has the declared tasks, schedules, subscribers, listeners and hooks, in the order of their declaration.
    """

    def __init__(self, url: str | None = None, *, name: str = "app") -> None:
        """Set the *url* to connect to on first use, and the *name* that tells the applications of a database apart."""
        if url is not None and not isinstance(url, str):
            raise TypeError(f"App takes a URL, not {type(url).__name__}: pass a kit to bind()")
        self.url = url
        self.name = checks.name("app", name)
        self._kit: Any = None
        self._own: tuple[int, EventKit] | None = None
        self._connecting = threading.Lock()
        self._tasks: dict[str, TaskDeclaration] = {}
        self._schedules: dict[str, ScheduleDeclaration] = {}
        self._planned: dict[Callable[..., Any], list[Callable[[TaskDeclaration], None]]] = {}
        self.subscribers: tuple[SubscriberDeclaration, ...] = ()
        self.listeners: tuple[ListenerDeclaration, ...] = ()
        self.success_hooks: tuple[Hook, ...] = ()
        self.failure_hooks: tuple[Hook, ...] = ()
        self.closing: tuple[Callable[[], Awaitable[None]], ...] = ()
        """Callables that a worker awaits after it has ended, in its event loop."""
        APPS.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} with {len(self._tasks)} tasks>"

    @property
    def tasks(self) -> Mapping[str, TaskDeclaration]:
        """The tasks by name."""
        for function in list(self._planned):  # Functions that have a schedule and nothing else.
            self._declare(function)
        return MappingProxyType(self._tasks)

    @property
    def schedules(self) -> tuple[ScheduleDeclaration, ...]:
        """The schedules."""
        return tuple(self._schedules.values()) if self.tasks else ()

    @property
    def queues(self) -> tuple[str, ...]:
        """The names of the queues that have tasks."""
        return tuple(dict.fromkeys(task.queue for task in self.tasks.values()))

    def declares(self, queue: str) -> bool:
        """Return whether a task has been declared for that queue."""
        return any(task.queue == queue for task in self._tasks.values())

    def resolve(self, payload: Any) -> TaskDeclaration:
        """Return the declaration of the task that *payload* names; raise `Refused` if there is none."""
        if not isinstance(payload, dict) or not isinstance(name := payload.get("task"), str):
            raise Refused(
                'NOT_A_TASK: the payload is not {"task": name, "args": {…}}, of a declared task: call enqueue() of the '
                "declared function, or put plain payloads into a queue for which no App declares tasks, for "
                "queue.work()",
                "poison",
            )
        declaration = self.tasks.get(name)
        if declaration is None:
            raise Refused(
                f"RESOLUTION_ERROR: this app declares no task {name!r}: import its module, or requeue() the task when "
                f"its worker is deployed"
            )
        return declaration

    def _declare(self, function: Callable[..., Any], **options: Any) -> TaskDeclaration:
        """Register a function as a task, with the schedules that were planned for it."""
        declaration = declare_task(function, **options)
        known = self._tasks.get(declaration.name)
        if known is not None:
            raise ValueError(
                f"there is a task {declaration.name!r} already, in {known.function.__module__}: give one a name="
            )
        for other in self._tasks.values():
            for one in (declaration, other):
                if other.queue == declaration.queue and one.settings:
                    raise ValueError(
                        f"{', '.join(one.settings)} of task {one.name!r} applies to all of queue {one.queue!r}, which "
                        f"{declaration.name!r} and {other.name!r} would share: give {one.name!r} a queue= of its own"
                    )
        self._tasks[declaration.name] = declaration
        for plan in self._planned.pop(function, ()):
            plan(declaration)
        return declaration

    def every(
        self, when: str, *, name: str | None = None, args: Mapping[str, Any] | None = None, catch_up: CatchUp = "all"
    ) -> Callable[[F], F]:
        """Enqueue the task at intervals, such as ``"@every 30s"``; above or below `task`, or without it."""
        if not (isinstance(when, str) and when.strip().lower().startswith("@every")):
            raise ValueError(
                f"every() takes an interval such as '@every 30s', not {when!r}: use cron() for a time of day"
            )
        return self.cron(when, name=name, args=args, catch_up=catch_up)

    def cron(
        self,
        when: str,
        *,
        tz: str = "UTC",
        name: str | None = None,
        args: Mapping[str, Any] | None = None,
        catch_up: CatchUp = "all",
    ) -> Callable[[F], F]:
        """Enqueue the task at the times of a cron expression; above or below `task`, or without it."""

        def plan(task: TaskDeclaration) -> None:
            made = declare_schedule(task, when=when, name=name, tz=tz, args=args, catch_up=catch_up)
            if made.name in self._schedules:
                raise ValueError(f"there is a schedule {made.name!r} already: give one of them a name=")
            self._schedules[made.name] = made

        def declare(function: F) -> F:
            task: Any = function
            if isinstance(task, Function):
                plan(task.declaration)
            else:
                self._planned.setdefault(function, []).append(plan)
            return function

        return declare

    def subscriber(
        self,
        stream: str,
        *,
        consumer: str,
        max_attempts: int = 6,
        backoff: Backoff = "exponential",
        then: Then = "stop",
        dead_letters: str | None = None,
    ) -> Callable[[F], F]:
        """Call the function with each event of a stream, in order, as a consumer with that name.

        An event that still fails after *max_attempts* calls stops the consumer; with ``then="skip"`` it is published to
        the stream *dead_letters* (``"<stream>.dead"``) instead, and the consumer continues.
        """
        made = partial(
            SubscriberDeclaration,
            stream=checks.name("stream", stream),
            consumer=checks.name("consumer", consumer),
            max_attempts=checks.count("max_attempts", max_attempts, least=1),
            backoff=retry.policy(backoff),
            then=checks.choice("then", then, Then),
            dead_letters=checks.name("stream", f"{stream}.dead" if dead_letters is None else dead_letters),
        )

        def declare(function: F) -> F:
            type, awaited = payload_type(function, Event), inspect.iscoroutinefunction(function)
            if any((one.stream, one.consumer) == (stream, consumer) for one in self.subscribers):
                raise ValueError(
                    f"consumer {consumer!r} of stream {stream!r} has a function already: give this one a consumer= of "
                    f"its own"
                )
            self.subscribers = (*self.subscribers, made(function=function, is_async=awaited, type=type))
            return function

        return declare

    def listener(self, *channels: str) -> Callable[[F], F]:
        """Call the function with each notification of these channels."""
        if not channels or callable(channels[0]):
            raise ValueError("name at least one channel to listen to: @app.listener('alerts')")
        names = tuple(checks.name("channel", name) for name in channels)

        def declare(function: F) -> F:
            type, awaited = payload_type(function, Notification), inspect.iscoroutinefunction(function)
            self.listeners = (*self.listeners, ListenerDeclaration(names, function, awaited, type))
            return function

        return declare

    def on_success(self, hook: F) -> F:
        """Call ``hook(ctx, result)`` in the worker after each task that succeeds."""
        self.success_hooks = (*self.success_hooks, hook)
        return hook

    def on_failure(self, hook: F) -> F:
        """Call ``hook(ctx, error)`` in the worker after each run that fails."""
        self.failure_hooks = (*self.failure_hooks, hook)
        return hook

    @property
    def kit(self) -> Any:
        """The bound kit, or else one that is connected to the URL, once in each process."""
        return self._connected() if self._kit is None else self._kit

    @property
    def bound(self) -> Any:
        """The bound kit; None if there is none."""
        return self._kit

    def bind(self, kit: Any) -> None:
        """Use this kit from now on; the caller closes it."""
        if not hasattr(kit, "queue"):
            raise TypeError(f"bind() takes a kit, such as eventkit.connect(url) returns, not {type(kit).__name__}")
        self._kit = kit

    def unbind(self) -> None:
        """Stop using the bound kit."""
        self._kit = None

    def close(self) -> None:
        """Close the kit that was connected to the URL; a bound kit stays open.  May be called again."""
        with self._connecting:
            own, self._own = self._own, None
        if own is not None and own[0] == getpid():
            own[1].close()

    def install(self, kit: Any = None) -> Any:
        """Store the declared schedules and queue settings in the database.  Awaited on an async kit.

        Workers do it when they start.  Schedules that this app stored before and no longer declares are removed.
        """

        def store(kit: Any) -> Any:
            return self._install(kit) if is_async(kit) else at_once(self._install(kit))

        return reached(self._reached() if kit is None else kit, store)

    async def _install(self, kit: Any) -> None:
        for task in self.tasks.values():
            if task.settings:
                await now(kit.queue(task.queue).configure(**task.settings))
        for one in self.schedules:
            payload = {"task": one.task.name, "args": one.args}
            options = {"tz": one.tz, "max_attempts": one.task.max_attempts, "catch_up": one.catch_up}
            headers = {MARK: self.name}
            await now(kit.schedules.add(one.name, one.when, one.task.queue, payload, headers=headers, **options))
        for stored in await now(kit.schedules.list()):
            if stored.headers.get(MARK) == self.name and stored.name not in self._schedules:
                logger.warning("schedule %r is removed: app %r no longer declares it", stored.name, self.name)
                await now(kit.schedules.remove(stored.name))

    def worker(self, **settings: Any) -> Runs:
        """Return a worker that runs the declared tasks, with the settings of `eventkit.worker.Worker`."""
        # Imported by name, as backends are: workers import apps, and apps import no workers.
        made: Runs = importlib.import_module("eventkit.worker").Worker(self, **settings)
        return made

    def _task(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        if function is None:
            return partial(self._task, **options)
        return Function(self._declare(function, **options), self._reached)

    def _reached(self) -> Any:
        """Return the kit, or an awaitable of it."""
        return self.kit

    def _connected(self) -> Any:
        with self._connecting:
            if self._own is None or self._own[0] != getpid():
                if self.url is None:
                    raise RuntimeError("this app has no database: give App a URL, or bind() a kit before its first use")
                self._own = (getpid(), connect(self.url))
            return self._own[1]


class App(Application):
    """An application: it declares tasks, schedules, subscribers and listeners, for code that blocks.

    It connects to its URL on first use, or uses the kit passed to `bind`.
    """

    @property
    def task(self) -> Declares:
        """The decorator of a function that is a task; `TaskDeclaration` describes its options."""
        return self._task


class AsyncApp(Application):
    """`App` for code that awaits: `enqueue` is awaited.

    It connects to its URL on first use, once for each event loop, or uses the `AsyncEventKit` passed to `bind`.
    """

    _opening: tuple[asyncio.AbstractEventLoop, asyncio.Future[AsyncEventKit]] | None = None

    @property
    def task(self) -> AsyncDeclares:
        """The decorator of a function that is a task; `TaskDeclaration` describes its options."""
        return self._task

    def bind(self, kit: AsyncEventKit) -> None:
        """Use this kit from now on; the caller closes it."""
        if not is_async(kit):
            raise TypeError("AsyncApp.bind() takes a kit from eventkit.connect_async(url); App takes a kit that blocks")
        super().bind(kit)

    async def connect(self) -> AsyncEventKit:
        """Return the bound kit, or else one that is connected to the URL, once for each event loop."""
        if self._kit is not None:
            bound: AsyncEventKit = self._kit
            return bound
        loop = asyncio.get_running_loop()
        if self._opening is None or self._opening[0] is not loop or _failed(self._opening[1]):
            if self.url is None:
                raise RuntimeError(
                    "this app has no database: give AsyncApp a URL, or bind() a kit from eventkit.connect_async(url)"
                )
            self._opening = (loop, asyncio.ensure_future(connect_async(self.url)))
        return await asyncio.shield(self._opening[1])

    async def close(self) -> None:  # type: ignore[override]
        """Close the kit that was connected to the URL; a bound kit stays open.  May be called again."""
        opening, self._opening = self._opening, None
        if opening is not None and opening[0] is asyncio.get_running_loop() and not _failed(opening[1]):
            await (await opening[1]).close()

    def _reached(self) -> Any:
        return self.connect() if self._kit is None else self._kit

    def _connected(self) -> AsyncEventKit:
        if self._opening is None or not self._opening[1].done():
            raise RuntimeError("this app has not connected yet: await app.connect(), which returns the kit")
        return self._opening[1].result()


def _failed(opening: asyncio.Future[AsyncEventKit]) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)
