"""Keeping leases while work goes on, for threads: one thread for all tasks of a kit that are being handled."""

import threading
import time
from weakref import ref

from .errors import EventkitError, Unavailable
from .handling import first_beat, logger
from .operations.finish import Extend
from .protocols import Connection
from .records import Task

_AGAIN = 1.0


class Heartbeat:
    """Extends the lease of each task that was added, a third of a lease before it gets short."""

    def __init__(self, connection: Connection) -> None:
        # A strong reference would let the thread keep a kit that is never closed.
        self._connection = ref(connection)
        self._changed = threading.Condition()
        self._beats: dict[tuple[int, int], tuple[float, Task[object]]] = {}
        self._wakes_at = 0.0
        self._thread: threading.Thread | None = None

    def add(self, task: Task[object]) -> None:
        """Keep the lease of *task* from now on."""
        due = time.monotonic() + first_beat(task, time.time())
        with self._changed:
            self._beats[(task.id, task.token)] = (due, task)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="eventkit-heartbeat", daemon=True)
                self._thread.start()
            elif due < self._wakes_at:
                self._changed.notify()

    def remove(self, task: Task[object]) -> None:
        """The work on *task* has ended."""
        with self._changed:
            self._beats.pop((task.id, task.token), None)

    def stop(self) -> None:
        """Let all leases be."""
        with self._changed:
            self._beats.clear()
            self._thread = None
            self._changed.notify()

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                if self._thread is not me or self._connection() is None:
                    return
                now = time.monotonic()
                due = [task for at, task in self._beats.values() if at <= now]
                if not due:
                    self._wakes_at = min((at for at, _ in self._beats.values()), default=now + 60)
                    self._changed.wait(self._wakes_at - now)
                    continue
            for task in due:
                self._beat(task)

    def _beat(self, task: Task[object]) -> None:
        again = task.lease_ms / 3000
        connection = self._connection()
        try:
            held = connection is not None and connection.execute(Extend(task.id, task.token, task.lease_ms))
        except Unavailable:
            held, again = True, min(_AGAIN, again)
        except EventkitError:
            held = False
        with self._changed:
            if (task.id, task.token) not in self._beats:
                return
            if held:
                self._beats[(task.id, task.token)] = (time.monotonic() + again, task)
            else:
                del self._beats[(task.id, task.token)]
                logger.warning("the lease of task %s of queue %r was lost while it ran", task.id, task.queue)
