"""Pages of streams and events."""

from datetime import UTC, datetime
from typing import Any

from litestar import Request, Response, get

from ... import checks
from ...errors import Truncated
from ...operations.admin import BrowseEvents
from ..requests import Refusal
from ..service import Service
from . import access
from .queues import AT_ONCE, named
from .views import document, page

WINDOW = 100_000
"""The offsets searched for a key at once, as no index has the keys of events."""

_LAST = 2**63 - 1


@get("/dashboard/streams", opt=access.VIEWER)
async def streams(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """Show all streams and their consumers."""
    sample = await service.watch.sample()
    points = list(service.watch.points)
    return await page(
        request,
        "streams",
        "Streams",
        topics=sample.overview.topics.items(),
        behind=lambda name: [point.lag.get(name, 0) for point in points],
    )


@get("/dashboard/stream", opt=access.VIEWER)
async def stream(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """Show a stream: its consumers, and its latest events, those of a key, or those from a time or offset."""
    topic, key = named(request, "topic"), request.query_params.get("key", "").strip() or None
    if key is not None:
        checks.key(key)
    handle = service.stream(topic)
    head = await handle.head()
    before, at = _whole(request, "before"), request.query_params.get("at", "").strip()
    if at:
        # The page ends with the first events after the time.
        start = await handle.offset_at(_moment(at))
        following = await handle.read(start, AT_ONCE, on_truncated="skip")
        before = following[-1].offset + 1 if following else head + 1
    before = min(before, _LAST) if before is not None else _LAST
    least = max(0, min(before, head + 1) - WINDOW) if key else 0
    events = await service.execute(BrowseEvents(topic, key, before, least, AT_ONCE + 1))
    older = events[AT_ONCE - 1].offset if len(events) > AT_ONCE else least or None
    return await page(
        request,
        "stream",
        topic,
        topic=topic,
        head=head,
        consumers=await handle.consumers(),
        settings=await handle.settings(),
        events=events[:AT_ONCE],
        key=key or "",
        at=at,
        before=before if before <= head else None,
        older=older,
        least=least,
    )


@get("/dashboard/event", opt=access.VIEWER)
async def event(request: Request[Any, Any, Any], service: Service) -> Response[Any]:
    """Show an event."""
    topic, offset = named(request, "topic"), _whole(request, "offset") or 0
    try:
        found = await service.stream(topic).read(max(0, offset - 1), 1, on_truncated="skip")
    except Truncated:
        found = []
    if not found or found[0].offset != offset:
        raise Refusal(404, "not_found", f"{topic} has no event at {offset}: it was pruned or never existed")
    return await page(
        request, "event", f"Event {offset}", topic=topic, event=found[0], payload=document(found[0].payload)
    )


def _whole(request: Request[Any, Any, Any], what: str) -> int | None:
    given: str = request.query_params.get(what, "").strip()
    return int(given) if given.isdecimal() and len(given) < 19 else None


def _moment(text: str) -> datetime:
    """Parse a time, by default in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Refusal(422, "invalid", f"{text!r} is not a time: use, for example, 2030-01-31T12:00") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


routes = [streams, stream, event]
