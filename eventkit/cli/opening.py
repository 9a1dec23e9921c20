"""Opening the kit that a command works on, in the one place where that is done."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from . import settings
from .refusals import Failed

if TYPE_CHECKING:
    from eventkit import EventKit
    from eventkit.protocols import Connection


@contextmanager
def opened(url: str | None) -> "Iterator[EventKit]":
    """The kit on the database that is meant.  A database that is not there is not made: ``eventkit migrate`` does."""
    import eventkit

    with eventkit.connect(settings.url(url), create=False) as kit:
        yield kit


@contextmanager
def connected(url: str | None) -> "Iterator[Connection]":
    """The same, for what no handle has: a connection that executes operations."""
    from eventkit.kit import backend_of

    address = settings.url(url)
    with closing(backend_of(address).connect(address, create=False)) as connection:
        yield connection


def care(url: str, what: str) -> Any:
    """What the database's own backend does where others need not: its function *what*."""
    from eventkit.kit import backend_of

    backend = backend_of(url)
    if not hasattr(backend, what):
        raise Failed(f"the backend of {url.partition(':')[0]} has no {what}: use the database's own tools")
    return getattr(backend, what)
