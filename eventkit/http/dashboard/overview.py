"""The first page: everything at a glance, and what wants attention above it."""

from collections.abc import Iterator
from time import time
from typing import Any, NamedTuple

from litestar import Request, Response, get

from ..service import Service
from ..watch import Sample
from . import access
from .showing import number, span
from .viewing import page

SHOWN = 12
"""How many queues and topics the page has; those with most to do come first."""

_LATE = 60.0
"""Seconds for which a task may be due, or a schedule late, before it wants attention."""

_BEHIND = 1_000
"""How many events a consumer may be behind before it does."""


_APART = 3
"""How many queues that are late are told of one by one."""


class Concern(NamedTuple):
    """What wants attention: how badly, what it is, and where to look."""

    level: str
    text: str
    path: str
    query: dict[str, str]


@get("/", opt=access.SEES)
async def overview(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """All in numbers."""
    sample = await service.watch.look()
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
    """What wants attention, the worst first."""
    seen, now = sample.overview, time()
    for name, queue in seen.queues.items():
        if queue.dead:
            letters = "1 dead letter" if queue.dead == 1 else f"{number(queue.dead)} dead letters"
            yield Concern("bad", f"{letters} in {name}", "/dashboard/dead", {"queue": name})
    for name, schedule in seen.schedules.items():
        if schedule.next_ms is not None and now - schedule.next_ms / 1000 > _LATE:
            text = (
                f"schedule {name} should have fired {span(now - schedule.next_ms / 1000)} ago: nobody fires schedules"
            )
            yield Concern("bad", text, "/dashboard/schedules", {})
    late = {
        name: queue.oldest_ready_age
        for name, queue in seen.queues.items()
        if queue.oldest_ready_age and queue.oldest_ready_age > _LATE and not queue.paused
    }
    if len(late) > _APART:
        text = f"{len(late)} queues have tasks that are due for up to {span(max(late.values()))}"
        yield Concern("warn", text, "/dashboard/queues", {})
    else:
        for name, age in late.items():
            yield Concern("warn", f"{name} has a task that is due for {span(age)}", "/dashboard/queue", {"name": name})
    for topic, stream in seen.topics.items():
        for consumer in stream.consumers:
            if consumer.lag >= _BEHIND:
                text = f"{consumer.name} is {number(consumer.lag)} events behind on {topic}"
                yield Concern("warn", text, "/dashboard/stream", {"topic": topic})
    for worker in sample.workers:
        if not worker.alive and worker.seen_ms is not None:
            text = f"worker {worker.name} was heard of last {span(now - worker.seen_ms / 1000)} ago"
            yield Concern("warn", text, "/dashboard/workers", {})
    for name, queue in seen.queues.items():
        if queue.paused:
            yield Concern("note", f"{name} is paused", "/dashboard/queue", {"name": name})


routes = [overview]
