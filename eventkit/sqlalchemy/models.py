"""Mapped classes as sources of events: a row that is written is an event of the same commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Column, event, inspect
from sqlalchemy.orm import Mapper, object_mapper, object_session

from .. import arguments
from ..operations.collected import CollectedEvent
from ..records import NewEvent
from ..stream import event_row
from .pending import Pending

M = TypeVar("M")

CHANGES = ("insert", "update", "delete")


def emits(
    topic: str,
    *,
    on: Iterable[str] = CHANGES,
    payload: Callable[[Any], Any] | None = None,
    key: Callable[[Any], str | None] | None = None,
) -> Callable[[type[M]], type[M]]:
    """Publish an event to *topic* for each row of the decorated class that a session inserts, updates or deletes.

    *payload* makes the event's payload of the object; without it, it is an object of the columns that are not
    deferred.  Either way msgspec makes JSON of it, so datetimes, decimals, UUIDs, dataclasses and the like are
    welcome.  *key* makes the event's key, which is otherwise the row's primary key.  The header ``change`` says
    what happened.

    Both are called when the flush is over, so whatever the database has set is known; for a delete, before it.
    An update counts if a column has changed.  Subclasses emit too, and several declarations are several events.
    What does not pass through the flush of objects emits nothing: ``session.execute(update(…))`` and its like,
    the ``bulk_`` methods, and what the database deletes by ``ON DELETE``.
    """
    source = _Source(arguments.name("topic", topic), payload, key)
    changes = (on,) if isinstance(on, str) else tuple(on)
    for change in changes:
        arguments.choice("on", change, CHANGES)

    def declare(model: type[M]) -> type[M]:
        for change in changes:
            for name, listener in source.listeners(change).items():
                event.listen(model, name, listener, propagate=True)
        return model

    return declare


class _Source:
    """What one declaration says."""

    def __init__(
        self, topic: str, payload: Callable[[Any], Any] | None, key: Callable[[Any], str | None] | None
    ) -> None:
        self._topic = topic
        self._payload = _columns if payload is None else payload
        self._key = _primary_key if key is None else key

    def listeners(self, change: str) -> dict[str, Callable[..., None]]:
        """By which events SQLAlchemy tells of a change, and to whom."""
        if change == "insert":
            return {"after_insert": self._inserted}
        if change == "update":
            return {"before_update": self._updating, "after_update": self._updated}
        return {"before_delete": self._deleted}

    def _inserted(self, mapper: Mapper[Any], connection: Any, row: Any) -> None:
        pending = _pending(row)
        pending.changes.append(partial(self._event, pending, row, "insert"))

    def _updating(self, mapper: Mapper[Any], connection: Any, row: Any) -> None:
        if _changed(mapper, row):
            _pending(row).updating.add(id(row))

    def _updated(self, mapper: Mapper[Any], connection: Any, row: Any) -> None:
        # SQLAlchemy tells of every object that was touched, whether there was anything to write or not.  That it was
        # set to an SQL expression is to be seen before, and what other listeners have set meanwhile is not.
        if _changed(mapper, row) or _is_updating(row):
            pending = _pending(row)
            pending.changes.append(partial(self._event, pending, row, "update"))

    def _deleted(self, mapper: Mapper[Any], connection: Any, row: Any) -> None:
        pending = _pending(row)
        event = self._event(pending, row, "delete")  # while the row is there
        pending.changes.append(lambda: event)

    def _event(self, pending: Pending, row: Any, change: str) -> CollectedEvent:
        payload, key = self._payload(row), self._key(row)
        try:
            event = NewEvent(msgspec.to_builtins(payload), key, {"change": change})
            return (self._topic, *event_row(pending.codec, event))
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(
                f"{type(row).__name__} cannot be published to {self._topic!r}: {error}; "
                f"give @emits a payload=, or a key=, that can be"
            ) from error


def _pending(row: Any) -> Pending:
    session = object_session(row)
    assert session is not None
    return Pending.of(session)


def _is_updating(row: Any) -> bool:
    session = object_session(row)
    pending: Pending | None = None if session is None else session.info.get(Pending)
    return pending is not None and id(row) in pending.updating


def _changed(mapper: Mapper[Any], row: Any) -> bool:
    attributes = inspect(row).attrs
    return any(attributes[column.key].history.has_changes() for column in mapper.column_attrs)


def _columns(row: Any) -> dict[str, Any]:
    columns = object_mapper(row).column_attrs
    return {
        column.key: getattr(row, column.key)
        for column in columns
        if not column.deferred and isinstance(column.columns[0], Column)
    }


def _primary_key(row: Any) -> str:
    return ",".join(map(str, object_mapper(row).primary_key_from_instance(row)))
