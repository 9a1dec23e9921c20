"""What a session has collected, from the call to the commit.

SQLAlchemy says when a transaction begins and ends, and when it is about to commit; `bind` listens.  Each session
keeps what it has collected in its ``info``, for as long as its transaction lasts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import event
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session, SessionTransaction, scoped_session, sessionmaker
from sqlalchemy.util import await_only

from ..codec import Codec
from ..kit import AsyncKit, Kit
from ..operations import Operation
from ..operations.collected import CollectedEvent, enqueue, notify, publish
from ..protocols import AsyncEventKit, EventKit

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker

    Sessions = (
        type[Session] | Session | sessionmaker[Any] | scoped_session[Any]
        | type[AsyncSession] | AsyncSession | async_sessionmaker[Any] | async_scoped_session[Any]
    )  # fmt: skip
    """Whatever makes sessions, or is one."""


EVENTS, TASKS, NOTIFICATIONS = range(3)
_OPERATIONS: tuple[Callable[[list[Any]], Operation[Any]], ...] = (publish, enqueue, notify)


class Binding(NamedTuple):
    """Where the sessions of a class write, and on which of their connections."""

    kit: Any
    bind_arguments: Mapping[str, Any] | None


_bindings: WeakKeyDictionary[Any, Binding] = WeakKeyDictionary()
"""By class of sessions, or by session."""

_inner: WeakKeyDictionary[Any, type[Session]] = WeakKeyDictionary()
"""By what makes async sessions."""


def bind(sessions: Sessions, kit: EventKit | AsyncEventKit, *, bind_arguments: Mapping[str, Any] | None = None) -> None:
    """Let *sessions* write to *kit* what they collect.

    *sessions* is a sessionmaker, a scoped_session, a class of sessions or a session, or the asyncio twin of one,
    which takes an async kit.  The binding nearest to a session counts, and a new one takes the place of an
    earlier one.  Sessions of several engines say by *bind_arguments*, as `Session.connection` takes them, which
    of their transactions is that of the kit's database: ``{"mapper": Model}``.
    """
    if not isinstance(kit, Kit | AsyncKit):
        raise TypeError(f"sessions are bound to what eventkit.connect() gives, not to {type(kit).__name__}")
    holder, is_async = _holder(sessions)
    if is_async and not isinstance(kit, AsyncKit):
        raise TypeError("async sessions write to an async kit: bind them to what eventkit.connect_async() gives")
    if holder not in _bindings:  # SQLAlchemy itself does not know: it asks for the id, which a dead class may have had.
        for name, hook in _HOOKS.items():
            event.listen(holder, name, hook)
    _bindings[holder] = Binding(kit, bind_arguments)


class Pending:
    """What a session has collected and not written yet.  It begins with the transaction and ends with it."""

    def __init__(self, session: Session) -> None:
        self._binding = _binding_of(session)
        self.codec = Codec(None, self._binding.kit._connection.max_payload)
        self.rows: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
        """Events, tasks and notifications."""
        self.changes: list[Callable[[], CollectedEvent]] = []
        """What the flush under way has changed, as the events that can be made of it when it is over."""
        self.updating: set[int] = set()
        """The ids of the objects to which it has something to write."""
        self.savepoints: dict[SessionTransaction, tuple[int, ...]] = {}
        """How much had been collected before each open savepoint."""
        transaction = session.get_nested_transaction()
        while transaction is not None:
            self.begin(transaction)
            transaction = transaction.parent
        self.committing = False
        """Whether there is no later moment to write at."""
        self.over = False
        """Whether the transaction has ended."""
        self._releasing: SessionTransaction | None = None
        self._outer = False

    @classmethod
    def of(cls, session: Session) -> Pending:
        """The session's own."""
        pending: Pending | None = session.info.get(cls)
        if pending is None:
            pending = cls(session)
            if not session.in_transaction():
                if not session.autobegin:
                    raise ValueError("this session does not begin by itself (autobegin=False): call session.begin()")
                session.begin()
            session.info[cls] = pending
        return pending

    def begin(self, transaction: SessionTransaction) -> None:
        """Note that what comes belongs to *transaction*, if that is a savepoint."""
        if transaction.nested:
            self.savepoints[transaction] = tuple(map(len, self.rows))

    def write(self, session: Session) -> None:
        """Write all of it; what fails, and what comes after, is still there then."""
        for rows, operation in zip(self.rows, _OPERATIONS, strict=True):
            if rows:
                self._execute(session, operation(rows))
                rows.clear()

    def commit(self, session: Session) -> None:
        """Write all of it, and from now on everything at once."""
        self.write(session)
        self.committing = True

    def commit_savepoint(self, savepoint: SessionTransaction) -> None:
        """Wait for the transaction around it.

        That one may be committing already: then SQLAlchemy announces it first, with the savepoint still open, and the
        savepoint's own commit after that.
        """
        self._outer = self._outer or self._releasing is savepoint
        self._releasing = savepoint

    def end_savepoint(self, session: Session, savepoint: SessionTransaction) -> None:
        """Forget what was collected in a savepoint that was not committed."""
        for rows, length in zip(self.rows, self.savepoints.pop(savepoint, ()), strict=False):
            del rows[length:]
        if self._outer and not session.in_nested_transaction():
            self.commit(session)

    def _execute(self, session: Session, operation: Operation[Any]) -> None:
        kit, bind_arguments = self._binding
        execute = kit._connection.execute
        if isinstance(kit, Kit):
            tx = session if bind_arguments is None else session.connection(bind_arguments=dict(bind_arguments))
            execute(operation, tx)
        else:
            await_only(_execute_async(execute, operation, _async_session(session), bind_arguments))


async def _execute_async(
    execute: Any, operation: Operation[Any], session: Any, bind_arguments: Mapping[str, Any] | None
) -> None:
    tx = session if bind_arguments is None else await session.connection(bind_arguments=dict(bind_arguments))
    await execute(operation, tx)


def _holder(sessions: Any) -> tuple[type[Session] | Session, bool]:
    """The class or session that listens for *sessions*, and whether they are async."""
    if isinstance(sessions, scoped_session):
        return _holder(sessions.session_factory)
    if isinstance(sessions, sessionmaker):
        return sessions.class_, False
    if isinstance(sessions, Session) or (isinstance(sessions, type) and issubclass(sessions, Session)):
        return sessions, False
    if "sqlalchemy.ext.asyncio" in sys.modules:
        from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker

        if isinstance(sessions, async_scoped_session):
            return _holder(sessions.session_factory)
        if isinstance(sessions, AsyncSession):
            return sessions.sync_session, True
        if isinstance(sessions, async_sessionmaker):
            given = sessions.kw.get("sync_session_class", sessions.class_.sync_session_class)
            if isinstance(given, sessionmaker):
                return given.class_, True
            sessions.configure(sync_session_class=_inner_class(sessions, given))
            return _inner_class(sessions, given), True
        if isinstance(sessions, type) and issubclass(sessions, AsyncSession):
            sessions.sync_session_class = _inner_class(sessions, sessions.sync_session_class)
            return sessions.sync_session_class, True
    raise TypeError(
        f"what is bound is a sessionmaker, a scoped_session, a Session or a class of them, or the asyncio twin of "
        f"one; not {type(sessions).__name__}"
    )


def _inner_class(outer: Any, given: type[Session]) -> type[Session]:
    """The class of the sync sessions inside those of *outer* and no others."""
    if outer not in _inner:
        _inner[outer] = type(given.__name__, (given,), {})
    return _inner[outer]


def _async_session(session: Session) -> Any:
    if "sqlalchemy.ext.asyncio" not in sys.modules:
        return None
    from sqlalchemy.ext.asyncio import async_session

    return async_session(session)


def _binding_of(session: Session) -> Binding:
    for holder in (session, *type(session).__mro__):
        if (binding := _bindings.get(holder)) is not None:
            break
    else:
        raise ValueError(
            "this session is not bound to a kit: call eventkit.sqlalchemy.bind(Session, kit), once, with the "
            "sessionmaker or class that it comes from"
        )
    if isinstance(binding.kit, AsyncKit) != (_async_session(session) is not None):
        raise TypeError(
            "an AsyncSession writes to the kit of eventkit.connect_async(), and a Session to that of "
            "eventkit.connect(): bind each to its own"
        )
    try:
        session.get_bind(**(binding.bind_arguments or {}))
    except UnboundExecutionError as error:
        raise ValueError(
            "this session has several engines: say which leads to the kit's database, by "
            'bind(Session, kit, bind_arguments={"mapper": Model}) with a model of it'
        ) from error
    return binding


def _before_commit(session: Session) -> None:
    savepoint = session.get_nested_transaction()
    if savepoint is None:
        Pending.of(session).commit(session)
    else:
        Pending.of(session).commit_savepoint(savepoint)


def _after_flush_postexec(session: Session, context: Any) -> None:
    pending: Pending | None = session.info.get(Pending)
    if pending is not None and pending.changes:
        changes, pending.changes = pending.changes, []
        pending.rows[EVENTS].extend([change() for change in changes])
        if pending.committing:
            pending.write(session)


def _after_commit(session: Session) -> None:
    if Pending in session.info:
        session.info[Pending].savepoints.pop(session.get_nested_transaction(), None)


def _after_transaction_create(session: Session, transaction: SessionTransaction) -> None:
    if Pending in session.info:
        session.info[Pending].begin(transaction)


def _after_transaction_end(session: Session, transaction: SessionTransaction) -> None:
    pending: Pending | None = session.info.get(Pending)
    if pending is not None:
        # A flush has a transaction too; where it has failed, nothing was changed.
        pending.changes.clear()
        pending.updating.clear()
        if transaction.nested:
            pending.end_savepoint(session, transaction)
        elif transaction.parent is None:
            pending.over = True
            del session.info[Pending]


_HOOKS: dict[str, Callable[..., None]] = {
    "before_commit": _before_commit,
    "after_flush_postexec": _after_flush_postexec,
    "after_commit": _after_commit,
    "after_transaction_create": _after_transaction_create,
    "after_transaction_end": _after_transaction_end,
}
