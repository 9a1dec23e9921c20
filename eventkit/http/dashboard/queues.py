"""Queues: all of them, one of them with its tasks, and its dead letters."""

from typing import Any

import msgspec
from litestar import Request, Response, get

from ... import arguments
from ...operations.browse import BrowseDead, BrowseTasks, FindTask, FindTasksOfKey
from ..metrics import STATES
from ..problems import Refusal
from ..service import Desk, Service
from . import access
from .showing import setting
from .viewing import page

AT_ONCE = 50
"""How many rows a page has."""

FURTHEST = 10_000
"""How many rows may be skipped: whoever looks for something further back knows its id or its key."""


@get("/dashboard/queues", opt=access.SEES)
async def queues(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """All queues in numbers."""
    sample = await service.watch.look()
    points = list(service.watch.points)
    return await page(
        request,
        "queues",
        "Queues",
        queues=sample.overview.queues.items(),
        ready=lambda name: [point.ready.get(name, 0) for point in points],
        dead=lambda name: [point.dead.get(name, 0) for point in points],
    )


@get("/dashboard/queue", opt=access.SEES)
async def queue(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """One queue: its numbers, its settings, and its tasks in one state or of one key."""
    name, asked = named(request, "name"), request.query_params.get("key", "").strip()
    state = request.query_params.get("state", "ready")
    if state not in STATES:
        raise Refusal(422, "invalid", f"a task is {', '.join(STATES)}, and never {state}")
    skip = skipped(request)
    if asked:
        tasks = await _asked_for(service, name, arguments.key(asked))
    else:
        tasks = await service.execute(BrowseTasks(name, state, AT_ONCE + 1, skip))
    settings = await service.kit.queue(name).settings()
    points = list(service.watch.points)
    return await page(
        request,
        "queue",
        name,
        queue=name,
        stats=await service.kit.queue(name).stats(),
        settings=[
            (what, setting(what, value))
            for what, value in msgspec.structs.asdict(settings).items()
            if value is not None
        ],
        state=state,
        states=STATES,
        asked=asked,
        tasks=tasks[:AT_ONCE],
        earlier=max(0, skip - AT_ONCE) if skip else None,
        later=skip + AT_ONCE if len(tasks) > AT_ONCE and not asked and skip < FURTHEST else None,
        skip=skip,
        ready=[point.ready.get(name, 0) for point in points],
    )


@get("/dashboard/dead", opt=access.SEES)
async def dead(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """Dead letters by what they died of: of all queues, of one, or of one with those of one kind."""
    name, group = request.query_params.get("queue"), request.query_params.get("group")
    if name is None:
        sample = await service.watch.look()
        names = [name for name, queue in sample.overview.queues.items() if queue.dead]
        groups = [(name, await service.kit.queue(name).dead_by_error(10)) for name in names[:AT_ONCE]]
        return await page(request, "dead_everywhere", "Dead letters", groups=groups, more=max(0, len(names) - AT_ONCE))
    if group is None:
        found = await service.kit.queue(name).dead_by_error(100)
        return await page(request, "dead", f"Dead letters of {name}", queue=name, groups=found)
    reason, error = await kind_of(service, name, group)
    skip = skipped(request)
    tasks = await service.execute(BrowseDead(name, reason, error, AT_ONCE + 1, skip))
    return await page(
        request,
        "dead_group",
        f"Dead letters of {name}",
        queue=name,
        group=group,
        reason=reason,
        error=error,
        tasks=tasks[:AT_ONCE],
        earlier=max(0, skip - AT_ONCE) if skip else None,
        later=skip + AT_ONCE if len(tasks) > AT_ONCE and skip < FURTHEST else None,
    )


async def kind_of(service: Desk, name: str, group: str) -> tuple[str, str | None]:
    """What the dead letters of a group died of, by the id of one of them."""
    letter = await service.queue(name).get(int(group)) if group.isdecimal() and len(group) < 19 else None
    if letter is None or letter.state != "dead" or letter.reason is None:
        raise Refusal(404, "not_found", f"task {group} of {name} is not dead any more: look at the list again")
    return letter.reason, letter.error


async def _asked_for(service: Desk, name: str, asked: str) -> list[Any]:
    """The tasks of a key, and the one whose id it is."""
    found = await service.execute(FindTasksOfKey(name, asked, AT_ONCE))
    if asked.isdecimal() and len(asked) < 19 and int(asked) not in {task.id for task in found}:
        found += await service.execute(FindTask(name, int(asked)))
    return found


def named(request: Request[Any, Any, Any], what: str) -> str:
    """The name that the address has."""
    name: str | None = request.query_params.get(what)
    if not name:
        raise Refusal(404, "not_found", f"the address names no {what}: follow a link to get here")
    return arguments.name(what, name)


def skipped(request: Request[Any, Any, Any]) -> int:
    """How many rows come before this page."""
    given: str = request.query_params.get("skip", "0")
    return min(int(given), FURTHEST) if given.isdecimal() and len(given) < 9 else 0


routes = [queues, queue, dead]
