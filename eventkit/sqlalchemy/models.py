"""Mapped classes as sources of events: a changed row is an event of the same commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar, get_args

import msgspec
from sqlalchemy import Column, event, inspect
from sqlalchemy.orm import Mapper, object_mapper, object_session

from .. import checks
from ..operations.bulk import CollectedEvent
from ..stream import event_row
from ..values import NewEvent, RowChange
from .session import Pending

M = TypeVar("M")

_CHANGES: tuple[RowChange, ...] = get_args(RowChange)


def emits(
    stream: str,
    *,
    on: RowChange | Iterable[RowChange] = _CHANGES,
    payload: Callable[[Any], Any] | None = None,
    key: Callable[[Any], str | None] | None = None,
) -> Callable[[type[M]], type[M]]:
    """Publish an event to *stream* for each row of the decorated class that a session inserts, updates or deletes.

    *payload* returns the event's payload for an object; by default, it has the columns that are not deferred. msgspec
    encodes it as JSON, so datetimes, decimals, UUIDs, dataclasses and the like are allowed.  *key* returns the event's
    key, by default the row's primary key.  The header ``change`` names the change.

    Both are called after the flush, so values set by the database are known; for a delete, before it.  An update counts
    if a column has changed.  Subclasses emit too, and several declarations are several events.  Changes outside the
    flush of objects emit nothing: ``session.execute(update(…))`` and the like, the ``bulk_`` methods, and ``ON DELETE``
    in the database.
    """
    source = _Source(checks.name("stream", stream), payload, key)
    changes = (on,) if isinstance(on, str) else tuple(on)
    for change in changes:
        checks.choice("on", change, RowChange)

    def declare(model: type[M]) -> type[M]:
        for change in changes:
            for name, listener in source.listeners(change).items():
                event.listen(model, name, listener, propagate=True)
        return model

    return declare


class _Source:
    def __init__(
        self, stream: str, payload: Callable[[Any], Any] | None, key: Callable[[Any], str | None] | None
    ) -> None:
        self._stream = stream
        self._payload = _columns if payload is None else payload
        self._key = _primary_key if key is None else key

    def listeners(self, change: str) -> dict[str, Callable[..., None]]:
        """Return the SQLAlchemy events of a change, and their listeners."""
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
        # SQLAlchemy reports every touched object, changed or not.  Attributes set to an SQL expression are only visible
        # before the flush, and those set by other listeners only after it.
        if _changed(mapper, row) or _is_updating(row):
            pending = _pending(row)
            pending.changes.append(partial(self._event, pending, row, "update"))

    def _deleted(self, mapper: Mapper[Any], connection: Any, row: Any) -> None:
        pending = _pending(row)
        event = self._event(pending, row, "delete")  # while the row exists
        pending.changes.append(lambda: event)

    def _event(self, pending: Pending, row: Any, change: str) -> CollectedEvent:
        payload, key = self._payload(row), self._key(row)
        try:
            event = NewEvent(msgspec.to_builtins(payload), key, {"change": change})
            return (self._stream, *event_row(pending.codec, event))
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(
                f"{type(row).__name__} cannot be published to {self._stream!r}: {error}; "
                f"give @emits a payload= or key= that is valid"
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
