"""Which sessions write to which kit."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.util import await_only

from ..kit import AsyncKit, Kit
from ..operations import Operation
from ..protocols import AsyncEventKit, EventKit

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker

    Sessions = (
        type[Session] | Session | sessionmaker[Any] | scoped_session[Any]
        | type[AsyncSession] | AsyncSession | async_sessionmaker[Any] | async_scoped_session[Any]
    )  # fmt: skip
    """Whatever makes sessions, or is one."""


class Binding(NamedTuple):
    """Where sessions write, and on which of their connections."""

    kit: Any
    bind_arguments: Mapping[str, Any] | None

    def check(self, session: Session) -> None:
        """Refuse a session that cannot write there."""
        if isinstance(self.kit, AsyncKit) != (_async_session(session) is not None):
            raise TypeError(
                "an AsyncSession writes to the kit of eventkit.connect_async(), and a Session to that of "
                "eventkit.connect(): bind each to its own"
            )
        try:
            session.get_bind(**(self.bind_arguments or {}))
        except UnboundExecutionError as error:
            raise ValueError(
                "this session has several engines: say which leads to the kit's database, by "
                'bind(Session, kit, bind_arguments={"mapper": Model}) with a model of it'
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
"""By class of sessions, or by session."""

_inner: WeakKeyDictionary[Any, type[Session]] = WeakKeyDictionary()
"""The class of the sync sessions inside async ones, by what makes these."""


def bind(sessions: Sessions, kit: EventKit | AsyncEventKit, *, bind_arguments: Mapping[str, Any] | None = None) -> None:
    """Let *sessions* write to *kit* what they collect.

    *sessions* is a sessionmaker, a scoped_session, a class of sessions or a session, or the asyncio twin of one,
    which takes an async kit.  The binding nearest to a session counts, and a new one takes the place of an
    earlier one.  Sessions of several engines say by *bind_arguments*, as `Session.connection` takes them, which
    of their transactions is that of the kit's database: ``{"mapper": Model}``.
    """
    if not isinstance(kit, Kit | AsyncKit):
        raise TypeError(f"sessions are bound to what eventkit.connect() gives, not to {type(kit).__name__}")
    _bindings[_holder(sessions, kit)] = Binding(kit, bind_arguments)


def find(session: Session) -> Binding | None:
    """The binding nearest to *session*, if there is one."""
    for holder in (session, *type(session).__mro__):
        if (binding := _bindings.get(holder)) is not None:
            return binding
    return None


def _holder(sessions: Any, kit: Any) -> type[Session] | Session:
    if isinstance(sessions, scoped_session):
        return _holder(sessions.session_factory, kit)
    if isinstance(sessions, sessionmaker):
        return sessions.class_
    if isinstance(sessions, Session) or (isinstance(sessions, type) and issubclass(sessions, Session)):
        return sessions
    if "sqlalchemy.ext.asyncio" in sys.modules and (holder := _async_holder(sessions, kit)) is not None:
        return holder
    raise TypeError(
        f"what is bound is a sessionmaker, a scoped_session, a Session or a class of them, or the asyncio twin of "
        f"one; not {type(sessions).__name__}"
    )


def _async_holder(sessions: Any, kit: Any) -> type[Session] | Session | None:
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker

    if isinstance(sessions, async_scoped_session):
        return _async_holder(sessions.session_factory, kit)
    is_class = isinstance(sessions, type) and issubclass(sessions, AsyncSession)
    if not is_class and not isinstance(sessions, AsyncSession | async_sessionmaker):
        return None
    if not isinstance(kit, AsyncKit):
        raise TypeError("async sessions write to an async kit: bind them to what eventkit.connect_async() gives")
    if isinstance(sessions, AsyncSession):
        return sessions.sync_session
    if isinstance(sessions, async_sessionmaker):
        given = sessions.kw.get("sync_session_class", sessions.class_.sync_session_class)
        if isinstance(given, sessionmaker):
            return given.class_
        sessions.configure(sync_session_class=_inner_class(sessions, given))
    else:
        sessions.sync_session_class = _inner_class(sessions, sessions.sync_session_class)
    return _inner[sessions]


def _inner_class(outer: Any, given: type[Session]) -> type[Session]:
    """A class of its own for *outer*, or what is bound would be all that is made of the *given* one."""
    if outer not in _inner:
        _inner[outer] = type(given.__name__, (given,), {})
    return _inner[outer]


def _async_session(session: Session) -> Any:
    if "sqlalchemy.ext.asyncio" not in sys.modules:
        return None
    from sqlalchemy.ext.asyncio import async_session

    return async_session(session)
