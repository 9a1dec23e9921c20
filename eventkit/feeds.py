"""The plans of the iterators of `subscribe`, `work` and `listen`, the same for both flavours.

A feed reads, hands out items, and sleeps on a probe when there are none.  A database that is busy for longer than a
call may wait does not end an iterator: it tries again.
"""

import sys
from time import monotonic
from typing import Any

from .checks import MOST, default_worker
from .codec import Codec
from .errors import PASSING, LeaseLost
from .handling import logger
from .heartbeat import Lease, SingleLease
from .messages import HAND, Feed, Plan, Sleep
from .operations import Operation, Origin, Probe, channel, finish, stream
from .operations import Plan as OperationPlan
from .operations.claim import fresh_token
from .operations.position import Position, ReadPosition
from .rota import Rota
from .values import Event, Notification, Task

_LINGER = 0.1
"""Seconds without an event after which the offset is saved."""


class Events(Feed[Event[Any]]):
    """The events after *origin*, and then the new ones; with *exclusive*, only while the consumer's name is held."""

    def __init__(
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
        exclusive: bool,
    ) -> None:
        super().__init__()
        self._topic = topic
        self._codec = codec
        self._consumer = consumer
        self._origin = origin
        self._batch = batch
        self._automatic = consumer is not None and (every_n > 0 or every_s > 0)
        self._window = every_n if self._automatic and every_n else sys.maxsize
        self._every_s = every_s if self._automatic and every_s else float("inf")
        self._skip = skip
        self._hold = _Hold(topic, consumer) if consumer is not None and exclusive else None
        self._lease: SingleLease | None = None
        self._placed = False
        self._follows = False
        """True if another process may have moved the consumer since the position was read."""
        self._position: Position | None = None
        self._saved = -1
        self._seen: frozenset[int] = frozenset()
        self._save_at = self.look_at = monotonic() + self._every_s

    def attach(self) -> OperationPlan[None]:
        """Find the offset after which to start."""
        if self._position is None:
            after, self._seen = yield from _located(self._origin)
            position: Any = yield ReadPosition(self._topic, after)
            self._position, self._saved = position, after

    def steps(self) -> Plan:
        """Acquire the consumer's name; then read, hand out, and save from time to time and when idle."""
        left = self._window
        while True:
            try:
                if not self._placed:
                    yield from self._take_place()
                wanted = min(self._batch, left)
                assert self._position is not None
                page = yield stream.FollowEvents(
                    self._topic, self._consumer, self._position, wanted, self._codec, self._skip
                )
                if page.rewound is not None:
                    self._rewind(page.rewound)
                found = page.events
                self.items.extend([event for event in found if event.offset not in self._seen] if self._seen else found)
                while self.items:
                    yield HAND
                    yield from self._look()
                self._position = position = page.position
                left -= len(found)
                if not left:
                    yield from self._save()
                    left = self._window
                if len(found) < wanted:
                    ahead = stream.EventsAhead.of(self._topic, position)
                    # Wait for events that follow at once: a save for each few events of a busy stream would be costly.
                    if self._unsaved[0] and (yield Sleep(ahead, monotonic() + _LINGER)):
                        continue
                    yield from self._save()
                    yield Sleep(ahead)
            except PASSING:
                continue

    def leave(self) -> OperationPlan[None]:
        """Save the offset of handled events, and release the name; later events are read again."""
        if self._position is not None and self.current is not None and self.current.offset > self._position.offset:
            self._position = self._position.at(self.current.offset, self.current.created_ms)
        self.items.clear()
        lease, self._lease = self._lease, None
        if self._hold is None:
            yield from self._save()
        elif lease is not None:
            self.heartbeat.remove(lease)
            self._placed, self._follows = False, True
            unsaved = self._unsaved
            self._saved = max(self._saved, unsaved[0])
            yield self._hold.leave(*unsaved)

    @property
    def _unsaved(self) -> tuple[int, int]:
        """The offset to save, and the time of its event; 0 and 0 for none."""
        handled = self.handled
        if self._automatic and handled is not None and handled.offset > self._saved:
            return handled.offset, handled.created_ms
        return 0, 0

    def _rewind(self, saved: Position) -> None:
        """Move back to the saved position, after the database has gone back."""
        logger.warning(
            "the database has gone back, to a backup or a standby's state: consumer %r of topic %r continues after "
            "its saved offset %s",
            self._consumer,
            self._topic,
            saved.offset,
        )
        self._position, self._saved = saved, saved.offset
        self._seen = frozenset()
        self.current = self.handled = None

    def _take_place(self) -> Plan:
        yield from self.attach()
        if self._hold is not None and self._lease is None:
            yield from self._take_name(self._hold)
        if self._hold is not None and (self._follows or isinstance(self._origin, stream.ReadOffset)):
            # An earlier holder may have moved it until now.
            saved: Any = yield stream.ReadOffset(self._topic, self._hold.consumer)
            assert self._position is not None
            ours = self._position.offset
            after = (saved or ours) if self.current is None else max(ours, saved)
            if after != ours:
                position: Any = yield ReadPosition(self._topic, after)
                self._position = position
            self._saved = saved if self.current is None else max(self._saved, saved)
        self._placed = True

    def _take_name(self, hold: "_Hold") -> Plan:
        began = monotonic()
        while not (yield hold.acquire()):
            if not self._follows:
                self._follows = True
                logger.warning(
                    "consumer %r of stream %r is held by %s: this subscriber waits as a standby until it is free",
                    hold.consumer,
                    hold.topic,
                    (yield hold.read_holder()),
                )
            yield Sleep(hold.ahead())
            began = monotonic()
        self._lease = SingleLease(hold.keep(0, 0), HOLD_MS / 1000, began + HOLD_MS / 1000 - monotonic(), self._lost)
        self.heartbeat.add(self._lease)
        self._look_later()

    def _lost(self) -> None:
        """Fail: another process has or had the name."""
        if self._lease is not None:
            self._lease = None
            self.failure = LeaseLost(
                f"consumer {self._consumer!r} of stream {self._topic!r} was taken over by another process: "
                f"its offset is saved no more; subscribe again to wait until the name is free"
            )
            self.stop.set()
            self.look_at = 0.0

    def _look(self) -> Any:
        """Save if it is time; and hand out no event that may be another holder's by now."""
        if monotonic() >= self._save_at:
            yield from self._save()
        while self._lease is not None and monotonic() >= self._lease.until:
            yield from self._save(renew=True)
        self._look_later()

    def _look_later(self) -> None:
        if self.failure is None:
            self.look_at = self._save_at if self._lease is None else min(self._save_at, self._lease.until)

    def _save(self, renew: bool = False) -> Any:
        self._save_at = monotonic() + self._every_s
        self._look_later()
        (offset, created), lease, began = self._unsaved, self._lease, monotonic()
        if self._consumer is None or not (offset or renew) or (self._hold and lease is None):
            return
        try:
            if self._hold is None:
                yield stream.SaveHandled(self._topic, self._consumer, offset, created)
            elif lease is not None and not lease.answered(began, (yield self._hold.keep(offset, created))):
                return
            self._saved = max(self._saved, offset)
        except PASSING:
            pass  # The next save includes it; until then, events would only be delivered again.


HOLD_MS = 12_000
"""The milliseconds after which a dead holder of a consumer's name is replaced."""


class _Hold:
    """A consumer's name, and the operations of a subscriber that wants it."""

    def __init__(self, topic: str, consumer: str) -> None:
        self.topic, self.consumer = topic, consumer
        self._name = (topic, consumer, 0)
        self._holder = default_worker()
        self._token = fresh_token()

    def acquire(self) -> stream.AcquireConsumer:
        self._token = fresh_token()
        return stream.AcquireConsumer(*self._name, self._holder, self._token, HOLD_MS)

    def keep(self, offset: int, created: int) -> stream.KeepConsumer:
        return stream.KeepConsumer(*self._name, self._token, HOLD_MS, offset, created)

    def leave(self, offset: int, created: int) -> stream.LeaveConsumer:
        return stream.LeaveConsumer(*self._name, self._token, offset, created)

    def ahead(self) -> stream.ConsumerAhead:
        return stream.ConsumerAhead(*self._name, HOLD_MS)

    def read_holder(self) -> stream.ReadConsumerHolder:
        return stream.ReadConsumerHolder(*self._name)


class Tasks(Feed[Task[Any]]):
    """The tasks of the queues of *rota*, claimed as needed.

    While the first tasks of a batch are processed, the leases of the others are renewed; a task whose lease may have
    run out, because this process was suspended, is not handed out.
    """

    def __init__(self, rota: Rota, probe: Probe) -> None:
        super().__init__()
        self._rota = rota
        self._probe = probe
        self._lease: _BatchLease | None = None

    def steps(self) -> Plan:
        """Claim and hand out."""
        while True:
            try:
                yield from self._claim()
                while self.items:
                    yield HAND
                    self._drop_lapsed()
            except PASSING:
                continue

    def leave(self) -> OperationPlan[None]:
        """Release tasks that were claimed and not handed out."""
        self._end_lease()
        held = []
        while (task := self._first()) is not None:
            held.append((task.id, task.token))
        if held:
            yield finish.ReleaseMany(held)

    def _claim(self) -> Plan:
        for claim in self._rota:
            tasks = yield claim
            self._rota.note(claim, len(tasks))
            if tasks:
                self._end_lease()
                self._lease = _BatchLease(self, tasks[0].lease_ms)
                self.look_at = self._lease.until
                self.items.extend(tasks)
                if len(tasks) > 1:
                    self.heartbeat.add(self._lease)
                return
        yield Sleep(self._probe)

    def _drop_lapsed(self) -> None:
        """Drop the tasks that may be another worker's by now, and set when to check the others."""
        lease = self._lease
        if not self.items or lease is None:
            return
        self.look_at = lease.until  # Set before `lost` is read; a lease lost later would otherwise wait for that time.
        now, lost, kept = monotonic(), lease.lost, list[Task[Any]]()
        if now < lease.until and not lost:
            return
        while (task := self._first()) is not None:
            if now < lease.until and task.id not in lost:
                kept.append(task)
            else:
                logger.warning("the lease of task %s of queue %r was lost before it began", task.id, task.queue)
        self.items.extend(kept)

    def _end_lease(self) -> None:
        if self._lease is not None:
            self.heartbeat.remove(self._lease)
            self._lease = None

    def _first(self) -> Task[Any] | None:
        """Return the next task, unless another thread has taken it."""
        try:
            return self.items.popleft()
        except IndexError:
            return None


class _BatchLease(Lease):
    """The leases of the tasks of a batch that were not handed out."""

    def __init__(self, tasks: Tasks, milliseconds: int) -> None:
        seconds = milliseconds / 1000
        super().__init__(seconds, tasks.asked_at + seconds - monotonic())
        self._milliseconds = milliseconds
        self._tasks = tasks
        self.lost: frozenset[int] = frozenset()

    @property
    def renewal(self) -> finish.ExtendMany:
        """Return the renewal of the remaining tasks."""
        return finish.ExtendMany(sorted((task.id, task.token) for task in self._held()), self._milliseconds)

    def answered(self, began: float, held: list[int]) -> bool:
        """Continue with the held tasks; let the plan drop the others."""
        super().answered(began, True)
        lost = {task.id for task in self._held()}.difference(held)
        if lost:
            self.lost |= lost
            self._tasks.look_at = 0.0
        return bool(held)

    def _held(self) -> list[Task[Any]]:
        return [task for task in list(self._tasks.items) if task.id not in self.lost]


class Notifications(Feed[Notification[Any]]):
    """The notifications of some channels that are committed from now on."""

    def __init__(self, channels: tuple[str, ...], codec: Codec, origin: Operation[Any] | int) -> None:
        super().__init__()
        self._channels = channels
        self._codec = codec
        self._origin = origin
        self._last: tuple[int, int] | None = None
        self._seen: frozenset[int] = frozenset()

    def attach(self) -> OperationPlan[None]:
        """Find the id after which to start."""
        if self._last is None:
            after, self._seen = yield from _located(self._origin)
            last: Any = yield channel.FindNotification(self._channels, after, MOST)
            self._last = last

    def steps(self) -> Plan:
        """Read and hand out."""
        while True:
            try:
                yield from self.attach()
                assert self._last is not None
                found, last = yield channel.FollowNotifications(self._channels, self._last, 1000, self._codec)
                self.items.extend(notification for notification in found if notification.id not in self._seen)
                while self.items:
                    yield HAND
                self._last = last
                if not found:
                    yield Sleep(channel.NotificationsAhead(self._channels, *last))
            except PASSING:
                continue

    def leave(self) -> OperationPlan[None]:
        """Drop items that were not handed out: they are read again."""
        if self.current is not None:
            self._last = (self.current.id, self.current.created_ms)
        self.items.clear()
        yield from ()


def _located(origin: Operation[Any] | int) -> Any:
    place = (yield origin) if isinstance(origin, Operation) else origin
    return place if isinstance(place, Origin) else Origin(place)
