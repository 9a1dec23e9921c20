"""A backend of eventkit in a distribution of its own, for URLs such as ``elsewhere:///shop.db``.

What it adds to eventkit's own SQLite backend is nothing, and that is its use: each call that the kit makes
arrives here first, through the names that `eventkit.protocols` gives to a backend and no others.
"""

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, TypeVar

import eventkit_sqlite

from eventkit.operations import Operation, Probe
from eventkit.plans import Stop
from eventkit.protocols import AsyncConnection, Connection

T = TypeVar("T")

capabilities: frozenset[str] = frozenset({"elsewhere"})


def connect(url: str, *, create: bool = True) -> Connection:
    """A connection to the file that *url* names."""
    return Elsewhere(eventkit_sqlite.connect(_sqlite(url), create=create))


async def connect_async(url: str, *, create: bool = True) -> AsyncConnection:
    """`connect`, awaited."""
    return AsyncElsewhere(await eventkit_sqlite.connect_async(_sqlite(url), create=create))


def schema(url: str | None = None, name: str = "") -> Any:
    """The definitions of the tables, for the migrations."""
    return eventkit_sqlite.schema(None if url is None else _sqlite(url))


def _sqlite(url: str) -> str:
    return "sqlite" + url.removeprefix("elsewhere")


class Elsewhere:
    """A connection with the names of the protocol and no others."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def max_payload(self) -> int:
        return self._connection.max_payload

    @property
    def closing(self) -> bool:
        return self._connection.closing

    def execute(self, operation: Operation[T], tx: Any = None) -> T:
        return self._connection.execute(operation, tx)

    def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool:
        return self._connection.sleep(probe, timeout, stop)

    def transaction(self) -> AbstractContextManager[Any]:
        return self._connection.transaction()

    def rouse(self) -> None:
        self._connection.rouse()

    def end_sleep(self) -> None:
        self._connection.end_sleep()

    def close(self) -> None:
        self._connection.close()


class AsyncElsewhere:
    """`Elsewhere`, awaited."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    @property
    def max_payload(self) -> int:
        return self._connection.max_payload

    @property
    def closing(self) -> bool:
        return self._connection.closing

    async def execute(self, operation: Operation[T], tx: Any = None) -> T:
        return await self._connection.execute(operation, tx)

    async def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool:
        return await self._connection.sleep(probe, timeout, stop)

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        return self._connection.transaction()

    def rouse(self) -> None:
        self._connection.rouse()

    def end_sleep(self) -> None:
        self._connection.end_sleep()

    async def close(self) -> None:
        await self._connection.close()
