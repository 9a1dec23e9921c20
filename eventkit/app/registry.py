"""What an application has declared so far, and whether it goes together."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

from .. import arguments, retry
from ..cron import parse
from ..rota import APPS
from .declarations import ListenerDeclaration, ScheduleDeclaration, SubscriberDeclaration, TaskDeclaration
from .function import Function
from .signature import Signature

Hook = Callable[..., Any]
_CATCH_UP = ("all", "latest", "none")


class Registry:
    """Tasks, schedules, subscribers, listeners and hooks, in the order in which they were declared."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskDeclaration] = {}
        self._schedules: dict[str, ScheduleDeclaration] = {}
        self._subscribers: list[SubscriberDeclaration] = []
        self._listeners: list[ListenerDeclaration] = []
        self._planned: dict[Callable[..., Any], list[Callable[[TaskDeclaration], None]]] = {}
        self.success_hooks: tuple[Hook, ...] = ()
        self.failure_hooks: tuple[Hook, ...] = ()
        self.closing: tuple[Callable[[], Awaitable[None]], ...] = ()
        """What a worker awaits when it has ended, in the event loop that it ran in."""
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
        """Whether a task was declared for that queue so far."""
        return any(task.queue == queue for task in self._tasks.values())

    def declare(self, function: Callable[..., Any], **options: Any) -> TaskDeclaration:
        """Take a function in as a task, and the schedules that were planned for it."""
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
        """Take in a schedule for a task, or for a function that is still to become one."""

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
        """Take in a subscriber, of which there is one to a consumer's name."""
        if any((one.topic, one.consumer) == (declaration.topic, declaration.consumer) for one in self._subscribers):
            raise ValueError(
                f"consumer {declaration.consumer!r} of topic {declaration.topic!r} has a function already: "
                f"give this one a consumer= of its own"
            )
        self._subscribers.append(declaration)

    def listen(self, declaration: ListenerDeclaration) -> None:
        """Take in a listener."""
        self._listeners.append(declaration)

    def _check_alone(self, declaration: TaskDeclaration) -> None:
        """What is the queue's to say is said by a task that has the queue to itself."""
        for other in self._tasks.values():
            for one in (declaration, other):
                if other.queue == declaration.queue and one.settings:
                    raise ValueError(
                        f"{', '.join(one.settings)} of task {one.name!r} holds for all of queue {one.queue!r}, in "
                        f"which {declaration.name!r} and {other.name!r} would be: give {one.name!r} a queue= of its own"
                    )

    def _declare_planned(self) -> None:
        """Make tasks of functions that have a schedule and nothing else."""
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
    """The declaration that these options make, checked."""
    if not callable(function):
        raise TypeError(f"a task is a function, not {type(function).__name__}: write @app.task or @app.task(…)")
    if isinstance(function, Function):
        raise TypeError(f"{function.declaration.name!r} is a task already: one @app.task is enough")
    name = arguments.name("task", function.__name__ if name is None else name)
    is_async = inspect.iscoroutinefunction(function)
    if isolation is not None:
        arguments.choice("isolation", isolation, ("process",))
        if is_async:
            raise ValueError(
                f"{name} is async and runs in the worker's loop: isolation='process' is for plain functions"
            )
    if not (key is None or isinstance(key, str) or callable(key)):
        raise TypeError(f"key is a template such as '{{to}}', or a function of the arguments, not {type(key).__name__}")
    if burst is not None and rate is None:
        raise ValueError(f"burst of task {name!r} says how deep the bucket of a rate is: say the rate= too")
    return TaskDeclaration(
        name=name,
        queue=arguments.name("queue", queue),
        function=function,
        signature=Signature(function, name, batch=arguments.count("batch", batch, least=1) > 1),
        is_async=is_async,
        retries=None if retries is None else arguments.count("retries", retries),
        timeout=None if timeout is None else arguments.milliseconds("timeout", timeout, least=1) / 1000,
        backoff=None if backoff is None else retry.policy(backoff),
        rate=None if rate is None else arguments.positive("rate", rate),
        burst=None if burst is None else arguments.burst(burst),
        max_running=None if max_running is None else arguments.count("max_running", max_running, least=1),
        key=cast("Callable[..., str | None] | str | None", key),
        on_crash="fail" if arguments.choice("on_crash", on_crash, ("retry", "fail")) == "fail" else "retry",
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
        raise TypeError(
            f"a schedule calls {task.name!r} with nobody there to say {required[0]!r}: give the schedule args={{…}}"
        )
    return ScheduleDeclaration(
        name=arguments.name("schedule", task.name if name is None else name),
        when=when,
        tz=tz,
        task=task,
        args=task.signature.encode((), args or {}),
        catch_up=arguments.choice("catch_up", catch_up, _CATCH_UP),
    )


def _hooks(what: str, given: Any) -> tuple[Hook, ...]:
    hooks = (given,) if callable(given) else tuple(given)
    for hook in hooks:
        if not callable(hook):
            raise TypeError(f"{what} is a function or a list of functions, not {type(hook).__name__}")
    return hooks
