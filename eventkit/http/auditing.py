"""What administrators do is told on the stream ``eventkit.audit``, by the transactions that do it.

Whatever the route of an administrator writes is written together with an event, which says who asked for what.
"""

from contextvars import ContextVar
from typing import Any, cast

from ..codec import encode_json
from ..operations import Operation
from ..operations.audit import Audited
from ..operations.lock import AcquireLock, ReleaseLock
from ..protocols import AsyncConnection

_UNTOLD = (AcquireLock, ReleaseLock)
"""What a route does beside, so that nobody else does the same meanwhile."""

_entry: ContextVar[str | None] = ContextVar("eventkit_audit", default=None)


def tell(action: str, by: str, **about: Any) -> None:
    """Have what this request writes from now on told as *action*, with what it is *about*."""
    _entry.set(encode_json({"action": action, "by": by, **about}))


def forget() -> None:
    """Have nothing told that this request writes."""
    _entry.set(None)


def auditing(connection: AsyncConnection) -> AsyncConnection:
    """The same connection, by which writes are told that are to be."""
    return cast(AsyncConnection, _Auditing(connection))


class _Auditing:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def execute(self, operation: Operation[Any], tx: Any = None) -> Any:
        entry = _entry.get()
        if entry is not None and operation.writes and not isinstance(operation, _UNTOLD):
            operation = Audited(operation, entry)
        return await self._connection.execute(operation, tx)
