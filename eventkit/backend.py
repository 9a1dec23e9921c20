"""For authors of backends: the interface that a backend's package provides to the kit."""

# A method of a protocol has no body, for which pyright would ask for an ellipsis after the docstring.
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeVar

from .operations import Operation, Probe
from .plans import Stop
from .values import Diagnostic

T = TypeVar("T")


class Connection(Protocol):
    """A backend's connection: it executes operations, and waits on probes."""

    @property
    def max_payload(self) -> int:
        """The maximum size of a payload, in bytes of JSON text."""

    @property
    def closing(self) -> bool:
        """True after `end_sleep` was called."""

    def execute(self, operation: Operation[T], tx: Any = None) -> T:
        """Execute an operation in *tx*, or in a transaction of its own, and return its answer.

        All of it takes effect or none.
        """

    def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool:
        """Wait until *probe* is ready; return False after *timeout* seconds, when *stop* is set, or after `end_sleep`.

        The wait notices every commit made after the call, in any process.
        """

    def transaction(self) -> AbstractContextManager[Any]:
        """Return the context manager of `EventKit.transaction`."""

    def end_sleep(self) -> None:
        """Make every `sleep` return False, now and from now on."""

    def close(self) -> None:
        """Close the database; every later call raises `Closed`."""


class AsyncConnection(Protocol):
    """`Connection`, awaited."""

    @property
    def max_payload(self) -> int: ...
    @property
    def closing(self) -> bool: ...
    async def execute(self, operation: Operation[T], tx: Any = None) -> T: ...
    async def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool: ...
    def transaction(self) -> AbstractAsyncContextManager[Any]: ...
    def end_sleep(self) -> None: ...
    async def close(self) -> None: ...


class Backend(Protocol):
    """A package that serves a URL scheme, found by the entry point group ``eventkit.backends``.

    A module with these names is a backend.
    """

    capabilities: frozenset[str]

    def connect(self, url: str, *, create: bool = True, incomplete: bool = False) -> Connection:
        """Return a connection; create the schema first if it is missing and *create* is true.

        Raise `Unavailable` for a database that `ReadCondition` reports as incomplete, unless *incomplete* is true.
        """

    def connect_async(self, url: str, *, create: bool = True) -> Awaitable[AsyncConnection]:
        """`connect`, awaited."""

    def schema(self, url: str | None = None, name: str = "eventkit") -> Any:
        """Return the `eventkit_migrations.database.Schema` of the tables of *url*.

        Without *url* it is that of any database, called *name* where databases have schemas: for statements, without a
        connection.
        """


class Admin(Protocol):
    """Optional functions of a backend's package, used by the maintenance commands of the CLI."""

    def diagnose(self, url: str) -> list[Diagnostic]:
        """Return the diagnostics of the database: what is in order, what is not, and the remedies."""

    def compact(self, url: str) -> tuple[int, int]:
        """Return unused space to the operating system; return the size in bytes before and after."""

    def backup(self, url: str, path: str, progress: Callable[[int, int], object]) -> None:
        """Copy the database to a new file while others use it; call *progress* with the amount copied and the total."""


class Bulk(Protocol):
    """Optional functions of a backend's package for reading millions of rows."""

    def arrow(self, url: str) -> AbstractContextManager[Callable[[Operation[Any], Sequence[str]], Any]]:
        """Return a function that executes a reading operation, and returns a ``pyarrow.Table`` of the given columns."""
