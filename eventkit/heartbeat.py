"""Renewing leases during work: one thread for all leases of a kit, or an asyncio task for each."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import ref

from .errors import EventkitError, Unavailable
from .handling import first_beat, logger
from .operations import Operation
from .operations.finish import Extend
from .protocols import AsyncConnection, Connection
from .values import Task

_AGAIN = 1.0


class Lease:
    """A right that ends *seconds* after its last renewal."""

    def __init__(self, seconds: float, left: float) -> None:
        now = time.monotonic()
        self.seconds = seconds
        self.until = now + left
        """The time of the monotonic clock until which it is certainly held."""
        self.due = now + left / 3

    @property
    def renewal(self) -> Operation[Any]:
        """Return the operation that renews it."""
        raise NotImplementedError

    def answered(self, began: float, held: Any) -> bool:
        """Process the answer of a renewal that *began* then; return whether there is something left to renew."""
        if held:
            self.until, self.due = began + self.seconds, time.monotonic() + self.seconds / 3
        return bool(held)

    def unanswered(self) -> None:
        """Retry soon: the database was unavailable."""
        self.due = time.monotonic() + min(_AGAIN, self.seconds / 3)


class SingleLease(Lease):
    """A lease that is lost as a whole."""

    def __init__(self, renewal: Operation[bool], seconds: float, left: float, lost: Callable[[], object]) -> None:
        super().__init__(seconds, left)
        self._renewal = renewal
        self._lost = lost

    @property
    def renewal(self) -> Operation[bool]:
        """Return the operation that renews it."""
        return self._renewal

    def answered(self, began: float, held: bool) -> bool:
        """Report the loss of the lease."""
        if not held:
            self._lost()
        return super().answered(began, held)


def of_task(task: Task[Any]) -> SingleLease:
    """Return the lease of *task*, while it is handled."""
    left = 3 * first_beat(task, time.time())
    return SingleLease(Extend(task.id, task.token, task.lease_ms), task.lease_ms / 1000, left, lambda: _report(task))


def _report(task: Task[Any]) -> None:
    logger.warning("the lease of task %s of queue %r was lost while it ran", task.id, task.queue)


class Heartbeat:
    """A thread that renews each lease when a third of its time has passed."""

    def __init__(self, connection: Connection) -> None:
        # A strong reference would let the thread keep alive a kit that is never closed.
        self._connection = ref(connection)
        self._changed = threading.Condition()
        self._leases: set[Lease] = set()
        self._wakes_at = 0.0
        self._thread: threading.Thread | None = None

    def add(self, lease: Lease) -> None:
        """Renew *lease* from now on."""
        with self._changed:
            self._leases.add(lease)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="eventkit-heartbeat", daemon=True)
                self._thread.start()
            elif lease.due < self._wakes_at:
                self._changed.notify()

    def remove(self, lease: Lease) -> None:
        """Stop renewing *lease*."""
        with self._changed:
            self._leases.discard(lease)

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
                self._beat(lease)

    def _beat(self, lease: Lease) -> None:
        began = time.monotonic()
        if (connection := self._connection()) is None:
            return
        try:
            held = connection.execute(lease.renewal)
        except Unavailable:
            lease.unanswered()
        except EventkitError:
            self.remove(lease)
        else:
            with self._changed:
                if lease in self._leases and not lease.answered(began, held):
                    self._leases.discard(lease)


class AsyncHeartbeat:
    """`Heartbeat` for asyncio: a timer for each lease, and a task once it has to be renewed."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._leases: dict[Lease, asyncio.TimerHandle | asyncio.Task[None]] = {}

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
        self._leases[lease] = asyncio.ensure_future(self._beat(lease))

    async def _beat(self, lease: Lease) -> None:
        while lease in self._leases:
            began = time.monotonic()
            try:
                held = await self._connection.execute(lease.renewal)
            except Unavailable:
                lease.unanswered()
            except EventkitError:
                del self._leases[lease]
            else:
                if lease in self._leases and not lease.answered(began, held):
                    del self._leases[lease]
            await asyncio.sleep(max(0.0, lease.due - time.monotonic()))
