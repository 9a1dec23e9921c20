"""The streams, queues and channels of a session, whose calls are collected, and the kit that the commit writes to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload
from weakref import WeakKeyDictionary

from sqlalchemy import event
from sqlalchemy.exc import MissingGreenlet, UnboundExecutionError
from sqlalchemy.orm import Session, SessionTransaction, scoped_session, sessionmaker
from sqlalchemy.util import await_only

from .. import checks
from ..checks import Duration, Headers
from ..codec import Codec, traced_headers
from ..kit import AsyncKit, Kit
from ..operations import Operation
from ..operations.bulk import CollectedEvent, CollectedTask, enqueue, notify, publish
from ..operations.enqueue import PLAIN
from ..protocols import AsyncEventKit, EventKit
from ..queue import task_row
from ..stream import event_row
from ..telemetry import with_trace
from ..values import NewEvent, NewTask

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker

    Sessions = (
        type[Session] | Session | sessionmaker[Any] | scoped_session[Any]
        | type[AsyncSession] | AsyncSession | async_sessionmaker[Any] | async_scoped_session[Any]
    )  # fmt: skip
    """A session, or an object that makes sessions."""

P = TypeVar("P")


class Binding(NamedTuple):
    """The kit to which sessions write, and which of their connections it uses."""

    kit: Any
    bind_arguments: Mapping[str, Any] | None

    def check(self, session: Session) -> None:
        """Raise an error for a session that cannot write to the kit."""
        if isinstance(self.kit, AsyncKit) != (_async_session(session) is not None):
            raise TypeError(
                "an AsyncSession writes to the kit of eventkit.connect_async(), and a Session to that of "
                "eventkit.connect(): bind each to its own"
            )
        try:
            session.get_bind(**(self.bind_arguments or {}))
        except UnboundExecutionError as error:
            raise ValueError(
                "this session has several engines: name the one of the kit's database, by "
                'bind(Session, kit, bind_arguments={"mapper": Model}) with one of its models'
            ) from error

    def execute(self, session: Session, operation: Operation[Any]) -> None:
        """Execute *operation* in the session's transaction."""
        if isinstance(self.kit, AsyncKit):
            await_only(self._execute_async(_async_session(session), operation))
        elif self.bind_arguments is None:
            self.kit._connection.execute(operation, session)
        else:
            tx = session.connection(bind_arguments=dict(self.bind_arguments))
            self.kit._connection.execute(operation, tx)

    async def _execute_async(self, session: Any, operation: Operation[Any]) -> None:
        tx = session
        if self.bind_arguments is not None:
            tx = await session.connection(bind_arguments=dict(self.bind_arguments))
        await self.kit._connection.execute(operation, tx)


_bindings: WeakKeyDictionary[Any, Binding] = WeakKeyDictionary()
"""The bindings by class of sessions, or by session."""

_inner: WeakKeyDictionary[Any, type[Session]] = WeakKeyDictionary()
"""The class of the sync sessions inside async ones, by the object that makes these."""


def bind(sessions: Sessions, kit: EventKit | AsyncEventKit, *, bind_arguments: Mapping[str, Any] | None = None) -> None:
    """Let *sessions* write to *kit* what they collect.

    *sessions* is a sessionmaker, a scoped_session, a class of sessions or a session, or the asyncio counterpart of one,
    which takes an async kit.  The binding nearest to a session applies, and a new one replaces an earlier one.  For
    sessions with several engines, *bind_arguments*, as of `Session.connection`, selects the transaction of the kit's
    database: ``{"mapper": Model}``.
    """
    if not isinstance(kit, Kit | AsyncKit):
        raise TypeError(f"sessions are bound to a kit from eventkit.connect(), not to {type(kit).__name__}")
    _bindings[_holder(sessions, kit)] = Binding(kit, bind_arguments)


def find(session: Session) -> Binding | None:
    """Return the binding nearest to *session*, if there is one."""
    for holder in (session, *type(session).__mro__):
        if (binding := _bindings.get(holder)) is not None:
            return binding
    return None


def _asyncio() -> Any:
    """Return SQLAlchemy's asyncio extension, if the application has imported it."""
    if "sqlalchemy.ext.asyncio" not in sys.modules:
        return None
    import sqlalchemy.ext.asyncio as extension

    return extension


def _holder(sessions: Any, kit: Any) -> type[Session] | Session:
    """Return the class or the session that a binding of *sessions* is for."""
    if isinstance(sessions, scoped_session):
        return _holder(sessions.session_factory, kit)
    if isinstance(sessions, sessionmaker):
        return sessions.class_
    if isinstance(sessions, Session) or (isinstance(sessions, type) and issubclass(sessions, Session)):
        return sessions
    extension = _asyncio()
    if extension is not None and isinstance(sessions, extension.async_scoped_session):
        return _holder(sessions.session_factory, kit)
    is_class = extension is not None and isinstance(sessions, type) and issubclass(sessions, extension.AsyncSession)
    if extension is None or not (
        is_class or isinstance(sessions, extension.AsyncSession | extension.async_sessionmaker)
    ):
        raise TypeError(
            f"bind() takes a sessionmaker, a scoped_session, a Session or a class of them, or the asyncio counterpart "
            f"of one, not {type(sessions).__name__}"
        )
    if not isinstance(kit, AsyncKit):
        raise TypeError("async sessions write to an async kit: bind them to one from eventkit.connect_async()")
    if isinstance(sessions, extension.AsyncSession):
        inner: Session = sessions.sync_session
        return inner
    if is_class:
        sessions.sync_session_class = _inner_class(sessions, sessions.sync_session_class)
    else:
        given = sessions.kw.get("sync_session_class", sessions.class_.sync_session_class)
        if isinstance(given, sessionmaker):
            return given.class_
        sessions.configure(sync_session_class=_inner_class(sessions, given))
    return _inner[sessions]


def _inner_class(outer: Any, given: type[Session]) -> type[Session]:
    """Return a class of its own for *outer*, because binding the *given* one would bind all its sessions."""
    if outer not in _inner:
        _inner[outer] = type(given.__name__, (given,), {})
    return _inner[outer]


def _async_session(session: Session) -> Any:
    """Return the async session that *session* is the inside of, if it is one's."""
    return None if _asyncio() is None else _asyncio().async_session(session)


EVENTS, TASKS, NOTIFICATIONS = range(3)
_OPERATIONS: tuple[Callable[[list[Any]], Operation[Any]], ...] = (publish, enqueue, notify)


class Pending:
    """The rows that a session has collected and not written yet, for one transaction."""

    def __init__(self, session: Session, binding: Binding) -> None:
        self._binding = binding
        self._checked = False
        self.codec = Codec(None, self._binding.kit._connection.max_payload)
        self.rows: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
        """Events, tasks and notifications."""
        self.changes: list[Callable[[], CollectedEvent]] = []
        """The changes of the current flush, as events to be made when it is over."""
        self.updating: set[int] = set()
        """The ids of the objects that the flush updates."""
        self.savepoints: dict[SessionTransaction, tuple[int, ...]] = {}
        """The number of collected rows before each open savepoint."""
        transaction = session.get_nested_transaction()
        while transaction is not None:
            self.begin(transaction)
            transaction = transaction.parent
        self.committing = False
        """True if the transaction is committing, and rows have to be written at once."""
        self.over = False
        """True if the transaction has ended."""
        self.releasing: SessionTransaction | None = None
        """The savepoint whose commit was announced last."""
        self.outer = False
        """True if the commit of the whole transaction was announced with a savepoint open."""

    @classmethod
    def of(cls, session: Session) -> Pending:
        """Return the session's own, to collect in."""
        if not session.in_transaction():
            if not session.autobegin:
                raise ValueError("this session has autobegin=False: call session.begin() first")
            session.begin()
        pending = cls.of_bound(session)
        if pending is None:
            raise ValueError(
                "this session is not bound to a kit: call eventkit.sqlalchemy.bind(Session, kit), once, with the "
                "sessionmaker or class that made it"
            )
        if not pending._checked:
            try:
                pending._binding.check(session)
            except (TypeError, ValueError):
                del session.info[cls]  # It may be bound again.
                raise
            pending._checked = True
        return pending

    @classmethod
    def of_bound(cls, session: Session) -> Pending | None:
        """Return the session's own, if it is bound; a session that never collects may be one that cannot."""
        pending: Pending | None = session.info.get(cls)
        if pending is None and (binding := find(session)) is not None:
            pending = session.info[cls] = cls(session, binding)
        return pending

    def begin(self, transaction: SessionTransaction) -> None:
        """Record that later rows belong to *transaction*, if that is a savepoint."""
        if transaction.nested:
            self.savepoints[transaction] = tuple(map(len, self.rows))

    def write(self, session: Session) -> None:
        """Write all rows; after an error, the failed and the later ones remain."""
        for rows, operation in zip(self.rows, _OPERATIONS, strict=True):
            if rows:
                self._binding.execute(session, operation(rows))
                rows.clear()

    def commit(self, session: Session) -> None:
        """Write all rows, and from now on each row at once."""
        self.write(session)
        self.committing = True

    def end_savepoint(self, session: Session, savepoint: SessionTransaction) -> None:
        """Discard what was collected in a savepoint that was not committed."""
        lengths = self.savepoints.pop(savepoint, None)
        if lengths is not None:
            for rows, length in zip(self.rows, lengths, strict=True):
                del rows[length:]
        elif self.outer and not session.in_nested_transaction():
            self.commit(session)


@event.listens_for(Session, "before_commit")
def _before_commit(session: Session) -> None:
    pending, savepoint = Pending.of_bound(session), session.get_nested_transaction()
    if pending is not None and savepoint is None:
        pending.commit(session)
    elif pending is not None:
        # The enclosing transaction writes the rows.  If it is committing already, SQLAlchemy announces its commit
        # first, with the savepoint still open, and the savepoint's own commit after that.
        pending.outer = pending.outer or pending.releasing is savepoint
        pending.releasing = savepoint


@event.listens_for(Session, "after_flush_postexec")
def _after_flush_postexec(session: Session, context: Any) -> None:
    pending: Pending | None = session.info.get(Pending)
    if pending is not None and pending.changes:
        changes, pending.changes = pending.changes, []
        pending.rows[EVENTS].extend([change() for change in changes])
        if pending.committing:
            pending.write(session)


@event.listens_for(Session, "after_commit")
def _after_commit(session: Session) -> None:
    if Pending in session.info:
        session.info[Pending].savepoints.pop(session.get_nested_transaction(), None)


@event.listens_for(Session, "after_transaction_create")
def _after_transaction_create(session: Session, transaction: SessionTransaction) -> None:
    if Pending in session.info:
        session.info[Pending].begin(transaction)


@event.listens_for(Session, "after_transaction_end")
def _after_transaction_end(session: Session, transaction: SessionTransaction) -> None:
    pending: Pending | None = session.info.get(Pending)
    if pending is not None:
        # A flush has a transaction too; if it failed, nothing was changed.
        pending.changes.clear()
        pending.updating.clear()
        if transaction.nested:
            pending.end_savepoint(session, transaction)
        elif transaction.parent is None:
            pending.over = True
            del session.info[Pending]


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
    def stream(self, name: str) -> CollectedStream[Any]: ...
    @overload
    def stream(self, name: str, *, type: type[P]) -> CollectedStream[P]: ...

    def stream(self, name: str, *, type: Any = None) -> CollectedStream[Any]:
        """Return a stream, to publish to."""
        return CollectedStream(self._session, name, type)

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
    _noun: str
    _kind: int
    """The place of its rows in `Pending.rows`."""

    def __init__(self, session: Session, name: str, type: Any) -> None:
        self.name = checks.name(self._noun, name)
        self._session = session
        self._pending = Pending.of(session)
        codec = self._pending.codec
        self._codec = codec if type is None else Codec(type, codec.largest)

    def _collect(self, *rows: tuple[Any, ...]) -> None:
        pending = self._pending
        if pending.over:
            pending = self._pending = Pending.of(self._session)
        pending.rows[self._kind].extend(rows)
        if pending.committing:
            with suppress(MissingGreenlet):  # The commit has failed, and the next one writes.
                pending.write(self._session)


class CollectedStream(_Handle, Generic[P]):
    """A stream in a session."""

    _noun, _kind = "stream", EVENTS

    def publish(self, payload: P, *, key: str | None = None, headers: Headers = None, dedup: str | None = None) -> None:
        """Append an event when the session commits.  It has no offset until then, so nothing is returned."""
        row: CollectedEvent
        if key is None and dedup is None and with_trace(headers) is None:
            row = (self.name, self._codec.encode(payload), None, None, None)
        else:
            row = (self.name, *event_row(self._codec, NewEvent(payload, key, headers, dedup)))
        self._collect(row)

    def publish_many(self, items: Iterable[P | NewEvent]) -> None:
        """Append events, in this order, when the session commits."""
        events = [item if isinstance(item, NewEvent) else NewEvent(item) for item in items]
        self._collect(*[(self.name, *event_row(self._codec, event)) for event in events])


class CollectedQueue(_Handle, Generic[P]):
    """A queue in a session."""

    _noun, _kind = "queue", TASKS

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
        headers: Headers = None,
        group: str | None = None,
    ) -> None:
        """Add a task when the session commits, unless its *key* is taken.  Durations start at the commit."""
        row: CollectedTask
        plain = delay is None and run_at is None and max_attempts is None and expires is None and key is None
        if plain and group is None and priority == 0 and with_trace(headers) is None:
            row = (self.name, self._codec.encode(payload), *PLAIN)
        else:
            task = NewTask(payload, delay, run_at, priority, max_attempts, expires, key, headers, group)
            row = (self.name, *task_row(self._codec, self.name, task))
        self._collect(row)

    def enqueue_many(self, items: Iterable[P | NewTask]) -> None:
        """Add tasks when the session commits."""
        tasks = [item if isinstance(item, NewTask) else NewTask(item) for item in items]
        self._collect(*[(self.name, *task_row(self._codec, self.name, task)) for task in tasks])


class CollectedChannel(_Handle, Generic[P]):
    """A channel in a session."""

    _noun, _kind = "channel", NOTIFICATIONS

    def notify(self, payload: P, *, headers: Headers = None) -> None:
        """Send a notification to all listeners when the session commits."""
        self._collect((self.name, self._codec.encode(payload), traced_headers(headers)))


def _session(session: Any) -> Session:
    if isinstance(session, Session):
        return session
    if isinstance(session, scoped_session):
        return _session(session())
    if (extension := _asyncio()) is not None:
        if isinstance(session, extension.async_scoped_session):
            session = session()
        if isinstance(session, extension.AsyncSession):
            inner: Session = session.sync_session
            return inner
    raise TypeError(
        f"collect() takes a Session, scoped_session, AsyncSession or async_scoped_session, not {type(session).__name__}"
    )
