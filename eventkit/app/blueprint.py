"""Declaring tasks, schedules, subscribers, listeners and outboxes, in an application or in a blueprint."""

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from .. import checks, retry
from ..outbox import PREFIX
from ..values import CatchUp, Event, Notification, Then
from .declarations import (
    Backoff,
    ListenerDeclaration,
    OutboxDeclaration,
    ScheduleDeclaration,
    SubscriberDeclaration,
    TaskDeclaration,
    TaskOptions,
    declare_outbox,
    declare_schedule,
    declare_task,
    payload_type,
)
from .task import AsyncTaskFunction, Context, Function, TaskFunction

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C", bound=Context)
F = TypeVar("F", bound=Callable[..., Any])

Declaration = TaskDeclaration | ScheduleDeclaration | SubscriberDeclaration | ListenerDeclaration | OutboxDeclaration


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


class Registry:
    """The common part of applications and blueprints: the declarations, in their order."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskDeclaration] = {}
        self._schedules: dict[str, ScheduleDeclaration] = {}
        self._planned: dict[Callable[..., Any], list[Callable[[TaskDeclaration], None]]] = {}
        self._included: list[Registry] = []
        self._apps: list[Registry] = []
        self.subscribers: tuple[SubscriberDeclaration, ...] = ()
        self.listeners: tuple[ListenerDeclaration, ...] = ()
        self.outboxes: tuple[OutboxDeclaration, ...] = ()

    @property
    def tasks(self) -> Mapping[str, TaskDeclaration]:
        """The tasks by name."""
        for registry in (self, *self._included):
            for function in list(registry._planned):  # Functions that have a schedule and nothing else.
                registry._declare(function)
        return MappingProxyType(self._tasks)

    @property
    def schedules(self) -> tuple[ScheduleDeclaration, ...]:
        """The schedules."""
        return tuple(self._schedules.values()) if self.tasks else ()

    def _declare(self, function: Callable[..., Any], **options: Any) -> TaskDeclaration:
        """Register a function as a task, with the schedules that were planned for it."""
        declaration = declare_task(function, **options)
        self._add(declaration)
        for plan in self._planned.pop(function, ()):
            plan(declaration)
        return declaration

    def _add(self, made: Declaration) -> None:
        """Store a declaration here, and in the applications that include this blueprint, or in none."""
        for registry in (self, *self._apps):
            registry._check(made)
        for registry in (self, *self._apps):
            registry._store(made)

    def _check(self, made: Declaration) -> None:
        """Raise if another declaration is in the way of *made*."""
        match made:
            case OutboxDeclaration():
                if made.queue in (one.queue for one in self.outboxes):
                    name = made.queue.removeprefix(PREFIX)
                    raise ValueError(f"outbox {name!r} has a function already: an outbox has one")
            case TaskDeclaration():
                self._check_task(made)
            case ScheduleDeclaration() if made.name in self._schedules:
                raise ValueError(f"there is a schedule {made.name!r} already: give one of them a name=")
            case SubscriberDeclaration():
                if any(one.reader == made.reader for one in self.subscribers):
                    raise ValueError(
                        f"{made.kind} {made.consumer!r} of stream {made.stream!r} has a function already: give this "
                        f"one a {made.kind}= of its own"
                    )
            case _:
                pass

    def _check_task(self, declaration: TaskDeclaration) -> None:
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

    def _store(self, made: Declaration) -> None:
        match made:
            case OutboxDeclaration():
                self.outboxes = (*self.outboxes, made)
            case TaskDeclaration():
                self._tasks[made.name] = made
            case ScheduleDeclaration():
                self._schedules[made.name] = made
            case SubscriberDeclaration():
                self.subscribers = (*self.subscribers, made)
            case ListenerDeclaration():
                self.listeners = (*self.listeners, made)

    def _include(self, blueprints: Iterable["Registry"], kind: "type[Registry]") -> None:
        for blueprint in blueprints:
            if not isinstance(blueprint, kind):
                raise TypeError(f"{type(self).__name__}.include() takes a {kind.__name__}, not {blueprint!r}")
            if blueprint in self._included:
                raise ValueError("the app includes this blueprint already: include it once")
            declared: list[Declaration] = [*blueprint.tasks.values(), *blueprint.schedules, *blueprint.outboxes]
            declared += (*blueprint.subscribers, *blueprint.listeners)
            for made in declared:
                self._check(made)
            for made in declared:
                self._store(made)
            self._included.append(blueprint)
            blueprint._apps.append(self)

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
            self._add(declare_schedule(task, when=when, name=name, tz=tz, args=args, catch_up=catch_up))

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
        consumer: str | None = None,
        group: str | None = None,
        max_attempts: int = 6,
        backoff: Backoff = "exponential",
        then: Then | None = None,
        dead_letters: str | None = None,
    ) -> Callable[[F], F]:
        """Call the function with each event of a stream, in order, as a consumer or as a member of a group.

        A consumer has one worker at a time.  An event that still fails after *max_attempts* calls stops the consumer;
        with ``then="skip"`` it is published to the stream *dead_letters* (``"<stream>.dead"``) instead, and the
        consumer continues.

        A group has any number of workers, and its events are in order for each key.  A failing event holds its key
        only, and is published to *dead_letters* in the end; with ``then="stop"`` it stops its partition instead.
        """
        if (consumer is None) == (group is None):
            raise ValueError("a subscriber has a consumer= or a group=, and not both")
        choices: tuple[Then, ...] = ("stop", "skip") if group is None else ("dead", "stop")
        made = partial(
            SubscriberDeclaration,
            stream=checks.name("stream", stream),
            consumer=checks.name("consumer", consumer) if group is None else checks.name("group", group),
            in_group=group is not None,
            max_attempts=checks.count("max_attempts", max_attempts, least=1),
            backoff=retry.policy(backoff),
            then=choices[0] if then is None else cast(Then, checks.choice("then", then, choices)),
            dead_letters=checks.name("stream", f"{stream}.dead" if dead_letters is None else dead_letters),
        )

        def declare(function: F) -> F:
            payload, awaited = payload_type(function, Event), inspect.iscoroutinefunction(function)
            self._add(made(function=function, is_async=awaited, type=payload))
            return function

        return declare

    def listener(self, *channels: str) -> Callable[[F], F]:
        """Call the function with each notification of these channels."""
        if not channels or callable(channels[0]):
            raise ValueError("name at least one channel to listen to: @app.listener('alerts')")
        names = tuple(checks.name("channel", name) for name in channels)

        def declare(function: F) -> F:
            payload, awaited = payload_type(function, Notification), inspect.iscoroutinefunction(function)
            self._add(ListenerDeclaration(names, function, awaited, payload))
            return function

        return declare

    def outbox(self, name: str, *, ordered: bool = False) -> Callable[[F], F]:
        """Deliver the messages of an outbox by calling the function with each; see `eventkit.Outbox`.

        With *ordered*, the messages of one key are delivered one after the other.
        """
        checks.name("outbox", name, 255 - len(PREFIX))

        def declare(function: F) -> F:
            self._add(declare_outbox(function, name, checks.flag("ordered", ordered)))
            return function

        return declare

    def _task(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        if function is None:
            return partial(self._task, **options)
        return Function(self._declare(function, **options), self._reached)

    def _reached(self) -> Any:
        """Return the kit, or an awaitable of it."""
        if not self._apps:
            raise RuntimeError("this blueprint is in no app: call app.include(blueprint) before tasks are enqueued")
        return self._apps[-1]._reached()


class Blueprint(Registry):
    """Declarations without an application, which includes them: ``app.include(blueprint)``.

    What is declared later is included too.  Of several applications that include it, the last one enqueues its tasks.
    """

    @property
    def task(self) -> Declares:
        """The decorator of a function that is a task; `TaskDeclaration` describes its options."""
        return self._task


class AsyncBlueprint(Registry):
    """`Blueprint` for an `AsyncApp`."""

    @property
    def task(self) -> AsyncDeclares:
        """The decorator of a function that is a task; `TaskDeclaration` describes its options."""
        return self._task
