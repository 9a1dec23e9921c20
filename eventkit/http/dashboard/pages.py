"""Pages of the whole database: overview, schedules, workers and locks, and the signal for updates."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from time import time
from typing import Any, NamedTuple

from litestar import Request, Response, get
from litestar.response import ServerSentEvent
from litestar.response.sse import ServerSentEventMessage

from ...errors import Unavailable
from ..events import Heartbeat
from ..metrics import FRESH, Sample
from ..requests import Refusal
from ..service import Service, ServiceContext
from . import access
from .views import number, page, span

SHOWN = 12
"""The maximum number of queues and topics on the page; the busiest come first."""

_LATE = 60.0
"""Seconds after which a due task or fire is reported."""

_BEHIND = 1_000
"""The lag at which a consumer is reported."""


_APART = 3
"""The maximum number of late queues that are reported one by one."""


class Concern(NamedTuple):
    """A problem: its level, its text, and the page to look at."""

    level: str
    text: str
    path: str
    query: dict[str, str]


@get("/", opt=access.VIEWER)
async def overview(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """Show the overview."""
    sample = await service.watch.sample()
    seen, points = sample.overview, list(service.watch.points)
    queues = sorted(seen.queues.items(), key=lambda item: -(item[1].ready + item[1].leased + item[1].dead))
    topics = sorted(seen.topics.items(), key=lambda item: -max((one.lag for one in item[1].consumers), default=0))
    due = sorted(seen.schedules.items(), key=lambda item: (item[1].next_ms is None, item[1].next_ms or 0))
    alive = [worker for worker in sample.workers if worker.alive]
    totals = {
        state: sum(getattr(queue, state) for queue in seen.queues.values())
        for state in ("ready", "leased", "scheduled", "dead")
    }
    return await page(
        request,
        "overview",
        "Overview",
        concerns=list(_concerns(sample)),
        totals=totals,
        lag=max((one.lag for topic in seen.topics.values() for one in topic.consumers), default=0),
        slots=sum(worker.slots or 0 for worker in alive),
        running=sum(worker.running or 0 for worker in alive),
        alive=len(alive),
        queues=queues[:SHOWN],
        more_queues=max(0, len(queues) - SHOWN),
        topics=topics[:SHOWN],
        more_topics=max(0, len(topics) - SHOWN),
        schedules=due[:SHOWN],
        more_schedules=max(0, len(due) - SHOWN),
        points=points,
        trend=lambda name: [point.totals[name] for point in points],
        ready=lambda name: [point.ready.get(name, 0) for point in points],
        behind=lambda name: [point.lag.get(name, 0) for point in points],
    )


def _concerns(sample: Sample) -> Iterator[Concern]:
    """Yield problems, the worst first."""
    seen, now = sample.overview, time()
    for name, queue in seen.queues.items():
        if queue.dead:
            letters = "1 dead letter" if queue.dead == 1 else f"{number(queue.dead)} dead letters"
            yield Concern("bad", f"{letters} in {name}", "/dashboard/dead", {"queue": name})
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
            yield Concern(
                "warn", f"the oldest task of {name} has waited {span(age)}", "/dashboard/queue", {"name": name}
            )
    for topic, stream in seen.topics.items():
        for consumer in stream.consumers:
            if consumer.lag >= _BEHIND:
                text = f"{consumer.name} is {number(consumer.lag)} events behind on {topic}"
                yield Concern("warn", text, "/dashboard/stream", {"topic": topic})
    for worker in sample.workers:
        if not worker.alive and worker.seen_ms is not None:
            text = f"worker {worker.name} was last seen {span(now - worker.seen_ms / 1000)} ago"
            yield Concern("warn", text, "/dashboard/workers", {})
    for name, queue in seen.queues.items():
        if queue.paused:
            yield Concern("note", f"{name} is paused", "/dashboard/queue", {"name": name})


FIRES = 4
"""The next fires shown per schedule."""

MOST_FIRES = 100
"""The maximum number of schedules with next fires."""


@get("/dashboard/schedules", opt=access.VIEWER)
async def schedules(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """Show all schedules, the next to fire first."""
    handle = service.kit.schedules
    found = sorted(await handle.list(), key=lambda one: (one.next_ms is None, one.next_ms or 0, one.name))
    fires = {
        one.name: [round(fire.timestamp() * 1000) for fire in await handle.upcoming(one.name, FIRES)]
        for one in found[:MOST_FIRES]
    }
    return await page(request, "schedules", "Schedules", schedules=found, fires=fires)


MOST_WORKERS = 500
"""The maximum number of limits shown."""


@get("/dashboard/workers", opt=access.VIEWER)
async def workers(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """Show all workers and their slots."""
    sample = await service.watch.sample()
    points = [point.totals["running"] for point in service.watch.points]
    return await page(request, "workers", "Workers", workers=sample.workers, running=points)


@get("/dashboard/locks", opt=access.VIEWER)
async def locks(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """Show held locks and limits in use."""
    sample = await service.watch.sample()
    limits = await service.kit.limits(MOST_WORKERS + 1)
    return await page(
        request,
        "locks",
        "Locks and limits",
        locks=sample.overview.locks.items(),
        limits=limits[:MOST_WORKERS],
        more=len(limits) > MOST_WORKERS,
    )


_AT_LEAST = 10.0
"""Seconds after which a page reloads without changes, because it shows ages."""

_SHORT = 0.5
"""The interval of checks for shutdown, in seconds."""


@get("/dashboard/live", opt=access.VIEWER)
async def live(request: Request[Any, Any, Any], service: Service) -> ServerSentEvent:
    """Send a message whenever pages should reload."""
    return ServerSentEvent(_changes(service, Heartbeat(request, service.settings.heartbeat)))


async def _changes(service: ServiceContext, heartbeat: Heartbeat) -> AsyncIterator[ServerSentEventMessage]:
    known, since = None, 0.0
    with service.listener():
        while not service.closing:
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
                if service.closing:
                    return
                await asyncio.sleep(_SHORT)
            since += FRESH


routes = [
    overview,
    schedules,
    workers,
    locks,
    live,
]
