"""Telling an open page that there is something new, for as long as the browser's session lets it in."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from litestar import Request, get
from litestar.response import ServerSentEvent
from litestar.response.sse import ServerSentEventMessage

from ...errors import Unavailable
from ..live import Heartbeat
from ..problems import Refusal
from ..service import Desk, Service
from ..watch import FRESH
from . import access

_AT_LEAST = 10.0
"""Seconds after which a page is told to look again although nothing has changed: what it says of time has."""

_SHORT = 0.5
"""Seconds after which it is noticed that the service ends."""


@get("/dashboard/live", opt=access.SEES)
async def live(request: Request[Any, Any, Any], service: Service) -> ServerSentEvent:
    """A message whenever it is worth looking again."""
    return ServerSentEvent(_news(service, Heartbeat(request, service.settings.heartbeat)))


async def _news(service: Desk, heartbeat: Heartbeat) -> AsyncIterator[ServerSentEventMessage]:
    known, since = None, 0.0
    with service.listener():
        while not service.closing:
            try:
                await heartbeat.beat()
            except Refusal:
                return  # The browser asks again, and the answer gives the reason.
            try:
                sample = await service.watch.look()
            except Unavailable:
                seen = known
            else:
                seen = (sample.overview, sample.workers)
            if seen != known or since >= _AT_LEAST:
                known, since = seen, 0.0
                yield ServerSentEventMessage(data="new", retry=2000)
            for _ in range(round(FRESH / _SHORT)):
                if service.closing:
                    return
                await asyncio.sleep(_SHORT)
            since += FRESH


routes = [live]
