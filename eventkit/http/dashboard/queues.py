"""Pages of queues, tasks and dead letters."""

from typing import Any

import msgspec
from litestar import Request, Response, get

from ... import checks
from ...operations.admin import BrowseDead, BrowseTasks, FindTask, FindTasksOfKey, ReadHistory
from ..metrics import STATES
from ..requests import Refusal
from ..service import Service, ServiceContext
from . import access
from .views import document, page, setting

AT_ONCE = 50
"""Rows per page."""

FURTHEST = 10_000
"""The maximum number of rows that may be skipped; operators find older tasks by id or key."""


@get("/dashboard/queues", opt=access.VIEWER)
async def queues(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """Show all queues."""
    sample = await service.watch.sample()
    points = list(service.watch.points)
    return await page(
        request,
        "queues",
        "Queues",
        queues=sample.overview.queues.items(),
        ready=lambda name: [point.ready.get(name, 0) for point in points],
        dead=lambda name: [point.dead.get(name, 0) for point in points],
    )


@get("/dashboard/queue", opt=access.VIEWER)
async def queue(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """Show a queue: statistics, settings, and its tasks in a state or with a key."""
    name, search = named(request, "name"), request.query_params.get("key", "").strip()
    state = request.query_params.get("state", "ready")
    if state not in STATES:
        raise Refusal(422, "invalid", f"unknown state {state}: use {', '.join(STATES)}")
    skip = skipped(request)
    if search:
        tasks = await _matching(service, name, checks.key(search))
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
        search=search,
        tasks=tasks[:AT_ONCE],
        earlier=max(0, skip - AT_ONCE) if skip else None,
        later=skip + AT_ONCE if len(tasks) > AT_ONCE and not search and skip < FURTHEST else None,
        skip=skip,
        ready=[point.ready.get(name, 0) for point in points],
    )


@get("/dashboard/dead", opt=access.VIEWER)
async def dead(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """Show dead letters by error: of all queues, of a queue, or those of one error."""
    name, group = request.query_params.get("queue"), request.query_params.get("group")
    if name is None:
        sample = await service.watch.sample()
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


async def kind_of(service: ServiceContext, name: str, group: str) -> tuple[str, str | None]:
    """Return reason and error of a group of dead letters, which the id of one of them names."""
    letter = await service.queue(name).get(int(group)) if group.isdecimal() and len(group) < 19 else None
    if letter is None or letter.state != "dead" or letter.reason is None:
        raise Refusal(404, "not_found", f"task {group} of {name} is no longer dead: reload the list")
    return letter.reason, letter.error


async def _matching(service: ServiceContext, name: str, search: str) -> list[Any]:
    """Return the tasks with a key, and the task with this id."""
    found = await service.execute(FindTasksOfKey(name, search, AT_ONCE))
    if search.isdecimal() and len(search) < 19 and int(search) not in {task.id for task in found}:
        found += await service.execute(FindTask(name, int(search)))
    return found


def named(request: Request[Any, Any, Any], what: str) -> str:
    """Return a name from the query."""
    name: str | None = request.query_params.get(what)
    if not name:
        raise Refusal(404, "not_found", f"the URL has no {what}: open this page by a link")
    return checks.name(what, name)


def skipped(request: Request[Any, Any, Any]) -> int:
    """Return the number of rows to skip."""
    given: str = request.query_params.get("skip", "0")
    return min(int(given), FURTHEST) if given.isdecimal() and len(given) < 9 else 0


STEPS = 500
"""The maximum number of steps shown of a history."""


class Step(msgspec.Struct, frozen=True):
    """A step of a task's history."""

    kind: str
    attempt: int
    worker: str | None = None
    wait_ms: int | None = None
    run_ms: int | None = None
    reason: str | None = None
    error: str | None = None


@get("/dashboard/task", opt=access.VIEWER)
async def task(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """Show a task, or the history of a deleted one."""
    name, given = named(request, "queue"), named(request, "id")
    id = int(given) if given.isdecimal() and len(given) < 19 else 0
    found = await service.queue(name).get(id)
    events = await service.execute(ReadHistory(name, id, STEPS))
    if found is None and not events:
        raise Refusal(404, "not_found", f"{name} has no task {given}: it is done or was deleted")
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


routes = [
    queues,
    queue,
    dead,
    task,
]
