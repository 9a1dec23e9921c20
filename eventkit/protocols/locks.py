"""Locks: one holder at a time, among all processes."""

from __future__ import annotations

from typing import Protocol, Self

from ..arguments import Duration


class Lock(Protocol):
    """A lock that one holder has at a time, among all processes, by the database's clock.

    The holder is the handle that has acquired it, until it releases it or the ttl is over.  A handle that holds it
    already gets it no second time.  Entering it acquires it or raises `LockHeld`; leaving it releases it.
    """

    name: str

    @property
    def fence(self) -> int | None:
        """A number that grows with every holder; None while this handle does not hold the lock.

        Send it along to whatever the lock protects, and have it refuse numbers below the highest it has seen: then a
        holder that stood still for longer than its ttl does no harm.
        """
        ...

    def acquire(self, wait: Duration = 0) -> bool:
        """Take the lock, waiting up to *wait* seconds for it; False if somebody else still holds it."""
        ...

    def renew(self) -> bool:
        """Begin the ttl anew; False if it was over, and the lock is lost."""
        ...

    def release(self) -> bool:
        """Let others have the lock; False if its time was over."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...


class AsyncLock(Protocol):
    """`Lock`, awaited."""

    name: str

    @property
    def fence(self) -> int | None: ...

    async def acquire(self, wait: Duration = 0) -> bool: ...

    async def renew(self) -> bool: ...

    async def release(self) -> bool: ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...
