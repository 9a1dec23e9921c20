"""`Lock`: a right that one holder has at a time, among all processes, until it is given back or has expired.

A handle holds the lock by a token of its own, drawn anew for each time, so one whose time is over cannot renew or
release what somebody else has got since.
"""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from . import arguments
from .arguments import Duration
from .errors import PASSING, LockHeld
from .handling import logger
from .operations.claim import fresh_token
from .operations.lock import AcquireLock, LockAhead, ReadHolder, ReleaseLock, RenewLock
from .stopping import completed


class Hold(NamedTuple):
    """That a handle holds its lock."""

    token: int
    fence: int


class _Handle:
    """What locks of both flavours know."""

    def __init__(self, execute: Callable[..., Any], loops: Any, name: str, ttl: Duration) -> None:
        self.name = arguments.name("lock", name)
        self._execute = execute
        self._loops = loops
        self._ttl = arguments.milliseconds("ttl", ttl, least=1)
        self._hold: Hold | None = None
        self._mutex = threading.Lock()

    @property
    def fence(self) -> int | None:
        """The number of this holder; None while the handle does not hold the lock."""
        hold = self._hold
        return None if hold is None else hold.fence

    def _attempt(self) -> AcquireLock:
        return AcquireLock(self.name, fresh_token(), arguments.default_worker(), self._ttl)

    def _note(self, attempt: AcquireLock, fence: int | None) -> bool:
        """Hold the lock if the attempt came to something; whether it did."""
        if fence is not None:
            with self._mutex:
                self._hold = Hold(attempt.token, fence)
        return fence is not None

    def _forget(self, hold: Hold) -> None:
        """Hold it no more, unless another thread has acquired it by this handle since."""
        with self._mutex:
            if self._hold is hold:
                self._hold = None

    def _report(self, released: bool) -> None:
        if not released:
            logger.warning("lock %r was no longer held when its work ended: give it a longer ttl, or renew", self.name)

    def _report_failure(self) -> None:
        logger.warning("lock %r could not be released, and stands until it expires", self.name, exc_info=True)


class Lock(_Handle):
    """Behaves as `eventkit.protocols.Lock` says."""

    def acquire(self, wait: Duration = 0) -> bool:
        """Take the lock, waiting for it if asked to."""
        seconds = arguments.milliseconds("wait", wait) / 1000
        attempt = self._attempt()
        return self._note(attempt, self._loops.attempt(attempt, LockAhead(self.name), seconds))

    def renew(self) -> bool:
        """Let the lock expire a whole ttl from now."""
        hold = self._hold
        if hold is None:
            return False
        renewed: bool = self._execute(RenewLock(self.name, hold.token, self._ttl))
        if not renewed:
            self._forget(hold)
        return renewed

    def release(self) -> bool:
        """Let others have it."""
        hold = self._hold
        if hold is None:
            return False
        released: bool = self._execute(ReleaseLock(self.name, hold.token))
        self._forget(hold)
        return released

    def __enter__(self) -> Self:
        if not self.acquire():
            raise LockHeld(self.name, *self._execute(ReadHolder(self.name)))
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._report(self.release())
        except PASSING:
            self._report_failure()


class AsyncLock(_Handle):
    """Behaves as `eventkit.protocols.AsyncLock` says."""

    async def acquire(self, wait: Duration = 0) -> bool:
        """Take the lock, waiting for it if asked to."""
        seconds = arguments.milliseconds("wait", wait) / 1000
        attempt = self._attempt()
        return self._note(attempt, await self._loops.attempt(attempt, LockAhead(self.name), seconds))

    async def renew(self) -> bool:
        """Let the lock expire a whole ttl from now."""
        hold = self._hold
        if hold is None:
            return False
        renewed: bool = await self._execute(RenewLock(self.name, hold.token, self._ttl))
        if not renewed:
            self._forget(hold)
        return renewed

    async def release(self) -> bool:
        """Let others have it."""
        hold = self._hold
        if hold is None:
            return False
        released: bool = await self._execute(ReleaseLock(self.name, hold.token))
        self._forget(hold)
        return released

    async def __aenter__(self) -> Self:
        if not await self.acquire():
            raise LockHeld(self.name, *await self._execute(ReadHolder(self.name)))
        return self

    async def __aexit__(self, *error: object) -> None:
        await completed(self._leave())

    async def _leave(self) -> None:
        try:
            self._report(await self.release())
        except PASSING:
            self._report_failure()
