"""Delivering what is in outboxes, for threads.  `deliveries_async` is the same for asyncio."""

import inspect
import threading
from time import monotonic
from typing import Any

from .delivery import Round, age_when_claimed, message_of, when_delivered
from .errors import PASSING
from .feeds import Tasks
from .loops import Loops
from .messages import Messages
from .protocols import Connection
from .records import Message, Task


class Deliveries:
    """The workers of a kit's outboxes.  What they have begun is finished before the kit is closed."""

    awaits = False
    """Whether a callable may be a coroutine function."""

    def __init__(self, connection: Connection, loops: Loops) -> None:
        self._connection = connection
        self._loops = loops
        self._changed = threading.Condition()
        self._running: dict[Messages[Task[Any]], int] = {}

    def run(self, round: Round) -> None:
        """Deliver until the outbox is stopped or the kit is closed."""
        while not self._connection.closing:
            try:
                self._connection.execute(round.opening)
                break
            except PASSING:
                continue  # As for every loop, what passes by itself is no reason to end.
        tasks = self._loops.iterate(Tasks(round.rota, round.lookout))
        with self._changed:
            self._running[tasks] = threading.get_ident()
        try:
            for task in tasks:
                self._deliver(round, task)
                if self._connection.closing or round.lookout.stopped.is_set():
                    return
        finally:
            try:
                tasks.close()
            finally:
                with self._changed:
                    del self._running[tasks]
                    self._changed.notify_all()

    def rouse(self) -> None:
        """Let everybody who sleeps look whether to go on."""
        self._connection.rouse()

    def close(self) -> None:
        """Give back what was not begun, and wait for what was; not for the delivery that asks for it."""
        with self._changed:
            for tasks in list(self._running):
                tasks.settle()
            me = threading.get_ident()
            self._changed.wait_for(lambda: all(thread == me for thread in self._running.values()))

    def _deliver(self, round: Round, task: Task[Any]) -> None:
        began = monotonic()
        delivered = False
        try:
            with self._loops.handling(task, when_delivered(task, round.ordered)):
                _call(round, message_of(task))
                delivered = True
        finally:
            round.tally.count(delivered, age_when_claimed(task) + monotonic() - began)


def _call(round: Round, message: Message[Any]) -> None:
    answer = round.deliver(message)
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError("deliver gave something to await, which a sync kit cannot: use connect_async")
