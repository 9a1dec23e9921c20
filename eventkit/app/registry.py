"""The declarations of an application: checked together, and stored in the database."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, cast

from .. import checks, retry
from ..cron import parse
from ..handling import APPS
from ..values import Schedule
from .declarations import ListenerDeclaration, ScheduleDeclaration, Signature, SubscriberDeclaration, TaskDeclaration
from .task import Function

Hook = Callable[..., Any]
_CATCH_UP = ("all", "latest", "none")


class Registry:
    """The tasks, schedules, subscribers, listeners and hooks, in the order in which they were declared."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskDeclaration] = {}
        self._schedules: dict[str, ScheduleDeclaration] = {}
        self._subscribers: list[SubscriberDeclaration] = []
        self._listeners: list[ListenerDeclaration] = []
        self._planned: dict[Callable[..., Any], list[Callable[[TaskDeclaration], None]]] = {}
        self.success_hooks: tuple[Hook, ...] = ()
        self.failure_hooks: tuple[Hook, ...] = ()
        self.closing: tuple[Callable[[], Awaitable[None]], ...] = ()
        """Callables that a worker awaits after it has ended, in its event loop."""
        APPS.add(self)

    @property
    def tasks(self) -> Mapping[str, TaskDeclaration]:
        """The tasks by name."""
        self._declare_planned()
        return MappingProxyType(self._tasks)

    @property
    def schedules(self) -> tuple[ScheduleDeclaration, ...]:
        """The schedules."""
        self._declare_planned()
        return tuple(self._schedules.values())

    @property
    def subscribers(self) -> tuple[SubscriberDeclaration, ...]:
        """The subscribers."""
        return tuple(self._subscribers)

    @property
    def listeners(self) -> tuple[ListenerDeclaration, ...]:
        """The listeners."""
        return tuple(self._listeners)

    @property
    def queues(self) -> tuple[str, ...]:
        """The names of the queues that have tasks."""
        return tuple(dict.fromkeys(task.queue for task in self.tasks.values()))

    def declares(self, queue: str) -> bool:
        """Return whether a task has been declared for that queue."""
        return any(task.queue == queue for task in self._tasks.values())

    def declare(self, function: Callable[..., Any], **options: Any) -> TaskDeclaration:
        """Register a function as a task, with the schedules that were planned for it."""
        declaration = _task(function, **options)
        known = self._tasks.get(declaration.name)
        if known is not None:
            raise ValueError(
                f"there is a task {declaration.name!r} already, in {known.function.__module__}: give one a name="
            )
        self._check_alone(declaration)
        self._tasks[declaration.name] = declaration
        for plan in self._planned.pop(function, ()):
            plan(declaration)
        return declaration

    def schedule(self, function: Callable[..., Any], **options: Any) -> None:
        """Register a schedule for a task, or for a function that is not a task yet."""

        def plan(task: TaskDeclaration) -> None:
            made = _schedule(task, **options)
            if made.name in self._schedules:
                raise ValueError(f"there is a schedule {made.name!r} already: give one of them a name=")
            self._schedules[made.name] = made

        if isinstance(function, Function):
            plan(function.declaration)
        else:
            self._planned.setdefault(function, []).append(plan)

    def subscribe(self, declaration: SubscriberDeclaration) -> None:
        """Register a subscriber; a consumer's name has only one."""
        if any((one.topic, one.consumer) == (declaration.topic, declaration.consumer) for one in self._subscribers):
            raise ValueError(
                f"consumer {declaration.consumer!r} of topic {declaration.topic!r} has a function already: "
                f"give this one a consumer= of its own"
            )
        self._subscribers.append(declaration)

    def listen(self, declaration: ListenerDeclaration) -> None:
        """Register a listener."""
        self._listeners.append(declaration)

    def _check_alone(self, declaration: TaskDeclaration) -> None:
        """Raise an error if settings of a queue are declared by one of several tasks in it."""
        for other in self._tasks.values():
            for one in (declaration, other):
                if other.queue == declaration.queue and one.settings:
                    raise ValueError(
                        f"{', '.join(one.settings)} of task {one.name!r} applies to all of queue {one.queue!r}, which "
                        f"{declaration.name!r} and {other.name!r} would share: give {one.name!r} a queue= of its own"
                    )

    def _declare_planned(self) -> None:
        """Declare functions as tasks that have a schedule and nothing else."""
        for function in list(self._planned):
            self.declare(function)


def _task(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    queue: str = "default",
    retries: int | None = None,
    timeout: Any = None,
    backoff: Any = None,
    rate: float | None = None,
    burst: float | None = None,
    max_running: int | None = None,
    key: Any = None,
    on_crash: Any = "retry",
    batch: int = 1,
    isolation: Any = None,
    on_success: Any = (),
    on_failure: Any = (),
) -> TaskDeclaration:
    """Return the validated declaration with these options."""
    if not callable(function):
        raise TypeError(f"a task is a function, not {type(function).__name__}: write @app.task or @app.task(…)")
    if isinstance(function, Function):
        raise TypeError(f"{function.declaration.name!r} is a task already: one @app.task is enough")
    name = checks.name("task", function.__name__ if name is None else name)
    is_async = inspect.iscoroutinefunction(function)
    if isolation is not None:
        checks.choice("isolation", isolation, ("process",))
        if is_async:
            raise ValueError(
                f"{name} is async and runs in the worker's loop: isolation='process' is for plain functions"
            )
    if not (key is None or isinstance(key, str) or callable(key)):
        raise TypeError(f"key is a template such as '{{to}}', or a function of the arguments, not {type(key).__name__}")
    if burst is not None and rate is None:
        raise ValueError(f"burst of task {name!r} is the size of the bucket of a rate: pass rate= too")
    return TaskDeclaration(
        name=name,
        queue=checks.name("queue", queue),
        function=function,
        signature=Signature(function, name, batch=checks.count("batch", batch, least=1) > 1),
        is_async=is_async,
        retries=None if retries is None else checks.count("retries", retries),
        timeout=None if timeout is None else checks.milliseconds("timeout", timeout, least=1) / 1000,
        backoff=None if backoff is None else retry.policy(backoff),
        rate=None if rate is None else checks.positive("rate", rate),
        burst=None if burst is None else checks.burst(burst),
        max_running=None if max_running is None else checks.count("max_running", max_running, least=1),
        key=cast("Callable[..., str | None] | str | None", key),
        on_crash="fail" if checks.choice("on_crash", on_crash, ("retry", "fail")) == "fail" else "retry",
        batch=batch,
        isolation=isolation,
        on_success=_hooks("on_success", on_success),
        on_failure=_hooks("on_failure", on_failure),
    )


def _schedule(
    task: TaskDeclaration,
    *,
    when: str,
    name: str | None,
    tz: str,
    args: Mapping[str, Any] | None,
    catch_up: str,
) -> ScheduleDeclaration:
    parse(when, tz)
    required = [one for one in task.signature.required if one not in (args or {})]
    if required:
        raise TypeError(f"a schedule of {task.name!r} has no value for {required[0]!r}: give the schedule args={{…}}")
    return ScheduleDeclaration(
        name=checks.name("schedule", task.name if name is None else name),
        when=when,
        tz=tz,
        task=task,
        args=task.signature.encode((), args or {}),
        catch_up=checks.choice("catch_up", catch_up, _CATCH_UP),
    )


def _hooks(what: str, given: Any) -> tuple[Hook, ...]:
    hooks = (given,) if callable(given) else tuple(given)
    for hook in hooks:
        if not callable(hook):
            raise TypeError(f"{what} is a function or a list of functions, not {type(hook).__name__}")
    return hooks


logger = logging.getLogger("eventkit")

MARK = "eventkit-app"
"""The header of a schedule, and of the tasks it creates, that names the application."""


def install(app: Any, kit: Any) -> None:
    """Store the declarations of *app*."""
    for name, settings in _settings(app):
        kit.queue(name).configure(**settings)
    for schedule in _schedules(app):
        kit.schedules.add(**schedule)
    for name in _abandoned(app, kit.schedules.list()):
        kit.schedules.remove(name)


async def install_async(app: Any, kit: Any) -> None:
    """Store the declarations of *app*."""
    for name, settings in _settings(app):
        await kit.queue(name).configure(**settings)
    for schedule in _schedules(app):
        await kit.schedules.add(**schedule)
    for name in _abandoned(app, await kit.schedules.list()):
        await kit.schedules.remove(name)


def _settings(app: Registry) -> Iterator[tuple[str, dict[str, Any]]]:
    for task in app.tasks.values():
        if task.settings:
            yield task.queue, task.settings


def _schedules(app: Any) -> Iterator[dict[str, Any]]:
    for one in app.schedules:
        task = one.task
        yield {
            "name": one.name,
            "when": one.when,
            "queue": task.queue,
            "payload": {"task": task.name, "args": one.args},
            "tz": one.tz,
            "max_attempts": None if task.retries is None else task.retries + 1,
            "catch_up": one.catch_up,
            "headers": {MARK: app.name},
        }


def _abandoned(app: Any, stored: list[Schedule]) -> Iterator[str]:
    """Yield the names of schedules that *app* has stored and no longer declares."""
    declared = {one.name for one in app.schedules}
    for schedule in stored:
        if schedule.headers.get(MARK) == app.name and schedule.name not in declared:
            logger.warning("schedule %r is removed: app %r no longer declares it", schedule.name, app.name)
            yield schedule.name
