"""`App`: through which a developer's modules declare tasks, and enqueue them.

Declaring touches no database: a module that declares tasks can be imported anywhere.
"""

import asyncio
import importlib
import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from os import getpid
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, overload

from .. import checks, retry
from ..checks import Duration
from ..kit import connect, connect_async
from ..protocols import AsyncEventKit, EventKit
from ..retry import Policy
from ..values import Event, Notification
from .declarations import ListenerDeclaration, OnCrash, SubscriberDeclaration, Then, payload_type
from .protocols import AsyncTaskFunction, Runs, TaskFunction
from .registry import Hook, Registry, install, install_async
from .task import Function, reached

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Backoff = Policy | str | Sequence[float]
Key = Callable[..., str | None] | str


class Declares(Protocol):
    """The decorator that ``app.task(…)`` returns."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TaskFunction[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, R, R]: ...


class AsyncDeclares(Protocol):
    """The decorator that ``task(…)`` of an `AsyncApp` returns."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTaskFunction[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> AsyncTaskFunction[P, R, R]: ...


class Application(Registry):
    """The common part of `App` and `AsyncApp`: everything but the types of enqueueing."""

    def __init__(self, url: str | None = None, *, name: str = "app") -> None:
        """Set the *url* to connect to on first use, and the *name* that tells the applications of a database apart."""
        super().__init__()
        if url is not None and not isinstance(url, str):
            raise TypeError(f"App takes a URL, not {type(url).__name__}: pass a kit to bind()")
        self.url = url
        self.name = checks.name("app", name)
        self._kit: Any = None
        self._own: tuple[int, EventKit] | None = None
        self._connecting = threading.Lock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} with {len(self._tasks)} tasks>"

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

    def every(
        self,
        when: str,
        *,
        name: str | None = None,
        args: Mapping[str, Any] | None = None,
        catch_up: str = "all",
    ) -> Callable[[F], F]:
        """Enqueue the task at intervals, such as ``"@every 30s"``; above or below `task`, or without it."""
        if not (isinstance(when, str) and when.strip().lower().startswith("@every")):
            raise ValueError(
                f"every() takes an interval such as '@every 30s', not {when!r}: use cron() for a time of day"
            )
        return self._scheduling(when=when, name=name, tz="UTC", args=args, catch_up=catch_up)

    def cron(
        self,
        when: str,
        *,
        tz: str = "UTC",
        name: str | None = None,
        args: Mapping[str, Any] | None = None,
        catch_up: str = "all",
    ) -> Callable[[F], F]:
        """Enqueue the task at the times of a cron expression; above or below `task`, or without it."""
        return self._scheduling(when=when, name=name, tz=tz, args=args, catch_up=catch_up)

    def subscriber(
        self,
        topic: str,
        *,
        consumer: str,
        retries: int = 5,
        backoff: Backoff = "exponential",
        then: Then = "stop",
        dead_letters: str | None = None,
    ) -> Callable[[F], F]:
        """Call the function with each event of a topic, in order, as a consumer with that name.

        An event that still fails after *retries* retries stops the consumer; with ``then="skip"`` it is published to
        the stream *dead_letters* (``"<topic>.dead"``) instead, and the consumer continues.
        """
        declared: dict[str, Any] = {
            "topic": checks.name("topic", topic),
            "consumer": checks.name("consumer", consumer),
            "retries": checks.count("retries", retries),
            "backoff": retry.policy(backoff),
            "then": checks.choice("then", then, ("stop", "skip")),
            "dead_letters": checks.name("topic", f"{topic}.dead" if dead_letters is None else dead_letters),
        }

        def declare(function: F) -> F:
            type, is_async = payload_type(function, Event), inspect.iscoroutinefunction(function)
            self.subscribe(SubscriberDeclaration(function=function, is_async=is_async, type=type, **declared))
            return function

        return declare

    def listener(self, *channels: str) -> Callable[[F], F]:
        """Call the function with each notification of these channels."""
        if not channels or callable(channels[0]):
            raise ValueError("name at least one channel to listen to: @app.listener('alerts')")
        names = tuple(checks.name("channel", name) for name in channels)

        def declare(function: F) -> F:
            type, is_async = payload_type(function, Notification), inspect.iscoroutinefunction(function)
            self.listen(ListenerDeclaration(channels=names, function=function, is_async=is_async, type=type))
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

    def install(self, kit: Any = None) -> Any:
        """Store the declared schedules and queue settings in the database.  Awaited on an async kit.

        Workers do it when they start.  Schedules that this app stored before and no longer declares are removed.
        """
        kit = self._reached() if kit is None else kit
        return reached(kit, lambda kit: install_async(self, kit) if hasattr(kit, "__aenter__") else install(self, kit))

    def worker(self, **settings: Any) -> Runs:
        """Return a worker that runs the declared tasks, with the settings of `eventkit.worker.Worker`."""
        # Imported by name, as backends are: workers import apps, and apps import no workers.
        made: Runs = importlib.import_module("eventkit.worker").Worker(self, **settings)
        return made

    def _task(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        if function is None:
            return partial(self._task, **options)
        return Function(self.declare(function, **options), self._reached)

    def _scheduling(self, **options: Any) -> Callable[[F], F]:
        def declare(function: F) -> F:
            self.schedule(function, **options)
            return function

        return declare

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

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> TaskFunction[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> TaskFunction[P, R, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        retries: int | None = None,
        timeout: Duration | None = None,
        backoff: Backoff | None = None,
        rate: float | None = None,
        burst: float | None = None,
        max_running: int | None = None,
        key: Key | None = None,
        on_crash: OnCrash = "retry",
        batch: int = 1,
        isolation: Literal["process"] | None = None,
        on_success: Hook | Sequence[Hook] = (),
        on_failure: Hook | Sequence[Hook] = (),
    ) -> Declares: ...
    def task(self, *function: Any, **options: Any) -> Any:
        """Declare the decorated function as a task; `TaskDeclaration` lists the options."""
        return self._task(*function, **options)


class AsyncApp(Application):
    """`App` for code that awaits: `enqueue` is awaited.

    It connects to its URL on first use, once for each event loop, or uses the `AsyncEventKit` passed to `bind`.
    """

    _opening: tuple[asyncio.AbstractEventLoop, asyncio.Task[AsyncEventKit]] | None = None

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTaskFunction[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> AsyncTaskFunction[P, R, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        retries: int | None = None,
        timeout: Duration | None = None,
        backoff: Backoff | None = None,
        rate: float | None = None,
        burst: float | None = None,
        max_running: int | None = None,
        key: Key | None = None,
        on_crash: OnCrash = "retry",
        batch: int = 1,
        isolation: Literal["process"] | None = None,
        on_success: Hook | Sequence[Hook] = (),
        on_failure: Hook | Sequence[Hook] = (),
    ) -> AsyncDeclares: ...
    def task(self, *function: Any, **options: Any) -> Any:
        """Declare the decorated function as a task; `TaskDeclaration` lists the options."""
        return self._task(*function, **options)

    def bind(self, kit: AsyncEventKit) -> None:
        """Use this kit from now on; the caller closes it."""
        if not hasattr(kit, "__aenter__"):
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
            self._opening = (loop, loop.create_task(_open(self.url)))
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


async def _open(url: str) -> AsyncEventKit:
    return await connect_async(url)


def _failed(opening: asyncio.Task[AsyncEventKit]) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)
