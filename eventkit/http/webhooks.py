"""Webhooks, calls of a URL made by workers; and schedules, which enqueue tasks or webhooks at set times.

A webhook is a task of its queue, with the payload of `eventkit.webhooks`.  Its status is the task's state, and the
queue's settings say how long a finished webhook is kept.

A request needs a right to the webhooks of the queue, ``consume:webhook:hooks``, or to the queue itself.  The key that
created a webhook may also read it; the task has the key's id in the header `CREATOR`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar import Response
from msgspec import UNSET, Meta, UnsetType

from .. import checks
from ..codec import Codec
from ..operations.queue import GetWebhook, ListWebhooks, ListWebhooksOf
from ..plans import completed
from ..values import CatchUp, Schedule, TaskInfo, TaskState
from ..webhooks import Webhook, call_of
from ..webhooks.webhook import CallbackUrl
from .bodies import Attempts, Name, Number, Priority, Refusal, Seconds
from .keys import ANYBODY, caller, require
from .routing import Answer, HTTPRequest, Listed, route, sent
from .service import ServiceContext

CREATOR = "eventkit-key"

QueueName = Annotated[Name | None, "Only webhooks of this queue."]
Status = Annotated[TaskState | None, "Only webhooks with this status."]
Offset = Annotated[Number, "Webhooks to skip."]
When = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        examples=["*/5 * * * *", "@every 30s"],
        extra_json_schema={"$ref": "#/components/schemas/When"},
    ),
]
Zone = Annotated[
    str,
    Meta(max_length=255, examples=["Europe/Berlin"], extra_json_schema={"$ref": "#/components/schemas/TimeZone"}),
]


class WebhookInfo(msgspec.Struct, frozen=True):
    """A webhook: *status* is ``scheduled``, ``ready``, ``running``, ``dead`` or ``done``.

    *result* is the response of the URL, *error* the last failure, and *reason* why the webhook is dead.
    """

    id: int
    queue_name: str
    status: str
    callback_url: str
    payload: Any
    priority: int
    attempt: int
    max_attempts: int
    timeout_ms: int
    idempotency_key: str | None
    run_ms: int
    enqueued_ms: int
    finished_ms: int | None
    reason: str | None
    error: str | None
    result: Any


@route("POST", "/webhooks", "produce", 409, on="webhook", status=201, also=200)
async def create_webhook(request: HTTPRequest, service: ServiceContext, data: Webhook) -> Response[WebhookInfo]:
    """Create a webhook.  201 for a new webhook, 200 for one with a known key."""
    require(request, "produce", "webhook", name=data.queue_name)
    require(request, "produce", "queue", name=data.queue_name)
    by = caller(request)
    task = msgspec.structs.replace(data.task(), headers=None if by == ANYBODY else {CREATOR: by})
    with service.pressure.write():
        [answer] = await service.kit.queue(data.queue_name).enqueue_many([task])
    return Answer(_info(await _task(service, answer.id)), status_code=201 if answer.created else 200)


@route("GET", "/webhooks", "consume", on="webhook")
async def list_webhooks(
    request: HTTPRequest,
    service: ServiceContext,
    queue: QueueName = None,
    status: Status = None,
    limit: Listed = 100,
    offset: Offset = 0,
) -> list[WebhookInfo]:
    """List webhooks in the order of their creation."""
    require(request, "consume", "webhook", "queue", name=queue)
    state = None if status is None else checks.state(status)
    if queue is None:
        tasks = await service.execute(ListWebhooks(state, limit, offset))
    else:
        tasks = await service.execute(ListWebhooksOf(checks.name("queue", queue), limit, Codec(), state, offset))
    return [_info(task) for task in tasks if call_of(task.payload) is not None]


@route("GET", "/webhooks/{id:int}", "consume", 404, on="webhook")
async def get_webhook(request: HTTPRequest, service: ServiceContext, id: Number) -> WebhookInfo:
    """Return a webhook."""
    task = await _task(service, id)
    if task.headers.get(CREATOR) != caller(request):
        require(request, "consume", "webhook", "queue", name=task.queue)
    return _info(task)


@route("DELETE", "/webhooks/{id:int}", "admin", 404, 409, on="webhook", status=204)
async def cancel_webhook(request: HTTPRequest, service: ServiceContext, id: Number) -> None:
    """Cancel a waiting webhook."""
    task = await _task(service, id)
    require(request, "admin", "webhook", "queue", name=task.queue)
    if not await service.queue(task.queue).cancel(id):
        raise Refusal(409, f"webhook_{task.state}", f"webhook {id} is {task.state}: only waiting ones can be cancelled")


@route("POST", "/webhooks/{id:int}/retry", "admin", 404, 409, on="webhook")
async def retry_webhook(request: HTTPRequest, service: ServiceContext, id: Number) -> WebhookInfo:
    """Requeue a dead webhook, with its attempts reset."""
    task = await _task(service, id)
    require(request, "admin", "webhook", "queue", name=task.queue)
    if not await service.queue(task.queue).requeue([id]):
        raise Refusal(409, f"webhook_{task.state}", f"webhook {id} is {task.state}: only dead ones can be retried")
    return _info(await _task(service, id))


async def _task(service: ServiceContext, id: int) -> TaskInfo[Any]:
    """Return the task of a webhook; raise `Refusal` if there is none, or if its payload is not a webhook's."""
    found = await service.execute(GetWebhook(id))
    if found is None or call_of(found.payload) is None:
        raise Refusal(404, "unknown_webhook", f"no webhook {id}: it has finished and was not kept, or never existed")
    return found


def _info(task: TaskInfo[Any]) -> WebhookInfo:
    call = call_of(task.payload)
    assert call is not None
    same = {name: getattr(task, name) for name in WebhookInfo.__struct_fields__ if name in TaskInfo.__struct_fields__}
    return WebhookInfo(
        **same | {"payload": call.payload},
        queue_name=task.queue,
        status=task.state,
        callback_url=call.url,
        timeout_ms=call.timeout_ms,
        idempotency_key=task.key,
    )


class _Fires(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a schedule besides its time."""

    tz: Zone | UnsetType = UNSET
    queue_name: Name | UnsetType = UNSET
    payload: msgspec.Raw | UnsetType = UNSET
    callback_url: CallbackUrl | UnsetType = UNSET
    timeout_ms: Annotated[int, Meta(ge=1, le=3_600_000)] | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    expires_s: Seconds | UnsetType | None = UNSET
    max_attempts: Attempts | UnsetType | None = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    paused: bool | UnsetType = UNSET


class ScheduleChanges(_Fires, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes of a schedule; omitted fields are kept.

    *cron_expression* has five fields, or six with seconds first, or is ``@hourly`` or ``@every 30s``, in the time zone
    *tz*.  With *callback_url* a fire creates a webhook that sends *payload* there, otherwise a task with *payload*.
    """

    cron_expression: When | UnsetType = UNSET


class ScheduleInput(_Fires, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule; for *cron_expression* see `ScheduleChanges`."""

    name: Name
    cron_expression: When
    queue_name: Name = "default"


_ARGUMENTS = {"cron_expression": "when", "queue_name": "queue", "expires_s": "expires"}
"""The arguments of `AsyncSchedules.update` that have another name than the field."""


def _arguments(data: _Fires) -> dict[str, Any]:
    """Return the fields that were sent, as arguments of `AsyncSchedules.update`."""
    given = sent(data)
    url, call = given.pop("callback_url", None), {}
    if "payload" in given:
        call["payload"] = given["payload"] = msgspec.json.decode(given["payload"])
    if "timeout_ms" in given:
        call["timeout_ms"] = given.pop("timeout_ms")
        if url is None:
            raise Refusal(422, "invalid", "timeout_ms needs callback_url")
    if url is not None:
        given["payload"] = Webhook(callback_url=url, **call).task_payload
    return {_ARGUMENTS.get(name, name): value for name, value in given.items()}


@route("GET", "/schedules", "consume", on="schedule")
async def list_schedules(service: ServiceContext) -> list[Schedule]:
    """List all schedules by name."""
    return await service.kit.schedules.list()


@route("POST", "/schedules", "admin", 409, on="schedule", status=201)
async def create_schedule(request: HTTPRequest, service: ServiceContext, data: ScheduleInput) -> Schedule:
    """Create a schedule; 409 if it exists."""
    require(request, "produce", "queue", name=data.queue_name)
    given = _arguments(data)
    async with _locked(service):
        if await service.kit.schedules.get(data.name) is not None:
            raise Refusal(409, "schedule_exists", f"schedule {data.name!r} already exists: change it with PATCH")
        await service.kit.schedules.add(**given)
    return await _shown(service, data.name)


@route("GET", "/schedules/{schedule:str}", "consume", 404)
async def get_schedule(service: ServiceContext, schedule: str) -> Schedule:
    """Return a schedule with its next fire."""
    return await _shown(service, schedule)


@route("PATCH", "/schedules/{schedule:str}", "admin", 404)
async def change_schedule(
    request: HTTPRequest, service: ServiceContext, schedule: str, data: ScheduleChanges
) -> Schedule:
    """Change a schedule; with a new time, the next fire is after now.

    It needs the right to produce into the schedule's queue and, if it changes, into the new one.
    """
    if data.queue_name is not UNSET:
        require(request, "produce", "queue", name=data.queue_name)
    given = _arguments(data)
    async with _locked(service):  # Otherwise another service could change its queue meanwhile.
        require(request, "produce", "queue", name=(await _shown(service, schedule)).queue)
        known = await service.kit.schedules.update(schedule, **given)
    return await _shown(service, schedule, known)


@route("GET", "/schedules/{schedule:str}/upcoming", "consume", 404)
async def upcoming_fires(service: ServiceContext, schedule: str, limit: Listed = 10) -> list[datetime]:
    """List the next fires of a schedule; none while it is paused."""
    await _shown(service, schedule)
    return await service.kit.schedules.upcoming(schedule, limit)


@route("DELETE", "/schedules/{schedule:str}", "admin", 404, status=204)
async def delete_schedule(service: ServiceContext, schedule: str) -> None:
    """Delete a schedule."""
    if not await service.kit.schedules.remove(schedule):
        await _shown(service, schedule, False)


@route("POST", "/schedules/{schedule:str}/pause", "admin", 404)
async def pause_schedule(service: ServiceContext, schedule: str) -> Schedule:
    """Pause a schedule."""
    return await _shown(service, schedule, await service.kit.schedules.pause(schedule))


@route("POST", "/schedules/{schedule:str}/resume", "admin", 404)
async def resume_schedule(service: ServiceContext, schedule: str) -> Schedule:
    """Resume a paused schedule from now on."""
    return await _shown(service, schedule, await service.kit.schedules.resume(schedule))


@asynccontextmanager
async def _locked(service: ServiceContext) -> AsyncIterator[None]:
    """Hold the lock that serializes changes of schedules over all services."""
    lock = service.kit.lock("eventkit:schedules", ttl=10)
    if not await lock.acquire(wait=5):
        raise Refusal(503, "busy", "another request is changing schedules: try again")
    try:
        yield
    finally:
        await completed(lock.release())


async def _shown(service: ServiceContext, name: str, known: bool = True) -> Schedule:
    """Return a schedule; raise `Refusal` if it is not *known*."""
    found = await service.kit.schedules.get(name) if known else None
    if found is None:
        raise Refusal(404, "unknown_schedule", f"there is no schedule {name!r}: create it with POST /schedules")
    return found
