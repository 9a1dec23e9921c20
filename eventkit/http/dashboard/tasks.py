"""One task: all that is known of it, and all that it went through."""

from typing import Any

import msgspec
from litestar import Request, Response, get

from ...operations.browse import ReadHistory
from ..problems import Refusal
from ..service import Service
from . import access
from .queues import named
from .viewing import document, page

STEPS = 500
"""How many steps of a history are shown."""


class Step(msgspec.Struct, frozen=True):
    """A step of a history, as its event tells it."""

    kind: str
    attempt: int
    worker: str | None = None
    wait_ms: int | None = None
    run_ms: int | None = None
    reason: str | None = None
    error: str | None = None


@get("/dashboard/task", opt=access.SEES)
async def task(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """A task as it stands, or what is left of one: its history."""
    name, given = named(request, "queue"), named(request, "id")
    id = int(given) if given.isdecimal() and len(given) < 19 else 0
    found = await service.queue(name).get(id)
    events = await service.execute(ReadHistory(name, id, STEPS))
    if found is None and not events:
        raise Refusal(404, "not_found", f"{name} has no task {given}: it is done, or was deleted")
    return await page(
        request,
        "task",
        f"Task {id}",
        queue=name,
        id=id,
        task=found,
        payload=None if found is None else document(found.payload),
        result=None if found is None or found.result is None else document(found.result),
        steps=[(event, msgspec.json.decode(event.payload, type=Step)) for event in events],
        keeps_history=(await service.kit.queue(name).settings()).history,
    )


routes = [task]
