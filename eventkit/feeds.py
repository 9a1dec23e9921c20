"""What `subscribe`, `work` and `listen` do, step by step: the plans of their iterators, alike for both flavours.

A feed reads, hands out what it finds, and sleeps on a probe when there is nothing.  A database that is busy for longer
than a call may wait is no reason for an iterator to end: it looks again.
"""

import logging
import sys
from time import monotonic
from typing import Any

from .arguments import MOST
from .codec import Codec
from .errors import PASSING
from .messages import HAND, Feed, Plan, Sleep
from .operations import Operation, Origin, Probe, channel, finish, stream
from .operations import Plan as OperationPlan
from .operations.position import Position, ReadPosition
from .records import Event, Notification, Task
from .rota import Rota

logger = logging.getLogger("eventkit")

_LINGER = 0.1
"""Seconds without an event after which progress is saved."""


class Events(Feed[Event[Any]]):
    """The events after *origin*, and then those to come."""

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
        self._position: Position | None = None
        self._saved = -1
        self._seen: frozenset[int] = frozenset()
        self.look_at = monotonic() + self._every_s

    def attach(self) -> OperationPlan[None]:
        """Find the offset to begin after."""
        if self._position is None:
            after, self._seen = yield from _located(self._origin)
            position: Any = yield ReadPosition(self._topic, after)
            self._position, self._saved = position, after

    def steps(self) -> Plan:
        """Read, hand out, save from time to time and while idle."""
        left = self._window
        while True:
            try:
                yield from self.attach()
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
                    if monotonic() >= self.look_at:
                        yield from self._save()
                self._position = page.position
                left -= len(found)
                if not left:
                    yield from self._save()
                    left = self._window
                if len(found) < wanted:
                    ahead = stream.EventsAhead.of(self._topic, self._position)
                    # What comes at once is waited for, or a busy stream would cost a write for each few events.
                    if self._unsaved and (yield Sleep(ahead, monotonic() + _LINGER)):
                        continue
                    yield from self._save()
                    yield Sleep(ahead)
            except PASSING:
                continue

    def leave(self) -> OperationPlan[None]:
        """Save what was handled; what was read and not handed out is read again."""
        if self._position is not None and self.current is not None and self.current.offset > self._position.offset:
            self._position = self._position.at(self.current.offset, self.current.created_ms)
        self.items.clear()
        yield from self._save()

    @property
    def _unsaved(self) -> int:
        """The offset that is to be saved; 0 for none."""
        handled = self.handled
        return handled.offset if self._automatic and handled is not None and handled.offset > self._saved else 0

    def _rewind(self, saved: Position) -> None:
        """Forget what the database has lost."""
        logger.warning(
            "the database has gone back, to a backup or to what a standby had: consumer %r of topic %r goes on after "
            "offset %s, where it is saved",
            self._consumer,
            self._topic,
            saved.offset,
        )
        self._position, self._saved = saved, saved.offset
        self._seen = frozenset()
        self.current = self.handled = None

    def _save(self) -> Any:
        self.look_at = monotonic() + self._every_s
        handled = self.handled
        if self._consumer is not None and handled is not None and self._unsaved:
            try:
                yield stream.SaveHandled(self._topic, self._consumer, handled.offset, handled.created_ms)
                self._saved = handled.offset
            except PASSING:
                pass  # The next occasion will do: what is not saved is only delivered again.


class Tasks(Feed[Task[Any]]):
    """The tasks of the queues of *rota*, claimed as they come."""

    def __init__(self, rota: Rota, probe: Probe) -> None:
        super().__init__()
        self._rota = rota
        self._probe = probe

    def steps(self) -> Plan:
        """Claim and hand out."""
        while True:
            try:
                yield from self._claim()
                while self.items:
                    yield HAND
            except PASSING:
                continue

    def leave(self) -> OperationPlan[None]:
        """Give back what was claimed and not handed out."""
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
                self.items.extend(tasks)
                return
        yield Sleep(self._probe)

    def _first(self) -> Task[Any] | None:
        """The next task, unless another thread has taken it."""
        try:
            return self.items.popleft()
        except IndexError:
            return None


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
        """Find the id to begin after."""
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
        """Forget what was not handed out: it is read again."""
        if self.current is not None:
            self._last = (self.current.id, self.current.created_ms)
        self.items.clear()
        yield from ()


def _located(origin: Operation[Any] | int) -> Any:
    place = (yield origin) if isinstance(origin, Operation) else origin
    return place if isinstance(place, Origin) else Origin(place)
