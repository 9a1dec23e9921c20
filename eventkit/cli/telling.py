"""What is done to a database from the command line is told on ``eventkit.audit``, by the transactions that do it.

Whoever puts tasks in and takes them out is not told of; whoever changes how things are, or what has become of the
work of others, is.
"""

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .opening import opened

if TYPE_CHECKING:
    from eventkit import EventKit


@contextmanager
def told(url: str | None, action: str, **about: Any) -> "Iterator[EventKit]":
    """The kit, like `opened`: what is written by it is told as *action*, with what it is *about*."""
    from eventkit.codec import encode_json
    from eventkit.kit import Kit

    with opened(url) as kit:
        entry = encode_json({"action": action, "by": caller(), **about})
        telling: Any = _Telling(kit._connection, entry)  # type: ignore[attr-defined]
        yield Kit(telling)


def caller() -> str:
    """Who types."""
    return f"command line: {getpass.getuser()}"


class _Telling:
    """Behaves as *connection* does, and has each write told as *entry*."""

    def __init__(self, connection: Any, entry: str) -> None:
        self._connection = connection
        self._entry = entry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, operation: Any, tx: Any = None) -> Any:
        """The answer to *operation*."""
        from eventkit.operations.audit import Audited

        return self._connection.execute(Audited(operation, self._entry) if operation.writes else operation, tx)
