"""For authors of backends: what a package has, for the kit to work on its database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from ..findings import Finding
from ..operations import Operation, Probe
from ..stopping import Stop
from .terms import T


class Connection(Protocol):
    """A backend's connection: it executes operations, and sleeps on probes."""

    @property
    def max_payload(self) -> int:
        """The most bytes of JSON text that a payload may have."""
        ...

    @property
    def closing(self) -> bool:
        """Whether `end_sleep` was called."""
        ...

    def execute(self, operation: Operation[T], tx: Any = None) -> T:
        """The answer to *operation*: its plan, run in *tx* or in a transaction of its own, whole or not at all."""
        ...

    def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool:
        """Wait until *probe* is ready; False when *timeout* seconds have passed, *stop* is set, or sleeping has ended.

        No commit after the call goes unnoticed, whichever process makes it.
        """
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """What `EventKit.transaction` gives."""
        ...

    def rouse(self) -> None:
        """Let every `sleep` that is under way look at its probe again."""
        ...

    def end_sleep(self) -> None:
        """Let every `sleep` return False, now and from now on."""
        ...

    def close(self) -> None:
        """Let go of the database; every call after that raises `Closed`."""
        ...


class AsyncConnection(Protocol):
    """`Connection`, awaited."""

    @property
    def max_payload(self) -> int: ...

    @property
    def closing(self) -> bool: ...

    async def execute(self, operation: Operation[T], tx: Any = None) -> T: ...

    async def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool: ...

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...

    def rouse(self) -> None: ...

    def end_sleep(self) -> None: ...

    async def close(self) -> None: ...


class Backend(Protocol):
    """A package that serves a URL scheme, found by the entry point group ``eventkit.backends``.

    A module with these names is one.
    """

    capabilities: frozenset[str]

    def connect(self, url: str, *, create: bool = True, incomplete: bool = False) -> Connection:
        """A connection; the schema is made first if there is none and *create* is true.

        Unless *incomplete* is true, a database for which `ReadIncomplete` has an answer is `Unavailable`.
        """
        ...

    def connect_async(self, url: str, *, create: bool = True) -> Awaitable[AsyncConnection]:
        """`connect`, awaited."""
        ...


class Care(Protocol):
    """What a backend's package may have beside that, for whoever looks after its databases by the command line."""

    def diagnose(self, url: str) -> list[Finding]:
        """What stands well and ill with the database, and what to do about it."""
        ...

    def compact(self, url: str) -> tuple[int, int]:
        """Give space that nothing takes any more back to the system; how many bytes there were, and are."""
        ...

    def backup(self, url: str, path: str, progress: Callable[[int, int], object]) -> None:
        """Copy the database to a new file while others use it; *progress* is told how far it is, and how much it is."""
        ...


class Bulk(Protocol):
    """What a backend's package may have beside that, for whoever reads millions of rows."""

    def arrow(self, url: str) -> AbstractContextManager[Callable[[Operation[Any], Sequence[str]], Any]]:
        """What executes an operation that reads; its answer is a ``pyarrow.Table`` with those columns."""
        ...
