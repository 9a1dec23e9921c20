"""Schedules, with their next fires."""

from typing import Any

from litestar import Request, Response, get

from ..service import Service
from . import access
from .viewing import page

FIRES = 4
"""How many of the next fires are shown of each."""

MOST = 100
"""Of how many schedules they are."""


@get("/dashboard/schedules", opt=access.SEES)
async def schedules(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """All schedules, the next to fire first."""
    handle = service.kit.schedules
    found = sorted(await handle.list(), key=lambda one: (one.next_ms is None, one.next_ms or 0, one.name))
    fires = {
        one.name: [round(fire.timestamp() * 1000) for fire in await handle.upcoming(one.name, FIRES)]
        for one in found[:MOST]
    }
    return await page(request, "schedules", "Schedules", schedules=found, fires=fires)


routes = [schedules]
