"""One delivery of an outbox: the message that is given to the callable, and what is counted of it."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from .operations import Operation
from .operations.outbox import AckInLane, Lookout, OpenOutbox
from .records import Message, Task
from .rota import Rota

MESSAGE_ID = "message-id"
"""The header that keeps a message's id: it goes wherever the task goes, into the dead letters and back."""

PREFIX = "outbox:"
"""What the names of the queues begin with that outboxes stand on."""

_WINDOW = 60


class Tally:
    """What was delivered in the last minute, second by second."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._seconds: deque[tuple[int, int, int, float]] = deque(maxlen=_WINDOW)

    def count(self, delivered: bool, latency: float) -> None:
        """One delivery has ended, *latency* seconds after its message was added."""
        second = int(time.monotonic())
        last = (second, 0, 0, 0.0)
        with self._mutex:
            if self._seconds and self._seconds[-1][0] == second:
                last = self._seconds.pop()
            _, successes, failures, total = last
            if delivered:
                self._seconds.append((second, successes + 1, failures, total + latency))
            else:
                self._seconds.append((second, successes, failures + 1, total))

    def numbers(self) -> tuple[int, int, float | None]:
        """Deliveries, failures, and the mean latency of the deliveries."""
        since = int(time.monotonic()) - _WINDOW
        with self._mutex:
            recent = [entry for entry in self._seconds if entry[0] > since]
        delivered = sum(successes for _, successes, _, _ in recent)
        latency = sum(total for *_, total in recent) / delivered if delivered else None
        return delivered, sum(failures for _, _, failures, _ in recent), latency


class Round(NamedTuple):
    """What a worker of an outbox goes by."""

    opening: OpenOutbox
    rota: Rota
    lookout: Lookout
    deliver: Callable[[Message[Any]], Any]
    ordered: bool
    tally: Tally


def message_of(task: Task[Any]) -> Message[Any]:
    """The message that *task* stands for.  One that came by plain SQL has no id of its own, but its task has."""
    headers = dict(task.headers)
    message_id = headers.pop(MESSAGE_ID, f"{task.queue}:{task.id}")
    outbox = task.queue.removeprefix(PREFIX)
    return Message(message_id, outbox, task.key, task.payload, headers, task.attempt, task.enqueued_ms)


def when_delivered(task: Task[Any], ordered: bool) -> Operation[bool] | None:
    """What takes the place of the ack, where others wait for their turn behind *task*."""
    return AckInLane(task.id, task.token, task.queue, task.key) if ordered and task.key is not None else None


def age_when_claimed(task: Task[Any]) -> float:
    """How many seconds ago *task* was added when it was claimed, by the database's clock."""
    return max(0, task.lease_expires_ms - task.lease_ms - task.enqueued_ms) / 1000
