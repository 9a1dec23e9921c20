"""Sessions that collect events and tasks, in either flavour."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eventkit import EventKit
from eventkit.sqlalchemy import bind, collect

from .flavours import unwrapped
from .orders import opened


@contextmanager
def collecting(engine: Any, kit: Any, **options: Any) -> Iterator[Any]:
    """Return a session that writes what it collects to *kit*."""
    with opened(engine, **options) as session:
        bind(unwrapped(session), unwrapped(kit))
        yield session


def kit_of(session: Any) -> Any:
    """Return the collecting handle of the session."""
    return collect(unwrapped(session))


def topic(session: Any, name: str = "t") -> Any:
    """Return a stream of the session."""
    return kit_of(session).stream(name)


def events(kit: EventKit, name: str = "t") -> list[Any]:
    """Return the published payloads."""
    return [event.payload for event in kit.stream(name).read()]
