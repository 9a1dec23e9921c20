"""Locks among whoever asks: taken with a token, renewed and released by it, and lost when they expire."""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar import Request
from litestar.params import FromPath, JSONBody

from .. import arguments
from ..operations.claim import fresh_token
from ..operations.lock import AcquireLock, LockAhead, ReadHolder, ReleaseLock, RenewLock
from ..stats import HeldLock
from .problems import Refusal
from .routing import route
from .service import Service
from .terms import Name, Token, token
from .waiting import while_there

Length = Annotated[int, msgspec.Meta(ge=1, le=arguments.FOREVER)]


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An attempt to take a lock for *ttl_ms*, waiting for it up to *wait_s* seconds."""

    ttl_ms: Length = 60_000
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.0
    holder: Name = "http"


class Lock(msgspec.Struct, frozen=True):
    """A lock that was taken: *token* is the right to it, and *fence* grows with every new holder."""

    name: str
    token: str
    fence: int


class Renewal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A lock that is to be kept for *ttl_ms* from now, by its token."""

    token: Token
    ttl_ms: Length = 60_000


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A lock that is to be let go, by its token."""

    token: Token


class Holder(msgspec.Struct, frozen=True):
    """Who has the lock, and until when at the latest; null and null if nobody has."""

    holder: str | None
    until: datetime | None


class StillHeld(msgspec.Struct, frozen=True):
    """Whether it was still held by that token."""

    held: bool


@route("GET", "/locks", scope="consume")
async def list_locks(service: Service) -> dict[str, HeldLock]:
    """The locks that are held, by name."""
    return (await service.kit.overview()).locks


@route("GET", "/locks/{lock:str}", scope="consume", on="lock")
async def get_lock(service: Service, lock: FromPath[str]) -> Holder:
    """Who has a lock."""
    return Holder(*await service.execute(ReadHolder(arguments.name("lock", lock))))


@route("POST", "/locks/{lock:str}/acquire", scope="produce", on="lock", problems=(409,))
async def acquire_lock(
    request: Request[Any, Any, Any], service: Service, lock: FromPath[str], data: JSONBody[Attempt]
) -> Lock:
    """Take a lock; 409 if somebody else has it."""
    attempt = AcquireLock(
        arguments.name("lock", lock), fresh_token(), arguments.name("holder", data.holder), data.ttl_ms
    )
    fence = await service.execute(attempt)
    if fence is None and data.wait_s:
        waiting = service.attempt(attempt, LockAhead(lock), service.patience(data.wait_s))
        fence = await while_there(request, waiting, lambda late: service.execute(ReleaseLock(lock, attempt.token)))
    if fence is None:
        holder, until = await service.execute(ReadHolder(lock))
        raise Refusal(
            409, "lock_held", f"lock {lock!r} is held by {holder} until {until}: wait for it with wait_s, or come back"
        )
    return Lock(lock, str(attempt.token), fence)


@route("POST", "/locks/{lock:str}/renew", scope="produce", on="lock")
async def renew_lock(service: Service, lock: FromPath[str], data: JSONBody[Renewal]) -> StillHeld:
    """Keep a lock longer."""
    renewal = RenewLock(arguments.name("lock", lock), token(data.token), data.ttl_ms)
    return StillHeld(await service.execute(renewal))


@route("POST", "/locks/{lock:str}/release", scope="produce", on="lock")
async def release_lock(service: Service, lock: FromPath[str], data: JSONBody[Release]) -> StillHeld:
    """Let others have a lock."""
    return StillHeld(await service.execute(ReleaseLock(arguments.name("lock", lock), token(data.token))))


routes = [list_locks, get_lock, acquire_lock, renew_lock, release_lock]
