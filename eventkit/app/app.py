"""`App`: through which a developer's modules declare tasks, and enqueue them.

Declaring touches no database: a module that declares tasks can be imported anywhere.
"""

import asyncio
import importlib
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable
from os import getpid
from typing import Any, Protocol

from .. import checks
from ..handling import APPS
from ..kit import connect, connect_async
from ..operations.coordination import OpenOutbox
from ..operations.queue import SetClusterLimit
from ..protocols import AsyncEventKit, EventKit
from ..queue import cluster_limit
from .blueprint import AsyncBlueprint, AsyncDeclares, Blueprint, Declares, F, Registry
from .declarations import Hook, Refused, TaskDeclaration
from .task import at_once, is_async, now, reached

MARK = "eventkit-app"
"""The header of a schedule, and of the tasks it creates, that names the application."""

logger = logging.getLogger("eventkit")


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
        self._limits: dict[str, SetClusterLimit] = {}
        self.success_hooks: tuple[Hook, ...] = ()
        self.failure_hooks: tuple[Hook, ...] = ()
        self.closing: tuple[Callable[[], Awaitable[None]], ...] = ()
        """Callables that a worker awaits after it has ended, in its event loop."""
        APPS.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} with {len(self._tasks)} tasks>"

    @property
    def queues(self) -> tuple[str, ...]:
        """The names of the queues of tasks and outboxes."""
        return tuple(dict.fromkeys(one.queue for one in (*self.tasks.values(), *self.outboxes)))

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

    def cluster_limit(self, name: str, max_running: int, *, queues: Iterable[str]) -> None:
        """Let at most *max_running* tasks of all *queues* run at once, in all workers together."""
        self._limits[name] = cluster_limit(name, max_running, queues)

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
        """Store the declared schedules, limits and settings in the database.  Awaited on an async kit.

        Workers do it when they start.  Schedules that this app stored before and no longer declares are removed.
        """

        def store(kit: Any) -> Any:
            return self._install(kit) if is_async(kit) else at_once(self._install(kit))

        return reached(self._reached() if kit is None else kit, store)

    async def _install(self, kit: Any) -> None:
        for task in self.tasks.values():
            if task.settings:
                await now(kit.queue(task.queue).configure(**task.settings))
        outboxes = [OpenOutbox(outbox.queue, outbox.ordered) for outbox in self.outboxes]
        for operation in (*self._limits.values(), *outboxes):
            await now(kit._connection.execute(operation))
        for one in self.schedules:
            payload = {"task": one.task.name, "args": one.args}
            options = {name: getattr(one.task, name) for name in ("max_attempts", "priority", "expires")}
            options |= {"tz": one.tz, "catch_up": one.catch_up, "headers": {MARK: self.name}}
            await now(kit.schedules.add(one.name, one.when, one.task.queue, payload, **options))
        for stored in await now(kit.schedules.list()):
            if stored.headers.get(MARK) == self.name and stored.name not in self._schedules:
                logger.warning("schedule %r is removed: app %r no longer declares it", stored.name, self.name)
                await now(kit.schedules.remove(stored.name))

    def worker(self, **settings: Any) -> Runs:
        """Return a worker that runs the declared tasks, with the settings of `eventkit.worker.Worker`."""
        # Imported by name, as backends are: workers import apps, and apps import no workers.
        made: Runs = importlib.import_module("eventkit.worker").Worker(self, **settings)
        return made

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

    def include(self, *blueprints: Blueprint) -> None:
        """Declare what the blueprints declare, now and later."""
        self._include(blueprints, Blueprint)


class AsyncApp(Application):
    """`App` for code that awaits: `enqueue` is awaited.

    It connects to its URL on first use, once for each event loop, or uses the `AsyncEventKit` passed to `bind`.
    """

    _opening: tuple[asyncio.AbstractEventLoop, asyncio.Future[AsyncEventKit]] | None = None

    @property
    def task(self) -> AsyncDeclares:
        """The decorator of a function that is a task; `TaskDeclaration` describes its options."""
        return self._task

    def include(self, *blueprints: AsyncBlueprint) -> None:
        """Declare what the blueprints declare, now and later."""
        self._include(blueprints, AsyncBlueprint)

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
