"""The pages, and the signal for updates."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from time import time
from typing import Any, NamedTuple

import msgspec
from litestar import Response, Router, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response import ServerSentEvent
from litestar.response.sse import ServerSentEventMessage

from ... import checks
from ...errors import Truncated, Unavailable
from ...operations.admin import BrowseDead, BrowseEvents, BrowseTasks, FindTask, FindTasksOfKey, ReadHistory
from ..bodies import Refusal
from ..routing import HTTPRequest, whole
from ..service import FRESH, Sample, Service, ServiceContext
from ..streams import Heartbeat
from . import VIEWER, actions, error_page, may_act, number, render, setting, span, static

AT_ONCE = 50  # Rows per page.
FURTHEST = 10_000  # The maximum number of rows that may be skipped; operators find older tasks by id or key.
STEPS = 500  # The maximum number of steps shown of a history.
WINDOW = 100_000  # The offsets searched for a key at once, as no index has the keys of events.

FIRES, MOST_FIRES = 4, 100
"""The next fires shown per schedule, and the maximum number of schedules with next fires."""

MOST_LIMITS = 500  # The maximum number of limits shown.
_LATE = 60.0  # Seconds after which a due task or fire is reported.
_BEHIND = 1_000  # The lag at which a consumer is reported.
_APART = 3  # The maximum number of late queues that are reported one by one.
_AT_LEAST = 10.0  # Seconds after which a page reloads without changes, because it shows ages.
_SHORT = 0.5  # The interval of checks for shutdown, in seconds.

_FILES = {
    "dashboard.css": "text/css; charset=utf-8",
    "dashboard.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


class View(NamedTuple):
    """A request for a page, and the service."""

    request: HTTPRequest
    service: ServiceContext

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter of the query."""
        given: str = self.request.query_params.get(name, default)
        return given.strip()

    def named(self, what: str) -> str:
        """Return a name from the query; raise `Refusal` if there is none."""
        name: str | None = self.request.query_params.get(what)
        if not name:
            raise Refusal(404, "not_found", f"the URL has no {what}: open this page by a link")
        return checks.name(what, name)

    def whole(self, name: str) -> int | None:
        """Return a number from the query; None if there is none."""
        return whole(self.text(name))

    def skipped(self) -> int:
        """Return the number of rows to skip."""
        return min(self.whole("skip") or 0, FURTHEST)

    def trend(self, what: str) -> Callable[[str], list[int]]:
        """Return a function that returns the last values of a name: *what* is ready, dead, lag or totals."""
        points = [getattr(point, what) for point in self.service.watch.points]
        return lambda name: [values.get(name, 0) for values in points]


Shown = dict[str, Any]


def page(path: str, title: str) -> Callable[[Callable[[View], Awaitable[Shown]]], HTTPRouteHandler]:
    """Declare a page: a function that returns the values for the template of its name.

    The values ``template`` and ``title`` replace those of the declaration.
    """

    def declare(function: Callable[[View], Awaitable[Shown]]) -> HTTPRouteHandler:
        async def handle(request: HTTPRequest, service: Service) -> Response[Any]:
            shown: dict[str, Any] = {"name": function.__name__, "title": title} | await function(View(request, service))
            return render(request, may_act=await may_act(request), **shown)

        return get(path, opt=VIEWER)(handle)

    return declare


def _document(payload: Any) -> tuple[str, int]:
    """Format JSON with indentation; return it with its length."""
    raw = bytes(payload) if isinstance(payload, msgspec.Raw) else msgspec.json.encode(payload)
    text = msgspec.json.format(raw.decode(), indent=2)
    return text, len(text)


def _rows(tasks: Sequence[Any], skip: int, further: bool = True) -> Shown:
    """Return the tasks of a page, and the numbers of rows to skip for the pages around it."""
    later = further and len(tasks) > AT_ONCE and skip < FURTHEST
    return {
        "tasks": tasks[:AT_ONCE],
        "earlier": max(0, skip - AT_ONCE) if skip else None,
        "later": skip + AT_ONCE if later else None,
    }


@page("/", "Overview")
async def overview(view: View) -> Shown:
    sample = await view.service.watch.sample()
    seen = sample.overview
    queues = sorted(seen.queues.items(), key=lambda item: -(item[1].ready + item[1].running + item[1].dead))
    streams = sorted(seen.streams.items(), key=lambda item: -sample.lags[item[0]])
    due = sorted(seen.schedules.items(), key=lambda item: (item[1].next_ms is None, item[1].next_ms or 0))
    return {
        "concerns": list(_concerns(sample)),
        "totals": sample.totals,
        "slots": sum(worker.slots or 0 for worker in sample.alive),
        "alive": len(sample.alive),
        "queues": queues,
        "streams": streams,
        "schedules": due,
        "trend": view.trend("totals"),
        "ready": view.trend("ready"),
        "behind": view.trend("lag"),
    }


class Concern(NamedTuple):
    """A problem: its level, its text, and the page to look at."""

    level: str
    text: str
    path: str
    query: dict[str, str]


def _concerns(sample: Sample) -> Iterator[Concern]:
    """Yield problems, the worst first."""
    seen, now = sample.overview, time()
    for name, queue in seen.queues.items():
        if queue.dead:
            dead = "1 dead task" if queue.dead == 1 else f"{number(queue.dead)} dead tasks"
            yield Concern("bad", f"{dead} in {name}", "/dashboard/dead", {"queue": name})
    for name, schedule in seen.schedules.items():
        if schedule.next_ms is not None and now - schedule.next_ms / 1000 > _LATE:
            text = f"schedule {name} is {span(now - schedule.next_ms / 1000)} overdue: no scheduler is running"
            yield Concern("bad", text, "/dashboard/schedules", {})
    late = {
        name: queue.oldest_ready_age
        for name, queue in seen.queues.items()
        if queue.oldest_ready_age and queue.oldest_ready_age > _LATE and not queue.paused
    }
    if len(late) > _APART:
        text = f"{len(late)} queues have tasks that have waited up to {span(max(late.values()))}"
        yield Concern("warn", text, "/dashboard/queues", {})
    else:
        for name, age in late.items():
            text = f"the oldest task of {name} has waited {span(age)}"
            yield Concern("warn", text, "/dashboard/queue", {"name": name})
    for name, stream in seen.streams.items():
        for consumer in stream.consumers:
            if consumer.lag >= _BEHIND:
                text = f"{consumer.name} is {number(consumer.lag)} events behind on {name}"
                yield Concern("warn", text, "/dashboard/stream", {"stream": name})
    for worker in sample.workers:
        if not worker.alive and worker.seen_ms is not None:
            text = f"worker {worker.name} was last seen {span(now - worker.seen_ms / 1000)} ago"
            yield Concern("warn", text, "/dashboard/workers", {})
    for name, queue in seen.queues.items():
        if queue.paused:
            yield Concern("note", f"{name} is paused", "/dashboard/queue", {"name": name})


@page("/dashboard/schedules", "Schedules")
async def schedules(view: View) -> Shown:
    """Show all schedules, the next to fire first."""
    handle = view.service.kit.schedules
    found = sorted(await handle.list(), key=lambda one: (one.next_ms is None, one.next_ms or 0, one.name))
    fires = {
        one.name: [round(fire.timestamp() * 1000) for fire in await handle.upcoming(one.name, FIRES)]
        for one in found[:MOST_FIRES]
    }
    return {"schedules": found, "fires": fires}


@page("/dashboard/workers", "Workers")
async def workers(view: View) -> Shown:
    sample = await view.service.watch.sample()
    return {"workers": sample.workers, "running": view.trend("totals")("busy")}


@page("/dashboard/locks", "Locks and limits")
async def locks(view: View) -> Shown:
    sample = await view.service.watch.sample()
    limits = await view.service.kit.limits(MOST_LIMITS + 1)
    more = len(limits) > MOST_LIMITS
    return {"locks": sample.overview.locks.items(), "limits": limits[:MOST_LIMITS], "more": more}


@page("/dashboard/queues", "Queues")
async def queues(view: View) -> Shown:
    sample = await view.service.watch.sample()
    return {"queues": sample.overview.queues.items(), "ready": view.trend("ready"), "dead": view.trend("dead")}


@page("/dashboard/queue", "Queue")
async def queue(view: View) -> Shown:
    """Show a queue: statistics, settings, and its tasks in a state or with a key."""
    service, name, search = view.service, view.named("name"), view.text("key")
    state, skip = view.text("state", "ready"), view.skipped()
    if state not in checks.STATES:
        raise Refusal(422, "invalid", f"unknown state {state}: use {', '.join(checks.STATES)}")
    if search:
        tasks = await service.execute(FindTasksOfKey(name, checks.key(search), AT_ONCE))
        id = whole(search)
        if id is not None and id not in {task.id for task in tasks}:
            tasks += await service.execute(FindTask(name, id))
    else:
        tasks = await service.execute(BrowseTasks(name, checks.state(state), AT_ONCE + 1, skip))
    settings = msgspec.structs.asdict(await service.kit.queue(name).settings())
    return {
        "title": name,
        "queue": name,
        "stats": await service.kit.queue(name).stats(),
        "settings": [(what, setting(what, value)) for what, value in settings.items() if value is not None],
        "state": state,
        "states": list(checks.STATES),
        "search": search,
        "ready": view.trend("ready")(name),
        **_rows(tasks, skip, not search),
    }


@page("/dashboard/dead", "Dead tasks")
async def dead(view: View) -> Shown:
    """Show dead tasks by error: of all queues, of a queue, or those of one error."""
    service, query = view.service, view.request.query_params
    name, group = query.get("queue"), query.get("group")
    if name is None:
        sample = await service.watch.sample()
        names = [name for name, queue in sample.overview.queues.items() if queue.dead]
        groups = [(name, await service.kit.queue(name).dead_by_error(10)) for name in names[:AT_ONCE]]
        return {"name": "dead_everywhere", "groups": groups, "more": max(0, len(names) - AT_ONCE)}
    title = f"Dead tasks of {name}"
    if group is None:
        return {"title": title, "queue": name, "groups": await service.kit.queue(name).dead_by_error(100)}
    reason, error = await actions.group_of(service, name, group)
    skip = view.skipped()
    tasks = await service.execute(BrowseDead(name, reason, error, AT_ONCE + 1, skip))
    shown = {"name": "dead_group", "title": title, "queue": name, "group": group, "reason": reason, "error": error}
    return shown | _rows(tasks, skip)


class Step(msgspec.Struct, frozen=True):
    """A step of a task's history."""

    kind: str
    attempt: int
    worker: str | None = None
    wait_ms: int | None = None
    run_ms: int | None = None
    reason: str | None = None
    error: str | None = None


@page("/dashboard/task", "Task")
async def task(view: View) -> Shown:
    """Show a task, or the history of a deleted one."""
    service, name, given = view.service, view.named("queue"), view.named("id")
    id = whole(given) or 0
    found = await service.queue(name).get(id)
    events = await service.execute(ReadHistory(name, id, STEPS))
    if found is None and not events:
        raise Refusal(404, "not_found", f"{name} has no task {given}: it is done or was deleted")
    return {
        "title": f"Task {id}",
        "queue": name,
        "id": id,
        "task": found,
        "payload": None if found is None else _document(found.payload),
        "result": None if found is None or found.result is None else _document(found.result),
        "steps": [(event, msgspec.json.decode(event.payload, type=Step)) for event in events],
        "keeps_history": (await service.kit.queue(name).settings()).history,
    }


@page("/dashboard/streams", "Streams")
async def streams(view: View) -> Shown:
    sample = await view.service.watch.sample()
    return {"streams": sample.overview.streams.items(), "behind": view.trend("lag")}


@page("/dashboard/stream", "Stream")
async def stream(view: View) -> Shown:
    """Show a stream: its readers, and its latest events, those of a key, or those from a time or offset."""
    stream, key, before, at = view.named("stream"), view.text("key") or None, view.whole("before"), view.text("at")
    if key is not None:
        checks.key(key)
    handle = view.service.stream(stream)
    head = await handle.head()
    if at:
        # The page ends with the first events after the time.
        start = await handle.offset_at(_moment(at))
        following = await handle.read(start, AT_ONCE, on_truncated="skip")
        before = following[-1].offset + 1 if following else head + 1
    before = checks.MOST if before is None else min(before, checks.MOST)
    least = max(0, min(before, head + 1) - WINDOW) if key else 0
    events = await view.service.execute(BrowseEvents(stream, key, before, least, AT_ONCE + 1))
    return {
        "title": stream,
        "stream": stream,
        "head": head,
        "consumers": await handle.consumers(),
        "groups": await handle.groups(),
        "settings": await handle.settings(),
        "events": events[:AT_ONCE],
        "key": key or "",
        "at": at,
        "before": before if before <= head else None,
        "older": events[AT_ONCE - 1].offset if len(events) > AT_ONCE else least or None,
        "least": least,
    }


def _moment(text: str) -> datetime:
    """Parse a time, by default in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Refusal(422, "invalid", f"{text!r} is not a time: use, for example, 2030-01-31T12:00") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@page("/dashboard/event", "Event")
async def event(view: View) -> Shown:
    stream, offset = view.named("stream"), view.whole("offset") or 0
    try:
        found = await view.service.stream(stream).read(max(0, offset - 1), 1, on_truncated="skip")
    except Truncated:
        found = []
    if not found or found[0].offset != offset:
        raise Refusal(404, "not_found", f"{stream} has no event at {offset}: it was pruned or never existed")
    return {"title": f"Event {offset}", "stream": stream, "event": found[0], "payload": _document(found[0].payload)}


@get("/dashboard/live", opt=VIEWER)
async def live(request: HTTPRequest, service: Service) -> ServerSentEvent:
    """Send a message whenever pages should reload."""
    return ServerSentEvent(_changes(service, Heartbeat(request, service.settings.heartbeat)))


async def _changes(service: ServiceContext, heartbeat: Heartbeat) -> AsyncIterator[ServerSentEventMessage]:
    known, since = None, 0.0
    with service.listener():
        while not service.connection.closing:
            try:
                await heartbeat.beat()
            except Refusal:
                return  # The browser reconnects, and the response has the reason.
            try:
                sample = await service.watch.sample()
            except Unavailable:
                seen = known
            else:
                seen = (sample.overview, sample.workers)
            if seen != known or since >= _AT_LEAST:
                known, since = seen, 0.0
                yield ServerSentEventMessage(data="new", retry=2000)
            for _ in range(round(FRESH / _SHORT)):
                if service.connection.closing:
                    return
                await asyncio.sleep(_SHORT)
            since += FRESH


@get("/dashboard/static/{name:str}")
async def file(name: FromPath[str]) -> Response[bytes]:
    """Return a static file, which browsers may cache because its URL has its hash."""
    if name not in _FILES:
        raise Refusal(404, "not_found", f"there is no file {name!r}")
    kept = {"cache-control": "public, max-age=31536000, immutable", "x-content-type-options": "nosniff"}
    return Response(static(name)[0], media_type=_FILES[name], headers=kept)


def router() -> Router:
    """Return the router of all pages."""
    handlers = [*globals().values(), *vars(actions).values()]
    return Router(
        path="/",
        route_handlers=[handler for handler in handlers if isinstance(handler, HTTPRouteHandler)],
        middleware=[actions.sessions],
        exception_handlers={Exception: error_page},
        include_in_schema=False,
    )
