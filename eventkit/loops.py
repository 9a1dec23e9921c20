"""Everything that waits, for threads.  `loops_async` is the same for asyncio, to be read beside it.

An iterator looks, hands out what it finds, and sleeps on a probe when there is nothing.  The connection's
`sleep` returns when it is worth looking again, and False when the kit is closing.  A database that is busy
for longer than a call may wait is no reason for an iterator to end: it looks again.
"""

import sys
import threading
from collections import deque
from collections.abc import Callable, Generator
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from .codec import Codec
from .errors import PASSING, Closed, QueueFull
from .handling import outcome, report
from .heartbeat import Heartbeat
from .messages import Messages
from .operations import Operation, Origin, Probe, channel, finish, stream
from .protocols import Connection
from .records import Event, Notification, Task
from .rota import Rota
from .telemetry import tracing

M = TypeVar("M")
T = TypeVar("T")

_LINGER = 0.1
"""Seconds without an event after which progress is saved."""


class Loops:
    """The loops of one kit."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._open: WeakKeyDictionary[Generator[Any], Callable[[], None]] = WeakKeyDictionary()
        self._heartbeat = Heartbeat(connection)

    def subscribe(
        self,
        topic: str,
        codec: Codec,
        consumer: str | None,
        origin: Operation[Any] | int,
        *,
        batch: int,
        every_n: int,
        every_s: float,
        skip: bool,
    ) -> Messages[Event[Any]]:
        """The events after *origin*, and then those to come."""
        connection = self._connection
        after, seen = self._locate(origin)
        saved = after
        handled: Event[Any] | None = None
        automatic = consumer is not None and (every_n > 0 or every_s > 0)
        window = every_n if automatic and every_n else sys.maxsize
        save_at = monotonic() + every_s if automatic and every_s else float("inf")

        def unsaved() -> int:
            """The offset that is to be saved; 0 for none."""
            return handled.offset if automatic and handled is not None and handled.offset > saved else 0

        def save() -> None:
            nonlocal saved, save_at
            if every_s:
                save_at = monotonic() + every_s
            if consumer is not None and (offset := unsaved()):
                try:
                    connection.execute(stream.SaveOffset(topic, consumer, offset))
                    saved = offset
                except PASSING:
                    pass  # The next occasion will do: what is not saved is only delivered again.

        def settle() -> None:
            nonlocal save_at
            save()
            save_at = 0.0

        def events() -> Generator[Event[Any]]:
            nonlocal after, handled
            left = window
            try:
                while not connection.closing:
                    wanted = min(batch, left)
                    try:
                        found = connection.execute(stream.ReadEvents(topic, after, wanted, codec, skip))
                    except PASSING:
                        continue
                    for event in [event for event in found if event.offset not in seen] if seen else found:
                        yield event
                        # A million times a second, so: no more than this for each.
                        handled = event
                        if monotonic() >= save_at:
                            save()
                            if connection.closing:
                                return
                    if found:
                        after = found[-1].offset
                        left -= len(found)
                    if not left:
                        save()
                        left = window
                    if len(found) < wanted:
                        # What comes at once is waited for, or a busy stream would cost a write for each few events.
                        if unsaved() and connection.sleep(stream.EventsAhead(topic, after), _LINGER):
                            continue
                        save()
                        if connection.closing or not connection.sleep(stream.EventsAhead(topic, after)):
                            return
            except Closed:
                return
            finally:
                if not connection.closing:
                    save()

        return self._track(Messages(events(), settle))

    def work(self, rota: Rota, probe: Probe) -> Messages[Task[Any]]:
        """The tasks of the queues of *rota*, claimed as they come."""
        connection = self._connection
        claimed: deque[Task[Any]] = deque()
        claiming = threading.Lock()

        def settle() -> None:
            with claiming:
                held = [(task.id, task.token) for task in claimed]
                claimed.clear()
                if held:
                    connection.execute(finish.ReleaseMany(held))

        def tasks() -> Generator[Task[Any]]:
            try:
                while True:
                    with claiming:
                        if connection.closing:
                            return
                        try:
                            for claim in rota:
                                claimed.extend(connection.execute(claim))
                                rota.note(claim, len(claimed))
                                if claimed:
                                    break
                        except PASSING:
                            continue
                    if not claimed and not connection.sleep(probe):
                        return
                    while (task := _first(claimed)) is not None:
                        yield task
            except Closed:
                return
            finally:
                if not connection.closing:
                    settle()

        return self._track(Messages(tasks(), settle))

    def listen(
        self, channels: tuple[str, ...], codec: Codec, origin: Operation[Any] | int
    ) -> Messages[Notification[Any]]:
        """The notifications of some channels that are committed from now on."""
        connection = self._connection
        after, seen = self._locate(origin)

        def notifications() -> Generator[Notification[Any]]:
            nonlocal after
            try:
                while not connection.closing:
                    try:
                        found = connection.execute(channel.ReadNotifications(channels, after, 1000, codec))
                    except PASSING:
                        continue
                    for notification in found:
                        after = notification.id
                        if after not in seen:
                            yield notification
                        if connection.closing:
                            return
                    if not found and not connection.sleep(channel.NotificationsAhead(channels, after)):
                        return
            except Closed:
                return

        return self._track(Messages(notifications(), lambda: None))

    def attempt(self, operation: Operation[T], probe: Probe, wait: float) -> T:
        """The answer, asked for again whenever it may come to something, for *wait* seconds."""
        deadline = monotonic() + wait
        while True:
            answer = self._connection.execute(operation)
            left = deadline - monotonic()
            if answer or left <= 0 or not self._connection.sleep(probe, left):
                return answer

    def enqueue(self, operation: Operation[Any], probe: Probe, wait: float) -> Any:
        """The enqueue, tried again whenever there may be room, for *wait* seconds."""
        deadline = monotonic() + wait
        while True:
            try:
                return self._connection.execute(operation)
            except QueueFull:
                if not self._connection.sleep(probe, max(0.0, deadline - monotonic())):
                    raise

    def repeat(self, work: Callable[[], Any], probe: Probe) -> None:
        """Do *work* whenever *probe* is ready, until the kit is closed."""
        connection = self._connection
        connection.execute(probe)  # A kit that is closed says so; from here on, closing it is the end.
        try:
            while not connection.closing:
                try:
                    work()
                except PASSING:
                    continue
                if not connection.sleep(probe):
                    return
        except Closed:
            return

    def handling(self, task: Task[Any], done: Operation[bool] | None = None) -> "Handling":
        """Around the work on *task*; *done* is to take the place of the ack."""
        return Handling(self._connection, self._heartbeat, task, done)

    def close(self) -> None:
        """Settle every open iterator, and end the heartbeat."""
        for settle in list(self._open.values()):
            settle()
        self._heartbeat.stop()

    def _locate(self, origin: Operation[Any] | int) -> Origin:
        place = self._connection.execute(origin) if isinstance(origin, Operation) else origin
        return place if isinstance(place, Origin) else Origin(place)

    def _track(self, messages: Messages[M]) -> Messages[M]:
        # By the generator, because that is all a ``for`` statement keeps.
        self._open[iter(messages)] = messages.settle
        return messages


class Handling:
    """Keeps a task's lease while the body runs; then acks it, or does what the exception asks for."""

    def __init__(
        self, connection: Connection, heartbeat: Heartbeat, task: Task[Any], done: Operation[bool] | None
    ) -> None:
        self._connection = connection
        self._heartbeat = heartbeat
        self._task = task
        self._done = done
        self._tracing = tracing(task)

    def __enter__(self) -> Task[Any]:
        self._heartbeat.add(self._task)
        self._tracing.__enter__()
        return self._task

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._tracing.__exit__(None, None, None)
        try:
            while True:
                try:
                    still_ours = self._connection.execute(outcome(self._task, error, self._done))
                    break
                except PASSING:
                    continue  # The work is done; losing the answer would have it done twice.
        finally:
            self._heartbeat.remove(self._task)
        report(self._task, error, still_ours)
        return isinstance(error, Exception)


def _first(claimed: deque[Task[Any]]) -> Task[Any] | None:
    """The next task to hand out, unless `settle` in another thread was faster."""
    try:
        return claimed.popleft()
    except IndexError:
        return None
