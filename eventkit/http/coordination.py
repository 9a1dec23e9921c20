"""Locks and limits."""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar import Request
from litestar.params import FromPath, JSONBody

from .. import checks
from ..operations.claim import fresh_token
from ..operations.coordination import AcquireLock, LockAhead, ReadHolder, ReleaseLock, RenewLock
from ..values import HeldLock
from .events import while_connected
from .requests import AtLeastOne, Name, Refusal, Token, token
from .routing import route
from .service import Service

Length = Annotated[int, msgspec.Meta(ge=1, le=checks.FOREVER)]


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An attempt to acquire a lock for *ttl_ms*, waiting up to *wait_s* seconds."""

    ttl_ms: Length = 60_000
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.0
    holder: Name = "http"


class Lock(msgspec.Struct, frozen=True):
    """An acquired lock: *token* is needed to renew and release it, and *fence* grows with each holder."""

    name: str
    token: str
    fence: int


class Renewal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A lock to renew for *ttl_ms* from now."""

    token: Token
    ttl_ms: Length = 60_000


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A lock to release."""

    token: Token


class Holder(msgspec.Struct, frozen=True):
    """The holder of a lock, and when it expires; null and null for a free lock."""

    holder: str | None
    until: datetime | None


class StillHeld(msgspec.Struct, frozen=True):
    """Whether this token held the lock."""

    held: bool


@route("GET", "/locks", scope="consume")
async def list_locks(service: Service) -> dict[str, HeldLock]:
    """List the locks that are held, by name."""
    return (await service.kit.overview()).locks


@route("GET", "/locks/{lock:str}", scope="consume", on="lock")
async def get_lock(service: Service, lock: FromPath[str]) -> Holder:
    """Return the holder of a lock."""
    return Holder(*await service.execute(ReadHolder(checks.name("lock", lock))))


@route("POST", "/locks/{lock:str}/acquire", scope="produce", on="lock", problems=(409,))
async def acquire_lock(
    request: Request[Any, Any, Any], service: Service, lock: FromPath[str], data: JSONBody[Attempt]
) -> Lock:
    """Acquire a lock; 409 if it is held."""
    attempt = AcquireLock(checks.name("lock", lock), fresh_token(), checks.name("holder", data.holder), data.ttl_ms)
    fence = await service.execute(attempt)
    if fence is None and data.wait_s:
        waiting = service.attempt(attempt, LockAhead(lock), service.capped(data.wait_s))
        fence = await while_connected(request, waiting, lambda late: service.execute(ReleaseLock(lock, attempt.token)))
    if fence is None:
        holder, until = await service.execute(ReadHolder(lock))
        raise Refusal(
            409, "lock_held", f"lock {lock!r} is held by {holder} until {until}: wait with wait_s, or try again later"
        )
    return Lock(lock, str(attempt.token), fence)


@route("POST", "/locks/{lock:str}/renew", scope="produce", on="lock")
async def renew_lock(service: Service, lock: FromPath[str], data: JSONBody[Renewal]) -> StillHeld:
    """Renew a lock."""
    renewal = RenewLock(checks.name("lock", lock), token(data.token), data.ttl_ms)
    return StillHeld(await service.execute(renewal))


@route("POST", "/locks/{lock:str}/release", scope="produce", on="lock")
async def release_lock(service: Service, lock: FromPath[str], data: JSONBody[Release]) -> StillHeld:
    """Release a lock."""
    return StillHeld(await service.execute(ReleaseLock(checks.name("lock", lock), token(data.token))))


Rate = Annotated[float, msgspec.Meta(ge=1e-9, le=1e12)]


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """At most *limit* calls in each window of *per_s* seconds."""

    limit: AtLeastOne
    per_s: Annotated[float, msgspec.Meta(ge=0.001, le=3_162_240_000)]


class Bucket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """*rate* tokens per second, and at most *burst*, by default those of a second."""

    rate: Rate
    burst: Annotated[float, msgspec.Meta(ge=1, le=1e12)] | None = None


class Decision(msgspec.Struct, frozen=True):
    """Whether the call is allowed."""

    allowed: bool


@route("POST", "/limits/{limit:str}/window", scope="produce", on="limit")
async def count_call(service: Service, limit: FromPath[str], data: JSONBody[Window]) -> Decision:
    """Count a call in the current window if there is room; refused calls do not count."""
    return Decision(await service.kit.rate_limit(limit, data.limit, data.per_s))


@route("POST", "/limits/{limit:str}/bucket", scope="produce", on="limit")
async def take_token(service: Service, limit: FromPath[str], data: JSONBody[Bucket]) -> Decision:
    """Take a token from a bucket if there is one."""
    return Decision(await service.kit.token_bucket(limit, data.rate, data.burst))


routes = [
    list_locks,
    get_lock,
    acquire_lock,
    renew_lock,
    release_lock,
    count_call,
    take_token,
]
