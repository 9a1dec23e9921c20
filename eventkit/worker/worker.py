"""`Worker`: runs the tasks of an application, until it is stopped."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

from .. import checks
from ..app.app import Application, AsyncApp
from ..errors import Closed, Unavailable
from ..kit import AsyncKit, backend_of, connect
from ..operations.coordination import SignOff
from ..operations.queue import CANCELLED
from ..plans import completed
from ..protocols import AsyncConnection, EventKit
from .claims import Intake
from .endings import log
from .executor import GRACE, Executor
from .lifecycle import Shared, present, settings_of, stopping
from .metrics import shown
from .pools import Threads, check
from .subscriptions import Subscriptions

logger = logging.getLogger("eventkit.worker")

P = ParamSpec("P")
T = TypeVar("T")

_TIME_TO_SAVE = 5.0
"""Seconds, after the time to finish, in which outcomes can still be saved."""


class Worker:
    """A process's worker for the tasks, schedules, subscribers, listeners and outboxes of *app*.

    Its settings are `WorkerSettings`.  It runs once: create another one to start again.
    """

    def __init__(self, app: Application, **settings: Any) -> None:
        self._app = app
        self._shared = Shared(app, settings_of(settings), self.stop)
        self._recovery = self._shared.recovery
        self.name = self._shared.name
        self.metrics = self._shared.metrics
        """The worker's metrics."""
        for declaration in app.tasks.values():
            if declaration.isolation == "process":
                check(declaration)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._stop_early = False
        self._ended = False
        self._unended: set[asyncio.Task[Any]] = set()
        self._named: set[asyncio.Task[Any] | None] = set()
        """Those of them that the log has named already."""
        self._services: set[asyncio.Task[Any]] = set()

    def run(self) -> int:
        """Run until a signal (SIGTERM, SIGINT) or `stop`, then finish the running tasks; return the exit code.

        It is 0, or 1 if async functions still run although they were cancelled: the process may then have to be ended
        by ``os._exit``.  A second signal ends the process at once; running tasks run again when their leases have run
        out.
        """
        runner = asyncio.Runner()
        try:
            runner.run(self._run())
        finally:
            if not self._unended:  # With unended tasks, closing would wait for ever.
                runner.close()
        return 1 if self._unended else 0

    async def serve(self) -> None:
        """Run in the current event loop, whose owner handles signals."""
        self._loop = asyncio.get_running_loop()
        if self._stop_early:
            self._stopping.set()
        with shown(self.metrics):
            connected = await self._unless_stopped(self._connect)
            if connected is not None:
                await self._serve(*connected)

    def stop(self) -> None:
        """Finish the running tasks, and end.  Any thread may call it, even before the start."""
        self._stop_early = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # The loop has ended already.
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def _serve(self, connection: AsyncConnection, ours: bool) -> None:
        """Run with this connection, and close it in the end if it is *ours*."""
        shared = self._shared
        kit = AsyncKit(connection)
        shared.connection, shared.kit = connection, kit
        # Tasks enqueue through the app's kit: an AsyncApp without one uses the worker's.
        bound = isinstance(self._app, AsyncApp) and self._app.bound is None
        try:
            shared.blocking = await self._blocking_kit()
            if bound:
                self._app.bind(kit)
            await self._unless_stopped(lambda: self._app.install(kit))
            await self._work(kit)
        finally:
            shared.processes.close()
            if bound:
                self._app.unbind()
            await completed(self._leave(shared.blocking, kit if ours else None))

    async def _leave(self, blocking: EventKit | None, kit: AsyncKit | None) -> None:
        try:
            for close in self._app.closing:
                await close()
        finally:
            if blocking is not None:
                await asyncio.to_thread(blocking.close)
            if kit is not None:
                await kit.close()

    async def _run(self) -> None:
        with stopping(self.stop, self._kill):
            try:
                await self.serve()
            finally:
                rest = asyncio.all_tasks() - {asyncio.current_task()}
                for task in rest:
                    task.cancel()
                if rest:
                    _, self._unended = await asyncio.wait(rest, timeout=GRACE)
                for task in self._unended - self._named:
                    logger.critical("%s does not end although it was cancelled", task.get_name())

    async def _unless_stopped(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """Return the answer of *call*, retried while the database is unavailable; None if the worker is stopped."""
        work = asyncio.ensure_future(self._recovery.through(call))
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else None
        finally:
            for task in (work, stopped):
                task.cancel()
            await asyncio.wait({work, stopped})

    async def _connect(self) -> tuple[AsyncConnection, bool]:
        """Return a connection, and whether the worker has to close it."""
        if (url := self._shared.url) is not None:
            return await backend_of(url).connect_async(url), True
        kit = self._app.bound
        if isinstance(kit, AsyncKit):
            return kit._connection, False
        raise ValueError(
            "the worker needs a connection of its own: give the app a URL, or the worker url=; bind() is enough only "
            "for an async kit of the worker's own event loop"
        )

    async def _blocking_kit(self) -> EventKit | None:
        """Return a kit for blocking functions, if any of them takes a context."""
        app = self._app
        hooked = bool(app.success_hooks or app.failure_hooks)
        for task in app.tasks.values():
            if not task.is_async and (hooked or task.signature.context or task.on_success or task.on_failure):
                if self._shared.url is None:
                    raise ValueError(f"task {task.name!r} blocks and has a context, so it needs a URL to connect to")
                return await asyncio.to_thread(connect, self._shared.url)
        return None

    async def _work(self, kit: AsyncKit) -> None:
        """Run all services until the worker is stopped, then end them in order."""
        app, shared = self._app, self._shared
        shared.threads = Threads()
        executor, subscriptions = Executor(shared), Subscriptions(shared)
        listening = [self._listen(partial(self._cancel_runs, kit, executor), "the listener for cancellations")]
        for listener in app.listeners:
            for name in listener.channels:
                hear = partial(subscriptions.listen, listener, name)
                listening.append(self._listen(hear, f"listener {listener.function.__name__}"))
        # It waits for the database in each of its calls, and so not once more around all of them.
        claiming = asyncio.ensure_future(Intake(shared, executor).run(listening))
        self._services.add(claiming)
        self._begin(executor.leases.run)
        self._begin(kit.run_maintenance)
        self._begin(shared.readiness.watch)
        row = self._begin(present, shared)
        if app.schedules:
            self._begin(kit.run_scheduler)
        for subscriber in app.subscribers:
            self._begin(subscriptions.follow, subscriber).set_name(f"subscriber {subscriber.function.__name__}")
        seconds = checks.milliseconds("shutdown_timeout", shared.settings.shutdown_timeout) / 1000
        failure: BaseException | None
        try:
            failure = await self._until_stopped(claiming)
        except asyncio.CancelledError as error:
            failure, seconds = error, 0.0
        claiming.cancel()  # From here on it cannot report readiness.
        shared.readiness.stopping()

        async def end() -> None:
            await asyncio.wait({claiming})
            await asyncio.gather(executor.finish(seconds), subscriptions.stop(seconds))
            try:
                async with asyncio.timeout(_TIME_TO_SAVE):
                    await executor.endings.hooks_ended()
                    await executor.acks.settled()
                    row.cancel()
                    await asyncio.wait({row})
                    await shared.connection.execute(SignOff(self.name))
            except TimeoutError:
                logger.warning("the outcome of %s tasks could not be saved: they will run again", len(executor.acks))
                executor.acks.abandon()
            except Unavailable:
                logger.warning("the row of worker %s could not be deleted", self.name)
            for service in self._services:
                service.cancel()
            if self._services:
                await asyncio.wait(self._services, timeout=GRACE)

        try:
            await completed(end())
        except asyncio.CancelledError as error:
            failure = error
        shared.threads.close()
        for run in executor.stuck:
            for task in run.tasks:
                text = "does not end although it was cancelled; it runs again when its lease has run out"
                log(logging.CRITICAL, task, run.routine, text)
            self._named.add(run.runner)
        for service in self._services:
            if not service.done():
                logger.critical("%s does not end although it was cancelled", service.get_name())
                self._named.add(service)
        if failure is not None:
            raise failure
        if not self._named:
            self._ended = True
            logger.info("worker %s has ended", self.name)

    def _begin(self, service: Callable[P, Awaitable[Any]], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Task[Any]":
        # A transient failure, such as a restart of the server, does not end a service.
        task = asyncio.ensure_future(self._recovery.through(service, *args, **kwargs))
        self._services.add(task)
        return task

    def _listen(self, service: Callable[[asyncio.Event], Awaitable[Any]], name: str) -> asyncio.Event:
        """Begin *service*, which sets the event once it listens."""
        attached = asyncio.Event()
        self._begin(service, attached).set_name(name)
        return attached

    async def _until_stopped(self, claiming: asyncio.Task[Any]) -> BaseException | None:
        """Return None when the worker is stopped, or the error of a service that failed."""
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            while not stopped.done():
                done, _ = await asyncio.wait({stopped, *self._services}, return_when=asyncio.FIRST_COMPLETED)
                for service in done - {stopped}:
                    self._services.discard(service)
                    error = None if service.cancelled() else service.exception()
                    if isinstance(error, Closed) or (service is claiming and error is None):
                        return None  # The queues are empty, or the owner of the bound kit has closed it.
                    if error is not None:
                        logger.critical("the worker cannot continue", exc_info=error)
                        return error
        finally:
            stopped.cancel()
        return None

    async def _cancel_runs(self, kit: AsyncKit, executor: Executor, attached: asyncio.Event) -> None:
        async with await kit.listen(CANCELLED) as heard:
            attached.set()
            async for notification in heard:
                if isinstance(notification.payload, dict) and isinstance(id := notification.payload.get("id"), int):
                    executor.cancel(id)

    def _kill(self) -> bool:
        """Kill the children; return False if the worker has ended."""
        self._shared.processes.close()
        return not self._ended
