"""The database of a command, and the audit log of its changes."""

import getpass
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from . import settings
from .console import Failed

if TYPE_CHECKING:
    from eventkit import EventKit
    from eventkit.protocols import Connection


@contextmanager
def opened(url: str | None) -> "Iterator[EventKit]":
    """Open the kit on the database of the command; only ``eventkit migrate`` creates a database."""
    import eventkit

    with eventkit.connect(settings.url(url), create=False) as kit:
        yield kit


@contextmanager
def connected(url: str | None) -> "Iterator[Connection]":
    """Open a connection that executes operations, for commands beyond the handles of a kit."""
    from eventkit.kit import backend_of

    address = settings.url(url)
    with closing(backend_of(address).connect(address, create=False)) as connection:
        yield connection


def backend_function(url: str, what: str) -> Any:
    """Return an administrative function of the database's backend."""
    from eventkit.kit import backend_of

    backend = backend_of(url)
    if not hasattr(backend, what):
        raise Failed(f"the {url.partition(':')[0]} backend does not support {what}: use the database's own tools")
    return getattr(backend, what)


@contextmanager
def audited(url: str | None, action: str, **about: Any) -> "Iterator[EventKit]":
    """Open the kit, and record its writes as *action* in the audit log."""
    from eventkit.codec import encode_json
    from eventkit.kit import Kit

    with opened(url) as kit:
        entry = encode_json({"action": action, "by": caller(), **about})
        auditing: Any = _Auditing(kit._connection, entry)  # type: ignore[attr-defined]
        yield Kit(auditing)


def caller() -> str:
    """Return the name of the user for the audit log."""
    return f"command line: {getpass.getuser()}"


class _Auditing:
    """A connection that adds *entry* to the audit log with each write."""

    def __init__(self, connection: Any, entry: str) -> None:
        self._connection = connection
        self._entry = entry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, operation: Any, tx: Any = None) -> Any:
        """Execute *operation*."""
        from eventkit.operations.admin import Audited

        return self._connection.execute(Audited(operation, self._entry) if operation.writes else operation, tx)
