"""What a session has collected, from the call to the commit.

SQLAlchemy tells of the moments at which something has to be done.  It does so once, for all sessions of the process:
whoever listened to those of a class and to those of one above it would hear everything twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

from ..codec import Codec
from ..operations import Operation
from ..operations.collected import CollectedEvent, enqueue, notify, publish
from .binding import Binding, find

EVENTS, TASKS, NOTIFICATIONS = range(3)
_OPERATIONS: tuple[Callable[[list[Any]], Operation[Any]], ...] = (publish, enqueue, notify)


class Pending:
    """What a session has collected and not written yet.  It begins with the transaction and ends with it."""

    def __init__(self, session: Session, binding: Binding) -> None:
        self._binding = binding
        self._checked = False
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
        """The session's own, to collect in."""
        if not session.in_transaction():
            if not session.autobegin:
                raise ValueError("this session does not begin by itself (autobegin=False): call session.begin()")
            session.begin()
        pending = cls.of_bound(session)
        if pending is None:
            raise ValueError(
                "this session is not bound to a kit: call eventkit.sqlalchemy.bind(Session, kit), once, with the "
                "sessionmaker or class that it comes from"
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
        """The session's own, if it is bound: it may never collect anything, and not even be able to."""
        pending: Pending | None = session.info.get(cls)
        if pending is None and (binding := find(session)) is not None:
            pending = session.info[cls] = cls(session, binding)
        return pending

    def begin(self, transaction: SessionTransaction) -> None:
        """Note that what comes belongs to *transaction*, if that is a savepoint."""
        if transaction.nested:
            self.savepoints[transaction] = tuple(map(len, self.rows))

    def write(self, session: Session) -> None:
        """Write all of it; what fails, and what comes after, is still there then."""
        for rows, operation in zip(self.rows, _OPERATIONS, strict=True):
            if rows:
                self._binding.execute(session, operation(rows))
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
        lengths = self.savepoints.pop(savepoint, None)
        if lengths is not None:
            for rows, length in zip(self.rows, lengths, strict=True):
                del rows[length:]
        elif self._outer and not session.in_nested_transaction():
            self.commit(session)


@event.listens_for(Session, "before_commit")
def _before_commit(session: Session) -> None:
    pending = Pending.of_bound(session)
    if pending is not None:
        savepoint = session.get_nested_transaction()
        if savepoint is None:
            pending.commit(session)
        else:
            pending.commit_savepoint(savepoint)


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
        # A flush has a transaction too; where it has failed, nothing was changed.
        pending.changes.clear()
        pending.updating.clear()
        if transaction.nested:
            pending.end_savepoint(session, transaction)
        elif transaction.parent is None:
            pending.over = True
            del session.info[Pending]
