"""Streams, queues and channels of a session: what is said to them is collected."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.orm import Session, scoped_session

from ..arguments import Duration
from ..channel import Channel
from ..codec import Codec
from ..operations import Operation
from ..queue import Queue
from ..records import NewEvent, NewTask
from ..stream import Stream
from .pending import Pending

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session

P = TypeVar("P")


def collect(session: Session | scoped_session[Any] | AsyncSession | async_scoped_session[Any]) -> Collector:
    """The streams, queues and channels of *session*, which `bind` has led to a kit.

    Nothing of it waits, so with an AsyncSession nothing is awaited either.
    """
    return Collector(_session(session))


class Collector:
    """The kit of a session: what is collected belongs to the session's transaction, which begins if it has not.

    Each argument is checked by the call that brings it, as on the kit's own handles.  What only the database knows,
    such as that a queue is full, is raised by the commit.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @overload
    def stream(self, topic: str) -> CollectedStream[Any]: ...
    @overload
    def stream(self, topic: str, *, type: type[P]) -> CollectedStream[P]: ...

    def stream(self, topic: str, *, type: Any = None) -> CollectedStream[Any]:
        """A topic, to publish to."""
        return CollectedStream(Stream(self._add, None, topic, self._codec(type)))

    @overload
    def queue(self, name: str) -> CollectedQueue[Any]: ...
    @overload
    def queue(self, name: str, *, type: type[P]) -> CollectedQueue[P]: ...

    def queue(self, name: str, *, type: Any = None) -> CollectedQueue[Any]:
        """A queue, to put tasks into."""
        return CollectedQueue(Queue(self._add, None, name, self._codec(type)))

    @overload
    def channel(self, name: str) -> CollectedChannel[Any]: ...
    @overload
    def channel(self, name: str, *, type: type[P]) -> CollectedChannel[P]: ...

    def channel(self, name: str, *, type: Any = None) -> CollectedChannel[Any]:
        """A channel, to notify."""
        return CollectedChannel(Channel(self._add, None, name, self._codec(type)))

    def _codec(self, type: Any) -> Codec:
        codec = Pending.of(self._session).codec
        return codec if type is None else Codec(type, codec.largest)

    def _add(self, operation: Operation[Any], tx: None) -> None:
        session = self._session
        if not session.in_transaction():
            if not session.autobegin:
                raise ValueError("this session does not begin by itself (autobegin=False): call session.begin() first")
            session.begin()
        pending = Pending.of(session)
        pending.add(session, operation)
        if pending.committing:
            with suppress(MissingGreenlet):  # That commit has failed, and the next one will come.
                pending.write(session)


class CollectedStream(Generic[P]):
    """A topic, as a session sees it."""

    def __init__(self, stream: Stream) -> None:
        self.topic = stream.topic
        self._stream = stream

    def publish(
        self,
        payload: P,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        dedup: str | None = None,
    ) -> None:
        """Append an event when the session commits.  It has no offset until then, so there is no answer."""
        self._stream.publish(payload, key=key, headers=headers, dedup=dedup)

    def publish_many(self, items: Iterable[P | NewEvent]) -> None:
        """Append events, in this order, when the session commits."""
        self._stream.publish_many(items)


class CollectedQueue(Generic[P]):
    """A queue, as a session sees it."""

    def __init__(self, queue: Queue) -> None:
        self.name = queue.name
        self._queue = queue

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
        """Add a task when the session commits, unless its *key* is taken.  Durations run from the commit."""
        self._queue.enqueue(
            payload,
            delay=delay,
            run_at=run_at,
            priority=priority,
            max_attempts=max_attempts,
            expires=expires,
            key=key,
            headers=headers,
        )

    def enqueue_many(self, items: Iterable[P | NewTask]) -> None:
        """Add tasks when the session commits."""
        self._queue.enqueue_many(items)


class CollectedChannel(Generic[P]):
    """A channel, as a session sees it."""

    def __init__(self, channel: Channel) -> None:
        self.name = channel.name
        self._channel = channel

    def notify(self, payload: P, *, headers: Mapping[str, str] | None = None) -> None:
        """Tell everyone who listens when the session commits."""
        self._channel.notify(payload, headers=headers)


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
        f"what collects is a Session, scoped_session, AsyncSession or async_scoped_session; "
        f"not {type(session).__name__}"
    )
