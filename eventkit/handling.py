"""Claimed tasks: how the lease of one is kept, and how it ends.

`Retry`, `Snooze` and `Permanent` choose the end of a task; any other `Exception` means another attempt, and a
`BaseException` (a shutdown, a cancellation) releases the task without counting the attempt.
"""

import asyncio
import logging
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any
from weakref import WeakSet, ref

from . import checks
from .backend import AsyncConnection, Connection
from .errors import PASSING, EventkitError, Unavailable
from .operations import Operation, finish
from .operations.claim import Ack
from .plans import Plan, run, run_async
from .retry import Policy, delay_after, encode
from .telemetry import tracing
from .values import Task

logger = logging.getLogger("eventkit")

APPS: WeakSet[Any] = WeakSet()
"""The applications of this process, which know the queues of their declared tasks."""


class Retry(Exception):
    """Raised in `handling`: retry after *delay* seconds, or by the queue's policy."""

    def __init__(self, delay: float | timedelta | None = None, error: str | None = None) -> None:
        super().__init__(error or "another attempt was requested")
        self.delay = delay


class Snooze(Exception):
    """Raised in `handling`: put the task back for *delay* seconds, without counting the attempt."""

    def __init__(self, delay: float | timedelta) -> None:
        super().__init__("another time was requested")
        self.delay = delay


class Permanent(Exception):
    """Raised in `handling`: no further attempt can succeed; the task is dead now."""

    reason = "failed"
    """The reason of the dead task."""


def outcome(task: Task[object], error: BaseException | None) -> Operation[bool]:
    """Return the operation for *task*, whose work has ended with *error*, or successfully."""
    if error is None:
        return Ack(task.id, task.token)
    if not isinstance(error, Exception):
        return finish.Release(task.id, task.token)
    return failure(task, error)


def failure(
    task: Task[object],
    error: BaseException,
    max_attempts: int | None = None,
    backoff: Policy | None = None,
    final: bool = False,
) -> Operation[bool]:
    """Return the operation for *task*, whose run failed with *error*.

    A declaration may limit runs and pauses, and say that the error is *final*: the task is dead now.
    """
    if isinstance(error, Snooze):
        return finish.Snooze(task.id, task.token, _milliseconds(error.delay))
    text, code = explained(error), code_of(error)
    if isinstance(error, Permanent) or final:
        reason = error.reason if isinstance(error, Permanent) else "failed"
        return finish.Fail(task.id, task.token, text, reason, code)
    if max_attempts is not None and task.attempt >= max_attempts:
        # The row of a task that was enqueued without its declaration may allow more attempts.
        return finish.Fail(task.id, task.token, text, "exhausted", code)
    return finish.Retry(task.id, task.token, pause(error, task.attempt, backoff), text, code)


def code_of(error: BaseException) -> str:
    """Return the code of *error*: its attribute ``code``, if that is a short text, or the name of its class."""
    code = getattr(error, "code", None)
    return code if isinstance(code, str) and 0 < len(code) <= 100 and code.isprintable() else type(error).__name__


def pause(error: BaseException, attempt: int, backoff: Policy | None) -> int | None:
    """Return the milliseconds between *attempt*, which failed with *error*, and the next; None for the queue's."""
    if isinstance(error, Retry) and error.delay is not None:
        return _milliseconds(error.delay)
    return None if backoff is None else delay_after(attempt, encode(backoff))


def explained(error: BaseException) -> str:
    """Return the text of *error* to store: with a traceback, unless it was raised to choose an outcome."""
    return checks.text(str(error) if isinstance(error, Retry | Permanent) else trace(error))


def _milliseconds(delay: Any) -> int:
    """Return *delay* within the limits, and 0 for one that is no number, so that every task can be put back."""
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if not isinstance(seconds, int | float) or seconds != seconds:
        return 0
    return round(min(max(seconds * 1000, 0), checks.FOREVER))


def trace(error: BaseException) -> str:
    """Return the traceback of *error* from where it leaves this library, whose own frames are of no use."""
    step = error.__traceback__
    while step is not None and step.tb_frame.f_globals.get("__name__", "").startswith("eventkit."):
        step = step.tb_next
    return "".join(traceback.format_exception(type(error), error, step or error.__traceback__))


def report(task: Task[object], error: BaseException | None, still_ours: bool) -> None:
    """Log failures and lost leases, for the operator of the worker."""
    if isinstance(error, Exception) and not isinstance(error, Retry | Permanent | Snooze):
        logger.warning("task %s of queue %r failed in attempt %s", task.id, task.queue, task.attempt, exc_info=error)
    if not still_ours:
        logger.warning("the lease of task %s of queue %r had run out when its work ended", task.id, task.queue)


_AGAIN = 1.0
"""Seconds after which a renewal is tried again."""


class Lease:
    """A right that ends *seconds* after its last renewal, which is the operation that *renewal* makes."""

    def __init__(
        self, renewal: Callable[[], Operation[Any]], seconds: float, left: float, lost: Callable[[], object]
    ) -> None:
        now = time.monotonic()
        self.renewal = renewal
        self.seconds = seconds
        self.until = now + left
        """The time of the monotonic clock until which it is certainly held."""
        self.due = now + left / 3
        self._lost = lost

    def answered(self, began: float, held: Any) -> bool:
        """Process the answer of a renewal that *began* then; return whether there is something left to renew."""
        if held:
            self.until, self.due = began + self.seconds, time.monotonic() + self.seconds / 3
        else:
            self._lost()
        return bool(held)

    def unanswered(self) -> None:
        """Retry soon: the database was unavailable."""
        self.due = time.monotonic() + min(_AGAIN, self.seconds / 3)


def lease_of(task: Task[Any]) -> Lease:
    """Return the lease of *task*, while it is handled.

    The local clock only chooses the time of its renewals; the database decides whether it is still held.
    """

    def lost() -> None:
        logger.warning("the lease of task %s of queue %r was lost while it ran", task.id, task.queue)

    seconds = task.lease_ms / 1000
    left = max(0.0, min(task.lease_expires_ms / 1000 - time.time(), seconds))
    return Lease(lambda: finish.Extend(task.id, task.token, task.lease_ms), seconds, left, lost)


class _Heartbeat:
    """The renewal of leases."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._leases: dict[Lease, Any] = {}

    def _beat(self, lease: Lease) -> Plan[None]:
        """Renew *lease* once, and forget it if it is lost."""
        began = time.monotonic()
        try:
            held = yield lease.renewal()
        except Unavailable:
            lease.unanswered()
        except EventkitError:
            self._leases.pop(lease, None)
        else:
            with self._changed:
                if lease in self._leases and not lease.answered(began, held):
                    del self._leases[lease]


class Heartbeat(_Heartbeat):
    """A thread that renews each lease when a third of its time has passed."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        # A strong reference would let the thread keep alive a kit that is never closed.
        self._connection = ref(connection)
        self._wakes_at = 0.0
        self._thread: threading.Thread | None = None

    def add(self, lease: Lease) -> None:
        """Renew *lease* from now on."""
        with self._changed:
            self._leases[lease] = self._thread
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="eventkit-heartbeat", daemon=True)
                self._thread.start()
            elif lease.due < self._wakes_at:
                self._changed.notify()

    def remove(self, lease: Lease) -> None:
        """Stop renewing *lease*."""
        with self._changed:
            self._leases.pop(lease, None)

    def stop(self) -> None:
        """Stop renewing all leases."""
        with self._changed:
            self._leases.clear()
            self._thread = None
            self._changed.notify()

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                if self._thread is not me or self._connection() is None:
                    return
                now = time.monotonic()
                due = [lease for lease in self._leases if lease.due <= now]
                if not due:
                    self._wakes_at = min((lease.due for lease in self._leases), default=now + 60)
                    self._changed.wait(self._wakes_at - now)
                    continue
            for lease in due:
                self._renew(lease)

    def _renew(self, lease: Lease) -> None:
        if (connection := self._connection()) is not None:
            run(self._beat(lease), connection.execute)


class AsyncHeartbeat(_Heartbeat):
    """`Heartbeat` for asyncio: a timer for each lease, and a task once it has to be renewed."""

    def __init__(self, connection: AsyncConnection) -> None:
        super().__init__()
        self._connection = connection

    def add(self, lease: Lease) -> None:
        """Renew *lease* from now on."""
        loop = asyncio.get_running_loop()
        self._leases[lease] = loop.call_later(max(0.0, lease.due - time.monotonic()), self._start, lease)

    def remove(self, lease: Lease) -> None:
        """Stop renewing *lease*."""
        if (beat := self._leases.pop(lease, None)) is not None:
            beat.cancel()

    def stop(self) -> None:
        """Stop renewing all leases."""
        for lease in list(self._leases):
            self.remove(lease)

    def _start(self, lease: Lease) -> None:
        self._leases[lease] = asyncio.ensure_future(self._keep(lease))

    async def _keep(self, lease: Lease) -> None:
        while lease in self._leases:
            await run_async(self._beat(lease), self._connection.execute)
            await asyncio.sleep(max(0.0, lease.due - time.monotonic()))


class _Handling:
    """The work on a task: its lease is kept meanwhile, and its end is that of the work."""

    def __init__(self, loops: Any, task: Task[Any]) -> None:
        self._loops = loops
        self._task = task
        self._lease = lease_of(task)
        self._tracing = tracing(task) if task.headers else nullcontext()

    def begin(self) -> Task[Any]:
        """Keep the lease from now on."""
        self._loops.heartbeat.add(self._lease)
        self._tracing.__enter__()
        return self._task

    def end(self, error: BaseException | None) -> Any:
        """Ack the task, or do what *error* requests; return whether it is handled."""
        self._tracing.__exit__(None, None, None)
        return self._loops.complete(self._end(error))

    def _end(self, error: BaseException | None) -> Plan[bool]:
        try:
            while True:
                try:
                    still_ours = yield outcome(self._task, error)
                    break
                except PASSING:
                    continue  # The work is done; giving up would repeat it.
        finally:
            self._loops.heartbeat.remove(self._lease)
        if error is not None or not still_ours:
            report(self._task, error, still_ours)
        return isinstance(error, Exception)


class Handling(_Handling):
    """The context manager of `TaskQueue.handling`."""

    def __enter__(self) -> Task[Any]:
        return self.begin()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        handled: bool = self.end(error)
        return handled


class AsyncHandling(_Handling):
    """`Handling` for asyncio."""

    async def __aenter__(self) -> Task[Any]:
        return self.begin()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        handled: bool = await self.end(error)
        return handled
