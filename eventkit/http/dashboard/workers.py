"""Who works, who holds a lock, and what is limited."""

from typing import Any

from litestar import Request, Response, get

from ..service import Service
from . import access
from .viewing import page

MOST = 500
"""How many limits are shown."""


@get("/dashboard/workers", opt=access.SEES)
async def workers(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """All workers, and their slots."""
    sample = await service.watch.look()
    points = [point.totals["running"] for point in service.watch.points]
    return await page(request, "workers", "Workers", workers=sample.workers, running=points)


@get("/dashboard/locks", opt=access.SEES)
async def locks(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """All locks that are held, and all limits that have something to say."""
    sample = await service.watch.look()
    limits = await service.kit.limits(MOST + 1)
    return await page(
        request,
        "locks",
        "Locks and limits",
        locks=sample.overview.locks.items(),
        limits=limits[:MOST],
        more=len(limits) > MOST,
    )


routes = [workers, locks]
