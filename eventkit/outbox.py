"""`Outbox` and `Inbox`: messages that leave with a transaction, and messages that arrive once."""

import asyncio
import inspect
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import uuid4

from . import checks, protocols
from .checks import KEEP, Duration, Headers
from .codec import Codec
from .errors import PASSING, Closed
from .loops import END
from .operations.claim import Claim, QueueOrder, TasksAhead, fresh_token
from .operations.coordination import (
    AddMessage,
    ConfigureInbox,
    OpenOutbox,
    PruneInbox,
    ReadInboxSettings,
    ReadOutbox,
    See,
)
from .plans import Call, Plan
from .queue import Tasks, task_row
from .values import Message, NewTask, Task

MESSAGE_ID = "message-id"
"""The header with a message's id, which stays with the task, also when it is dead or requeued."""

PREFIX = "outbox:"
"""The prefix of the names of outboxes' queues."""

_WINDOW = 60


class Tally:
    """The deliveries of the last minute, second by second."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._seconds: deque[tuple[int, int, int, float]] = deque(maxlen=_WINDOW)

    def count(self, delivered: bool, latency: float) -> None:
        """Count a delivery that ended *latency* seconds after its message was added."""
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
        """Return deliveries, failures, and the mean latency of the deliveries."""
        since = int(time.monotonic()) - _WINDOW
        with self._mutex:
            recent = [entry for entry in self._seconds if entry[0] > since]
        delivered = sum(successes for _, successes, _, _ in recent)
        latency = sum(total for *_, total in recent) / delivered if delivered else None
        return delivered, sum(failures for _, _, failures, _ in recent), latency


class Deliveries:
    """The workers of a kit's outboxes.  Closing the kit waits for deliveries in progress."""

    awaits = False
    """True if a callable may be a coroutine function."""
    event: Any = threading.Event

    def __init__(self, loops: Any) -> None:
        self.loops = loops
        self.tallies: defaultdict[str, Tally] = defaultdict(Tally)
        self.running: dict[Any, tuple[Any, Any]] = {}
        """The iterators of the workers, each with its thread or its task, and an event that says that it has ended."""

    def close(self, caller: Any) -> Any:
        """Release claimed messages, and wait for deliveries in progress, except one that *caller* makes."""
        return self.loops.run(self._close(caller))

    def _close(self, caller: Any) -> Plan[None]:
        running = list(self.running.items())
        for tasks, _ in running:
            yield Call(tasks.settle)
        for _, (worker, ended) in running:
            if worker != caller:
                yield Call(ended.wait)

    def caller(self) -> Any:
        """Return the identity of the caller's thread or task."""
        return threading.get_ident()

    def leave(self, tasks: Any) -> Any:
        """End an iterator."""
        tasks.close()

    def call(self, deliver: Callable[[Message[Any]], Any], message: Message[Any]) -> Any:
        """Deliver the message; return whether the call was cancelled meanwhile."""
        called(deliver, message)
        return False


class AsyncDeliveries(Deliveries):
    """`Deliveries` for asyncio."""

    awaits = True
    event = asyncio.Event

    def caller(self) -> Any:
        """Return the identity of the caller's task."""
        return asyncio.current_task()

    async def leave(self, tasks: Any) -> None:
        """End an iterator."""
        await tasks.aclose()

    async def call(self, deliver: Callable[[Message[Any]], Any], message: Message[Any]) -> bool:
        """Deliver the message; return whether the call was cancelled meanwhile.  A blocking callable runs in a thread.

        A thread cannot be stopped, so its result counts: a message being delivered is not released to another worker.
        """
        cancelled = False
        if inspect.iscoroutinefunction(deliver):
            await deliver(message)
            return cancelled
        work = asyncio.ensure_future(asyncio.to_thread(deliver, message))
        try:
            answer = await asyncio.shield(work)
        except asyncio.CancelledError:
            cancelled = True
            await asyncio.wait({work})
            answer = work.result()
        if inspect.isawaitable(answer):
            await answer
        return cancelled


@protocols.documented(protocols.Inbox)
class Inbox:
    """The implementation of `protocols.Inbox` and `AsyncInbox`."""

    def __init__(self, execute: Callable[..., Any], consumer: str) -> None:
        self.consumer = checks.name("consumer", consumer)
        self._execute = execute

    def once(self, message_id: str, *, tx: Any) -> Any:
        if tx is None:
            raise ValueError(
                "once() runs inside the transaction of the message's effects: pass tx=session, "
                "or the one of kit.transaction()"
            )
        return self._execute(See(self.consumer, checks.name("message", message_id, 1000)), tx)

    def prune(self, *, older_than: Duration) -> Any:
        return self._execute(PruneInbox(self.consumer, checks.milliseconds("older_than", older_than)))

    def configure(self, *, keep: Duration | None = KEEP) -> Any:
        given = checks.settings(keep=(keep, checks.milliseconds))
        return self._execute(ConfigureInbox(self.consumer, list(given), **given))

    def settings(self) -> Any:
        return self._execute(ReadInboxSettings(self.consumer))


def called(deliver: Callable[[Message[Any]], Any], message: Message[Any]) -> None:
    """Call a function that blocks; raise ``TypeError`` if it returned an awaitable, so that it is not acked."""
    answer = deliver(message)
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(
            "deliver returned an awaitable, which is not awaited here: define it with async def, and use connect_async "
            "or a worker"
        )


def message_of(task: Task[Any]) -> Message[Any]:
    """Return the message of a task; one enqueued by plain SQL has no message id, and gets its task's."""
    headers, name = dict(task.headers), task.queue.removeprefix(PREFIX)
    message_id = headers.pop(MESSAGE_ID, f"{task.queue}:{task.id}")
    return Message(message_id, name, task.group, task.payload, headers, task.attempt, task.enqueued_ms)


@protocols.documented(protocols.Outbox)
class Outbox:
    """The implementation of `protocols.Outbox` and `AsyncOutbox`."""

    def __init__(
        self,
        execute: Callable[..., Any],
        deliveries: Any,
        queue: Any,
        codec: Codec,
        deliver: Callable[[Message[Any]], Any] | None,
        ordered: bool,
    ) -> None:
        self.name = queue.name.removeprefix(PREFIX)
        self.queue = queue
        self._execute = execute
        self._deliveries = deliveries
        self._codec = codec
        self._deliver = deliver
        self._ordered = ordered
        self._tally = deliveries.tallies[self.name]
        self._stopped = False
        self._feeds: set[Tasks] = set()
        """The tasks of every `run` in progress."""
        if deliver is not None and not callable(deliver):
            raise TypeError(f"deliver is a callable that takes a message, not {type(deliver).__name__}")
        if inspect.iscoroutinefunction(deliver) and not deliveries.awaits:
            raise TypeError("deliver is a coroutine function, which a sync kit cannot await: use connect_async")

    def add(
        self,
        payload: Any,
        *,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        priority: int = 0,
        expires: Duration | datetime | None = None,
        key: str | None = None,
        headers: Headers = None,
        tx: Any = None,
    ) -> Any:
        if headers is not None and MESSAGE_ID in headers:
            raise ValueError(f"the header {MESSAGE_ID!r} is set by the outbox: leave it out, add() returns the id")
        message_id = str(uuid4())
        headers = {**(headers or {}), MESSAGE_ID: message_id}
        task = NewTask(payload, delay, run_at, priority, None, expires, key, headers)
        text, names, level, _, group, pause, due, expires_in, expires_at, _ = task_row(
            self._codec, self.queue.name, task
        )
        return self._execute(
            AddMessage(self.queue.name, text, names, group, message_id, level, pause, due, expires_in, expires_at), tx
        )

    def run(self, worker: str | None = None, *, batch: int = 1) -> Any:
        if self._deliver is None:
            raise ValueError(f"outbox {self.name!r} has no deliver function: kit.outbox({self.name!r}, deliver=…)")
        worker = checks.default_worker() if worker is None else checks.name("worker", worker)
        checks.count("batch", batch, least=1)
        queue = self.queue.name

        def claim(queue: str) -> Claim:
            if self._stopped:
                raise Closed(f"outbox {self.name!r} was stopped")
            return Claim(queue, worker, batch, None, fresh_token(), self._codec)

        return self._deliveries.loops.run(self._work(QueueOrder({queue: 1}, claim)))

    def _work(self, order: QueueOrder) -> Plan[None]:
        deliveries, queue, connection = self._deliveries, self.queue.name, self._deliveries.loops.connection
        while not connection.closing:
            try:
                yield OpenOutbox(queue, self._ordered)
                break
            except PASSING:
                continue  # A transient error does not end a loop.
        feed = Tasks(order, TasksAhead(queue))
        tasks, ended = deliveries.loops.iterate(feed), deliveries.event()
        self._feeds.add(feed)
        deliveries.running[tasks] = deliveries.caller(), ended
        try:
            while (task := (yield Call(tasks.take))) is not END:
                yield from self._handle(task)
                if connection.closing or self._stopped:
                    return
        finally:
            try:
                yield Call(deliveries.leave, tasks)
            finally:
                self._feeds.remove(feed)
                del deliveries.running[tasks]
                ended.set()

    def _handle(self, task: Task[Any]) -> Plan[None]:
        # The time until the claim is the database's, and the time from there on that of this process.
        age = max(0, task.lease_expires_ms - task.lease_ms - task.enqueued_ms) / 1000
        began = time.monotonic()
        delivered = cancelled = False
        handling = self._deliveries.loops.handling(self._deliveries.loops, task)
        handling.begin()
        try:
            try:
                cancelled = yield Call(self._deliveries.call, self._deliver, message_of(task))
                delivered = True
            except BaseException as error:
                if not (yield Call(handling.end, error)):
                    raise
            else:
                yield Call(handling.end, None)
        finally:
            self._tally.count(delivered, age + time.monotonic() - began)
        if cancelled:
            raise asyncio.CancelledError

    def stop(self) -> None:
        self._stopped = True
        # A later run is ended by its first claim.
        for feed in list(self._feeds):
            feed.stop.set()

    def stats(self) -> Any:
        return self._execute(ReadOutbox(self.queue.name, self._tally.numbers()))
