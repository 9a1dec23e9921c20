"""`Lock`, and limits that all processes share."""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from . import checks
from .checks import Duration
from .errors import PASSING, LockHeld
from .handling import logger
from .operations.claim import fresh_token
from .operations.coordination import AcquireLock, CountCall, LockAhead, ReadHolder, ReleaseLock, RenewLock, TakeToken
from .plans import completed


def window(name: Any, limit: Any, per: Any) -> CountCall:
    """Return the operation that allows at most *limit* calls in each window of *per* seconds."""
    checked = checks.name("limit", name)
    return CountCall(checked, checks.milliseconds("per", per, least=1), checks.count("limit", limit, least=1))


def bucket(name: Any, rate: Any, burst: Any) -> TakeToken:
    """Return the operation that allows *rate* calls a second, and up to *burst* at once after a pause."""
    checked, rate = checks.name("limit", name), checks.positive("rate", rate)
    depth = max(1.0, rate) if burst is None else checks.burst(burst)
    return TakeToken(checked, rate, depth, int(min(checks.FOREVER, 1 + 1000 * depth / rate)))


class Hold(NamedTuple):
    """The state of a handle that holds its lock."""

    token: int
    fence: int


class _Handle:
    """The common part of locks of both flavours."""

    def __init__(self, execute: Callable[..., Any], loops: Any, name: str, ttl: Duration) -> None:
        self.name = checks.name("lock", name)
        self._execute = execute
        self._loops = loops
        self._ttl = checks.milliseconds("ttl", ttl, least=1)
        self._hold: Hold | None = None
        self._mutex = threading.Lock()

    @property
    def fence(self) -> int | None:
        """The number of this holder; None while the handle does not hold the lock."""
        hold = self._hold
        return None if hold is None else hold.fence

    def _attempt(self) -> AcquireLock:
        return AcquireLock(self.name, fresh_token(), checks.default_worker(), self._ttl)

    def _note(self, attempt: AcquireLock, fence: int | None) -> bool:
        """Record the lock as held if the attempt succeeded; return whether it did."""
        if fence is not None:
            with self._mutex:
                self._hold = Hold(attempt.token, fence)
        return fence is not None

    def _forget(self, hold: Hold) -> None:
        """Record the lock as not held, unless another thread has acquired it by this handle since."""
        with self._mutex:
            if self._hold is hold:
                self._hold = None

    def _report(self, released: bool) -> None:
        if not released:
            logger.warning("lock %r was no longer held when its work ended: use a longer ttl, or renew()", self.name)

    def _report_failure(self) -> None:
        logger.warning("lock %r could not be released, and is held until it expires", self.name, exc_info=True)


class Lock(_Handle):
    """The implementation of `protocols.Lock`."""

    def acquire(self, wait: Duration = 0) -> bool:
        """Acquire the lock, waiting up to *wait* seconds."""
        seconds = checks.milliseconds("wait", wait) / 1000
        attempt = self._attempt()
        return self._note(attempt, self._loops.attempt(attempt, LockAhead(self.name), seconds))

    def renew(self) -> bool:
        """Restart the ttl; return False if the lock is lost."""
        hold = self._hold
        if hold is None:
            return False
        renewed: bool = self._execute(RenewLock(self.name, hold.token, self._ttl))
        if not renewed:
            self._forget(hold)
        return renewed

    def release(self) -> bool:
        """Release the lock."""
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
    """The implementation of `protocols.AsyncLock`."""

    async def acquire(self, wait: Duration = 0) -> bool:
        """Acquire the lock, waiting up to *wait* seconds."""
        seconds = checks.milliseconds("wait", wait) / 1000
        attempt = self._attempt()
        return self._note(attempt, await self._loops.attempt(attempt, LockAhead(self.name), seconds))

    async def renew(self) -> bool:
        """Restart the ttl; return False if the lock is lost."""
        hold = self._hold
        if hold is None:
            return False
        renewed: bool = await self._execute(RenewLock(self.name, hold.token, self._ttl))
        if not renewed:
            self._forget(hold)
        return renewed

    async def release(self) -> bool:
        """Release the lock."""
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
