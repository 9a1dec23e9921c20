"""`Worker`: runs what an application has declared, until it is told to stop."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from .. import arguments
from ..app.application import Application, AsyncApp
from ..errors import Closed, Unavailable
from ..kit import AsyncKit, backend_of, connect
from ..operations.queue import CANCELLED
from ..protocols import AsyncConnection, EventKit
from .acks import Acks
from .crew import GRACE, Crew
from .endings import Endings
from .hooks import Hooks
from .instruments import shown
from .intake import Intake
from .leases import Leases
from .metrics import Metrics
from .preparation import Preparation
from .presence import Presence
from .processes import Processes, check
from .readiness import Readiness
from .recovery import Recovery
from .routines import Kits, Routine
from .run import fields
from .settings import settings_of
from .signals import stopping
from .subscriptions import Subscriptions
from .threads import Threads

logger = logging.getLogger("eventkit.worker")

T = TypeVar("T")

_FAREWELL = 5.0
"""Seconds beyond the time to finish in which the database can still be told what became of tasks."""


class Worker:
    """Runs the tasks, schedules, subscribers and listeners of *app*; `WorkerSettings` says what can be set.

    A worker runs once: make another one to begin again.
    """

    def __init__(self, app: Application, **settings: Any) -> None:
        self._app = app
        self._settings = settings_of(settings)
        self._url = self._settings.url or app.url
        self._weights = self._settings.weights(app.queues)
        self.name = self._settings.name or arguments.default_worker()
        self.metrics = Metrics()
        """What it counts."""
        for declaration in app.tasks.values():
            if declaration.isolation == "process":
                check(declaration)
        self._recovery = Recovery(self._settings, self.metrics)
        self._readiness = Readiness(self._settings.readiness_file)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told_to_stop = asyncio.Event()
        self._stop_early = False
        self._ended = False
        self._unended: set[asyncio.Task[Any]] = set()
        self._named: set[asyncio.Task[Any] | None] = set()
        """Those of them that the log has named already."""
        self._services: set[asyncio.Task[Any]] = set()
        self._processes: Processes | None = None

    def run(self) -> int:
        """Run until a signal (SIGTERM, SIGINT) or `stop` ends it, then finish what is running; the exit code.

        It is 0, or 1 if async functions go on although they were cancelled: the process may have to be ended by
        ``os._exit`` then.  A second signal ends the process at once; what was running is done again when its leases
        have run out.
        """
        runner = asyncio.Runner()
        try:
            runner.run(self._run())
        finally:
            if not self._unended:  # Else it would wait for them for ever.
                runner.close()
        return 1 if self._unended else 0

    async def serve(self) -> None:
        """`run` in an event loop that is there already, whose signals are its owner's."""
        with shown(self.metrics):
            await self._serve()

    def stop(self) -> None:
        """Finish what is running, and then end; from any thread, and before it has begun too."""
        self._stop_early = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # It has ended already.
                self._loop.call_soon_threadsafe(self._told_to_stop.set)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._stop_early:
            self._told_to_stop.set()
        connected = await self._unless_stopped(self._connect)
        if connected is None:
            return
        connection, ours = connected
        kit = AsyncKit(connection)
        blocking: EventKit | None = None
        # What a task enqueues is enqueued by an AsyncApp that nobody else has given a kit.
        bound = isinstance(self._app, AsyncApp) and self._app.bound is None
        try:
            blocking = await self._blocking_kit()
            if bound:
                self._app.bind(kit)
            await self._unless_stopped(lambda: self._app.install(kit))
            await self._work(connection, kit, blocking)
        finally:
            if self._processes is not None:
                self._processes.close()
            for close in self._app.closing:
                await close()
            if bound:
                self._app.unbind()
            if blocking is not None:
                await asyncio.to_thread(blocking.close)
            if ours:
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
        """What *call* comes to once the database is there; None if the worker is told to stop before that."""
        work = asyncio.ensure_future(self._recovery.through(call))
        told = asyncio.ensure_future(self._told_to_stop.wait())
        try:
            await asyncio.wait({work, told}, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else None
        finally:
            for task in (work, told):
                task.cancel()
            await asyncio.wait({work, told})

    async def _connect(self) -> tuple[AsyncConnection, bool]:
        """A connection, and whether it is ours to close."""
        if self._url is not None:
            return await backend_of(self._url).connect_async(self._url), True
        kit = self._app.bound
        if isinstance(kit, AsyncKit):
            return kit._connection, False
        raise ValueError(
            "the worker has to connect by itself: give the app a URL, or the worker url=; bind() alone is enough only "
            "for an async kit of the worker's own event loop"
        )

    async def _blocking_kit(self) -> EventKit | None:
        """A kit for functions that block, if any of them is to have a context."""
        app = self._app
        hooked = bool(app.success_hooks or app.failure_hooks)
        for task in app.tasks.values():
            if not task.is_async and (hooked or task.signature.context or task.on_success or task.on_failure):
                if self._url is None:
                    raise ValueError(f"task {task.name!r} blocks and has a context, so it needs a URL to connect to")
                return await asyncio.to_thread(connect, self._url)
        return None

    async def _work(self, connection: AsyncConnection, kit: AsyncKit, blocking: EventKit | None) -> None:
        settings, metrics, app = self._settings, self.metrics, self._app
        threads, kits = Threads(), Kits(kit, blocking)
        self._processes = Processes(settings.children, self._url)
        routines = {name: Routine(task, metrics) for name, task in app.tasks.items()}
        leases = Leases(connection, lambda task: crew.lose(task))
        acks = Acks(connection, self._recovery, leases, metrics)
        hooks = Hooks(app, kits, threads)
        endings = Endings(acks, leases, hooks, metrics, connection.max_payload, self.stop)
        preparation = Preparation(app, routines, kits, endings)
        crew = Crew(
            preparation, acks, leases, endings, threads, self._processes, metrics, self._readiness, settings.concurrency
        )
        intake = Intake(
            connection,
            crew,
            acks,
            self._recovery,
            metrics,
            weights=self._weights,
            batches=_batches(routines),
            worker=self.name,
            lease=settings.lease_ms,
            most=settings.concurrency + settings.prefetch,
            poll=settings.notify_poll_interval_ms / 1000,
        )
        presence = Presence(connection, self.name, sorted(self._weights), metrics)
        subscriptions = Subscriptions(kit, threads, self._recovery, metrics)
        listening = [self._listen(partial(self._hear_of_cancellations, kit, crew), "the listener for cancellations")]
        for listener in app.listeners:
            for name in listener.channels:
                hear = partial(subscriptions.listen, listener, name)
                listening.append(self._listen(hear, f"listener {listener.function.__name__}"))

        async def claim() -> None:
            # What is cancelled, or sent to a listener, while nothing listens yet would never be heard.
            for attached in listening:
                await attached.wait()
            self._readiness.ready()
            logger.info("worker %s has begun: queues %s", self.name, ", ".join(self._weights) or "none")
            await self._recovery.through(intake.run)

        claiming = self._begin(claim)
        self._begin(leases.run)
        self._begin(kit.run_maintenance)
        self._begin(self._readiness.watch)
        present = self._begin(presence.run)
        if app.schedules:
            self._begin(kit.run_scheduler)
        for subscriber in app.subscribers:
            following = self._begin(partial(subscriptions.follow, subscriber))
            following.set_name(f"subscriber {subscriber.function.__name__}")
        seconds = settings.shutdown_seconds
        failure: BaseException | None
        try:
            failure = await self._until_stopped(claiming)
        except asyncio.CancelledError as error:
            failure, seconds = error, 0.0
        claiming.cancel()  # From here on it cannot say that it is ready.
        self._readiness.stopping()
        await asyncio.wait({claiming})
        await asyncio.gather(crew.finish(seconds), subscriptions.stop(seconds))
        try:
            async with asyncio.timeout(_FAREWELL):
                await hooks.ended()
                await acks.settled()
                present.cancel()
                await asyncio.wait({present})
                await presence.leave()
        except TimeoutError:
            logger.warning("the database could not be told of %s tasks: they are done again", len(acks))
            acks.abandon()
        except Unavailable:
            logger.warning("the database could not be told that worker %s has ended", self.name)
        for service in self._services:
            service.cancel()
        unended: set[asyncio.Task[Any]] = set()
        if self._services:
            _, unended = await asyncio.wait(self._services, timeout=GRACE)
        threads.close()
        for run in crew.stuck:
            for one in run.tasks:
                text = "%s: task %s does not end although it was cancelled; it runs again when its lease has run out"
                logger.critical(text, run.routine.name, one.id, extra=fields(one, run.routine))
        for service in unended:
            logger.critical("%s does not end although it was cancelled", service.get_name())
        self._named = {*unended, *(run.lane for run in crew.stuck)}
        if failure is not None:
            raise failure
        if self._named:
            return
        self._ended = True
        logger.info("worker %s has ended", self.name)

    def _begin(self, service: Callable[[], Awaitable[Any]]) -> "asyncio.Task[Any]":
        # What passes by itself, such as a server that is started again, is no reason for a service to end.
        task = asyncio.ensure_future(self._recovery.through(service))
        self._services.add(task)
        return task

    def _listen(self, service: Callable[[asyncio.Event], Awaitable[Any]], name: str) -> asyncio.Event:
        """Begin *service*, which sets the event once it listens."""
        attached = asyncio.Event()
        self._begin(partial(service, attached)).set_name(name)
        return attached

    async def _until_stopped(self, claiming: asyncio.Task[Any]) -> BaseException | None:
        """Return when the worker is to end: without an error when it was told to, or the error that a service had."""
        told = asyncio.ensure_future(self._told_to_stop.wait())
        try:
            while not told.done():
                done, _ = await asyncio.wait({told, *self._services}, return_when=asyncio.FIRST_COMPLETED)
                for service in done - {told}:
                    self._services.discard(service)
                    error = None if service.cancelled() else service.exception()
                    if isinstance(error, Closed) or (service is claiming and error is None):
                        return None  # By whoever has bound the kit.
                    if error is not None:
                        logger.critical("the worker cannot go on", exc_info=error)
                        return error
        finally:
            told.cancel()
        return None

    async def _hear_of_cancellations(self, kit: AsyncKit, crew: Crew, attached: asyncio.Event) -> None:
        async with await kit.listen(CANCELLED) as heard:
            attached.set()
            async for notification in heard:
                if isinstance(notification.payload, dict) and isinstance(id := notification.payload.get("id"), int):
                    crew.cancel(id)

    def _kill(self) -> bool:
        """Leave what runs as it is; False if nothing does, because the worker has ended."""
        if self._processes is not None:
            self._processes.close()
        return not self._ended


def _batches(routines: dict[str, Routine]) -> dict[str, int]:
    """For each queue, how many of its tasks are sure to go into one call."""
    batches: dict[str, int] = {}
    for routine in routines.values():
        queue = routine.declaration.queue
        batches[queue] = min(routine.batch, batches.get(queue, routine.batch))
    return batches
