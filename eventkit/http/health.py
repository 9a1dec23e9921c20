"""Whether the service is there, and whether it can do its work."""

import asyncio
from time import monotonic

import msgspec

from ..errors import EventkitError
from ..operations.channel import NotificationsAhead
from .problems import Refusal
from .routing import route
from .service import Desk, Service

_CHANNEL = "eventkit:ready"
_PATIENCE = 2.0
"""Seconds within which a commit has to be noticed."""


class Alive(msgspec.Struct, frozen=True):
    """That somebody answers."""

    status: str = "ok"


class Ready(msgspec.Struct, frozen=True):
    """That the database can be written, and how many milliseconds it took until a commit was noticed."""

    status: str
    wake_ms: float


class Health(msgspec.Struct, frozen=True):
    """How the service is: what waits for it, what it has refused, and how the database is doing."""

    status: str
    wake_ms: float
    commit_ms: float
    wal_bytes: int
    writing: int
    listeners: int
    listeners_dropped: int
    refused: int


@route("GET", "/healthz", scope="open")
async def healthz() -> Alive:
    """Whether the process answers; it says nothing of the database."""
    return Alive()


@route("GET", "/readyz", scope="open")
async def readyz(service: Service) -> Ready:
    """Whether the database can be written and tells of commits; 503 if not, or if the service is about to end."""
    return Ready("ok", round(1000 * await _wake(service), 1))


@route("GET", "/health", scope="open")
async def health(service: Service) -> Health:
    """How the service is, in numbers; 503 if it cannot do its work."""
    wake, pressure = await _wake(service), service.pressure
    return Health(
        "ok",
        round(1000 * wake, 1),
        round(1000 * pressure.commit, 1),
        pressure.wal,
        pressure.writing,
        service.listeners,
        service.dropped,
        pressure.refused,
    )


async def _wake(service: Desk) -> float:
    """Seconds from a commit to who sleeps; a refusal if there is no commit, or nobody wakes."""
    if service.closing:
        raise Refusal(503, "ending", "the service is about to end: ask another one")
    async with service.checking:
        if service.checked is not None and monotonic() - service.checked[0] < 1:
            return service.checked[1]
        channel = service.channel(_CHANNEL)
        try:
            async with asyncio.timeout(2 * _PATIENCE):
                before = await channel.notify(msgspec.Raw(b"null"))
                sleeping = asyncio.ensure_future(service.sleep(NotificationsAhead((_CHANNEL,), before), _PATIENCE))
                await asyncio.sleep(0.01)
                began = monotonic()
                await channel.notify(msgspec.Raw(b"null"))
                woken, took = await sleeping, monotonic() - began
                await channel.prune(max_keep=0)
        except (TimeoutError, EventkitError) as error:
            raise Refusal(503, "not_ready", f"the database cannot be written: {error or 'it took too long'}") from error
        if not woken:
            raise Refusal(503, "not_woken", "commits are not noticed: behind a pooler, give ?listen_url= in the URL")
        service.checked = (monotonic(), took)
        return took


routes = [healthz, readyz, health]
