"""Streams, queues and channels of a session, whose calls are collected."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.orm import Session, scoped_session

from .. import checks
from ..checks import Duration
from ..codec import Codec, encode_headers
from ..operations.bulk import CollectedEvent, CollectedTask
from ..operations.enqueue import PLAIN
from ..queue import task_row
from ..stream import event_row
from ..telemetry import with_trace
from ..values import NewEvent, NewTask
from .session import EVENTS, NOTIFICATIONS, TASKS, Pending

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session

P = TypeVar("P")


def collect(session: Session | scoped_session[Any] | AsyncSession | async_scoped_session[Any]) -> Collector:
    """Return the streams, queues and channels of *session*, which `bind` has bound to a kit.

    No call waits, so with an AsyncSession none is awaited either.
    """
    return Collector(_session(session))


class Collector:
    """The kit of a session: calls are collected in the session's transaction, which begins with the first.

    Each call checks its arguments, as on the kit's own handles.  Errors that only the database detects, such as a full
    queue, are raised by the commit.
    """

    def __init__(self, session: Session) -> None:
        Pending.of(session)
        self._session = session

    @overload
    def stream(self, topic: str) -> CollectedStream[Any]: ...
    @overload
    def stream(self, topic: str, *, type: type[P]) -> CollectedStream[P]: ...

    def stream(self, topic: str, *, type: Any = None) -> CollectedStream[Any]:
        """Return a topic, to publish to."""
        return CollectedStream(self._session, topic, type)

    @overload
    def queue(self, name: str) -> CollectedQueue[Any]: ...
    @overload
    def queue(self, name: str, *, type: type[P]) -> CollectedQueue[P]: ...

    def queue(self, name: str, *, type: Any = None) -> CollectedQueue[Any]:
        """Return a queue, to put tasks into."""
        return CollectedQueue(self._session, name, type)

    @overload
    def channel(self, name: str) -> CollectedChannel[Any]: ...
    @overload
    def channel(self, name: str, *, type: type[P]) -> CollectedChannel[P]: ...

    def channel(self, name: str, *, type: Any = None) -> CollectedChannel[Any]:
        """Return a channel, to notify."""
        return CollectedChannel(self._session, name, type)


class _Handle:
    """A handle that collects rows of one kind for a session."""

    def __init__(self, session: Session, kind: int, type: Any) -> None:
        self._session = session
        self._kind = kind
        self._pending = Pending.of(session)
        codec = self._pending.codec
        self._codec = codec if type is None else Codec(type, codec.largest)

    def _collect(self, row: tuple[Any, ...]) -> None:
        pending = self._pending
        if pending.over:
            pending = self._pending = Pending.of(self._session)
        pending.rows[self._kind].append(row)
        if pending.committing:
            with suppress(MissingGreenlet):  # The commit has failed, and the next one writes.
                pending.write(self._session)


class CollectedStream(_Handle, Generic[P]):
    """A topic in a session."""

    def __init__(self, session: Session, topic: str, type: Any) -> None:
        self.topic = checks.name("topic", topic)
        super().__init__(session, EVENTS, type)

    def publish(
        self,
        payload: P,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        dedup: str | None = None,
    ) -> None:
        """Append an event when the session commits.  It has no offset until then, so nothing is returned."""
        row: CollectedEvent
        if key is None and dedup is None and with_trace(headers) is None:
            row = (self.topic, self._codec.encode(payload), None, None, None)
        else:
            row = (self.topic, *event_row(self._codec, NewEvent(payload, key, headers, dedup)))
        self._collect(row)

    def publish_many(self, items: Iterable[P | NewEvent]) -> None:
        """Append events, in this order, when the session commits."""
        events = [item if isinstance(item, NewEvent) else NewEvent(item) for item in items]
        for row in [(self.topic, *event_row(self._codec, event)) for event in events]:
            self._collect(row)


class CollectedQueue(_Handle, Generic[P]):
    """A queue in a session."""

    def __init__(self, session: Session, name: str, type: Any) -> None:
        self.name = checks.name("queue", name)
        super().__init__(session, TASKS, type)

    def enqueue(
        self,
        payload: P,
        *,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        expires: Duration | datetime | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Add a task when the session commits, unless its *key* is taken.  Durations start at the commit."""
        row: CollectedTask
        plain = delay is None and run_at is None and max_attempts is None and expires is None and key is None
        if plain and priority == 0 and with_trace(headers) is None:
            row = (self.name, self._codec.encode(payload), *PLAIN)
        else:
            task = NewTask(payload, delay, run_at, priority, max_attempts, expires, key, headers)
            row = (self.name, *task_row(self._codec, self.name, task))
        self._collect(row)

    def enqueue_many(self, items: Iterable[P | NewTask]) -> None:
        """Add tasks when the session commits."""
        tasks = [item if isinstance(item, NewTask) else NewTask(item) for item in items]
        for row in [(self.name, *task_row(self._codec, self.name, task)) for task in tasks]:
            self._collect(row)


class CollectedChannel(_Handle, Generic[P]):
    """A channel in a session."""

    def __init__(self, session: Session, name: str, type: Any) -> None:
        self.name = checks.name("channel", name)
        super().__init__(session, NOTIFICATIONS, type)

    def notify(self, payload: P, *, headers: Mapping[str, str] | None = None) -> None:
        """Send a notification to all listeners when the session commits."""
        text = encode_headers(with_trace(headers))
        self._collect((self.name, self._codec.encode(payload), text))


def _session(session: Any) -> Session:
    if isinstance(session, Session):
        return session
    if isinstance(session, scoped_session):
        return _session(session())
    if "sqlalchemy.ext.asyncio" in sys.modules:
        from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session

        if isinstance(session, async_scoped_session):
            session = session()
        if isinstance(session, AsyncSession):
            return session.sync_session
    raise TypeError(
        f"collect() takes a Session, scoped_session, AsyncSession or async_scoped_session, not {type(session).__name__}"
    )
