"""`Lock`, and limits that all processes share."""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from . import checks, protocols
from .checks import Duration
from .errors import PASSING, LockHeld
from .handling import logger
from .operations import Operation
from .operations.claim import fresh_token
from .operations.coordination import AcquireLock, CountCall, LockAhead, ReadHolder, ReleaseLock, RenewLock, TakeToken
from .plans import Plan, attempt


def window(name: Any, count: Any, per: Any) -> CountCall:
    """Return the operation that allows at most *count* calls in each window of *per* seconds."""
    checked = checks.name("limit", name)
    return CountCall(checked, checks.milliseconds("per", per, least=1), checks.count("count", count, least=1))


def bucket(name: Any, rate: Any, burst: Any = None) -> TakeToken:
    """Return the operation that allows *rate* calls a second, and up to *burst* at once after a pause."""
    checked, rate = checks.name("limit", name), checks.positive("rate", rate)
    depth = max(1.0, rate) if burst is None else checks.burst(burst)
    return TakeToken(checked, rate, depth, int(min(checks.FOREVER, 1 + 1000 * depth / rate)))


@protocols.documented(protocols.Limit)
class Limit:
    """The implementation of `protocols.Limit` and `AsyncLimit`."""

    def __init__(self, execute: Callable[..., Any], name: str, **given: Any) -> None:
        self._execute = execute
        make: Any = {("count", "per"): window, ("rate",): bucket, ("burst", "rate"): bucket}.get(tuple(sorted(given)))
        if make is None:
            raise TypeError("a limit is a window or a bucket: pass count= and per=, or rate= with or without burst=")
        self._operation = make(name, **given)
        self.name = name

    def acquire(self) -> Any:
        return self._execute(self._operation)


class Hold(NamedTuple):
    """The state of a handle that holds its lock."""

    token: int
    fence: int


@protocols.documented(protocols.Lock)
class _Lock:
    """The common part of locks of both flavours."""

    def __init__(
        self, execute: Callable[..., Any], loops: Any, name: str, ttl: Duration, holder: str | None = None
    ) -> None:
        self.name = checks.name("lock", name)
        self._execute = execute
        self._loops = loops
        self._ttl = checks.milliseconds("ttl", ttl, least=1)
        self._holder = None if holder is None else checks.name("holder", holder)
        self._hold: Hold | None = None
        self._mutex = threading.Lock()

    @property
    def fence(self) -> int | None:
        hold = self._hold
        return None if hold is None else hold.fence

    def acquire(self, wait: Duration = 0) -> Any:
        return self._loops.run(self._acquire(checks.milliseconds("wait", wait) / 1000))

    def renew(self, ttl: Duration | None = None) -> Any:
        length = self._ttl if ttl is None else checks.milliseconds("ttl", ttl, least=1)
        return self._loops.run(self._held(lambda hold: RenewLock(self.name, hold.token, length), keep=True))

    def release(self) -> Any:
        return self._loops.run(self._release())

    def _acquire(self, wait: float) -> Plan[bool]:
        request = AcquireLock(self.name, fresh_token(), self._holder or checks.default_worker(), self._ttl)
        fence = yield from attempt(request, LockAhead(self.name), wait)
        if fence is not None:
            with self._mutex:
                self._hold = Hold(request.token, fence)
        return fence is not None

    def _release(self) -> Plan[bool]:
        return self._held(lambda hold: ReleaseLock(self.name, hold.token), keep=False)

    def _held(self, make: Callable[[Hold], Operation[bool]], keep: bool) -> Plan[bool]:
        """Execute an operation on the lock, if it is held, and return whether it still was; then *keep* it or not."""
        hold = self._hold
        if hold is None:
            return False
        found: bool = yield make(hold)
        with self._mutex:
            # Unless another thread has acquired it by this handle since.
            if self._hold is hold and not (keep and found):
                self._hold = None
        return found

    def _enter(self) -> Plan[None]:
        if not (yield from self._acquire(0)):
            raise LockHeld(self.name, *(yield ReadHolder(self.name)))

    def _exit(self) -> Plan[None]:
        try:
            if not (yield from self._release()):
                logger.warning(
                    "lock %r was no longer held when its work ended: use a longer ttl, or renew()", self.name
                )
        except PASSING:
            logger.warning("lock %r could not be released, and is held until it expires", self.name, exc_info=True)


class Lock(_Lock):
    """The implementation of `protocols.Lock`."""

    def __enter__(self) -> Self:
        self._loops.run(self._enter())
        return self

    def __exit__(self, *error: object) -> None:
        self._loops.run(self._exit())


class AsyncLock(_Lock):
    """The implementation of `protocols.AsyncLock`."""

    async def __aenter__(self) -> Self:
        await self._loops.run(self._enter())
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._loops.complete(self._exit())
