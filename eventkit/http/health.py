"""Whether the service is there, and whether it can do its work."""

import asyncio
from time import monotonic

import msgspec

from ..errors import EventkitError
from ..operations.channel import NotificationsAhead
from .problems import Refusal, problem_of
from .routing import route
from .service import Desk, Service

_CHANNEL = "eventkit:ready"
_PATIENCE = 2.0
"""Seconds within which a commit has to be noticed."""


_GOOD_FOR = 1.0
"""Seconds for which the outcome of a check counts."""


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
    """Seconds from a commit to who sleeps, or a refusal; requests of a second share one check, also a failed one."""
    if service.closing:
        raise Refusal(503, "ending", "the service is about to end: ask another one")
    checked = service.readiness
    if checked is None or (checked.done() and monotonic() - checked.result()[0] > _GOOD_FOR):
        checked = service.readiness = asyncio.create_task(_checked(service))
    _, found = await asyncio.shield(checked)
    if isinstance(found, Refusal):
        problem = found.problem
        raise Refusal(problem.status, problem.code, problem.error)
    return found


async def _checked(service: Desk) -> tuple[float, float | Refusal]:
    """When the check has ended, and the seconds or the refusal."""
    try:
        async with asyncio.timeout(2 * _PATIENCE):
            found = await _woken(service)
    except TimeoutError:
        found = Refusal(503, "not_ready", f"the database did not answer within {2 * _PATIENCE:g} s")
    except EventkitError as error:
        found = Refusal(503, "not_ready", problem_of(error)[0].error)
    return monotonic(), found


async def _woken(service: Desk) -> float | Refusal:
    channel = service.channel(_CHANNEL)
    before = await channel.notify(msgspec.Raw(b"null"))
    sleeping = asyncio.ensure_future(service.sleep(NotificationsAhead((_CHANNEL,), before), _PATIENCE))
    await asyncio.sleep(0.01)
    began = monotonic()
    await channel.notify(msgspec.Raw(b"null"))
    woken, took = await sleeping, monotonic() - began
    await channel.prune(max_keep=0)
    if not woken:
        return Refusal(503, "not_woken", "commits are not noticed: behind a pooler, give ?listen_url= in the URL")
    return took


routes = [healthz, readyz, health]
