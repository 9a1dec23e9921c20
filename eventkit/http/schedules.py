"""Schedules: they enqueue tasks, or webhook jobs, at set times."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import msgspec
from litestar import Request
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, UnsetType

from ..plans import completed
from ..values import Schedule
from ..webhooks import Job
from .keys import require
from .requests import Name, Priority, Refusal, Seconds
from .routing import route
from .service import Service, ServiceContext

When = Annotated[str, msgspec.Meta(min_length=1, max_length=255, examples=["*/5 * * * *", "@every 30s"])]
CatchUp = Literal["all", "latest", "none"]
Retries = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 2)]


class _Fires(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a schedule besides its time."""

    tz: Annotated[str, msgspec.Meta(max_length=255)] | UnsetType = UNSET
    queue_name: Name | UnsetType = UNSET
    payload: msgspec.Raw | UnsetType = UNSET
    callback_url: Annotated[str, msgspec.Meta(max_length=8192)] | UnsetType = UNSET
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=3_600_000)] | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    expires_s: Seconds | UnsetType | None = UNSET
    max_retries: Retries | UnsetType | None = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    paused: bool | UnsetType = UNSET

    def given(self) -> dict[str, Any]:
        """Return the fields that were sent, as arguments of `AsyncSchedules.update`."""
        named = {
            "tz": self.tz,
            "queue": self.queue_name,
            "payload": self._payload(),
            "priority": self.priority,
            "expires": self.expires_s,
            "max_attempts": self.max_retries + 1 if isinstance(self.max_retries, int) else self.max_retries,
            "catch_up": self.catch_up,
            "paused": self.paused,
        }
        return {name: value for name, value in named.items() if value is not UNSET}

    def _payload(self) -> Any:
        payload = self.payload if self.payload is UNSET else msgspec.json.decode(self.payload)
        if self.callback_url is UNSET:
            if self.timeout_ms is not UNSET:
                raise Refusal(422, "invalid", "timeout_ms needs callback_url")
            return payload
        fields = {"payload": payload, "timeout_ms": self.timeout_ms}
        call: dict[str, Any] = {name: value for name, value in fields.items() if value is not UNSET}
        return Job(callback_url=self.callback_url, **call).task_payload


class ScheduleChanges(_Fires, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes of a schedule; omitted fields are kept.

    *cron_expression* has five fields, or six with seconds first, or is ``@hourly`` or ``@every 30s``, in the time zone
    *tz*.  With *callback_url* a fire creates a job that sends *payload* there, otherwise a message with *payload*.
    """

    cron_expression: When | UnsetType = UNSET


class NewSchedule(_Fires, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule; for *cron_expression* see `ScheduleChanges`."""

    name: Name
    cron_expression: When
    queue_name: Name = "default"


@route("GET", "/schedules", scope="consume", on="schedule")
async def list_schedules(service: Service) -> list[Schedule]:
    """List all schedules by name."""
    return await service.kit.schedules.list()


@route("POST", "/schedules", scope="admin", on="schedule", status=201, problems=(409,))
async def create_schedule(request: Request[Any, Any, Any], service: Service, data: JSONBody[NewSchedule]) -> Schedule:
    """Create a schedule; 409 if it exists."""
    require(request, "produce", "queue", name=data.queue_name)
    given = data.given()
    async with _locked(service):
        if await service.kit.schedules.get(data.name) is not None:
            raise Refusal(409, "schedule_exists", f"schedule {data.name!r} already exists: change it with PATCH")
        await service.kit.schedules.add(data.name, data.cron_expression, **given)
    return await _schedule(service, data.name)


@route("GET", "/schedules/{schedule:str}", scope="consume", on="schedule", problems=(404,))
async def get_schedule(service: Service, schedule: FromPath[str]) -> Schedule:
    """Return a schedule with its next fire."""
    return await _schedule(service, schedule)


@route("PATCH", "/schedules/{schedule:str}", scope="admin", on="schedule", problems=(404,))
async def change_schedule(
    request: Request[Any, Any, Any], service: Service, schedule: FromPath[str], data: JSONBody[ScheduleChanges]
) -> Schedule:
    """Change a schedule; with a new time, the next fire is after now.

    It needs the right to produce into the schedule's queue and, if it changes, into the new one.
    """
    if data.queue_name is not UNSET:
        require(request, "produce", "queue", name=data.queue_name)
    when: dict[str, Any] = {} if data.cron_expression is UNSET else {"when": data.cron_expression}
    given = data.given()
    async with _locked(service):  # Otherwise another service could change its queue meanwhile.
        require(request, "produce", "queue", name=(await _schedule(service, schedule)).queue)
        if not await service.kit.schedules.update(schedule, **when, **given):
            raise _unknown(schedule)
    return await _schedule(service, schedule)


@route("DELETE", "/schedules/{schedule:str}", scope="admin", on="schedule", status=204, problems=(404,))
async def delete_schedule(service: Service, schedule: FromPath[str]) -> None:
    """Delete a schedule."""
    if not await service.kit.schedules.remove(schedule):
        raise _unknown(schedule)


@route("POST", "/schedules/{schedule:str}/pause", scope="admin", on="schedule", problems=(404,))
async def pause_schedule(service: Service, schedule: FromPath[str]) -> Schedule:
    """Pause a schedule."""
    if not await service.kit.schedules.pause(schedule):
        raise _unknown(schedule)
    return await _schedule(service, schedule)


@route("POST", "/schedules/{schedule:str}/resume", scope="admin", on="schedule", problems=(404,))
async def resume_schedule(service: Service, schedule: FromPath[str]) -> Schedule:
    """Resume a paused schedule from now on."""
    if not await service.kit.schedules.resume(schedule):
        raise _unknown(schedule)
    return await _schedule(service, schedule)


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


async def _schedule(service: ServiceContext, name: str) -> Schedule:
    found = await service.kit.schedules.get(name)
    if found is None:
        raise _unknown(name)
    return found


def _unknown(name: str) -> Refusal:
    return Refusal(404, "unknown_schedule", f"there is no schedule {name!r}: create it with POST /schedules")


routes = [
    list_schedules,
    create_schedule,
    get_schedule,
    change_schedule,
    delete_schedule,
    pause_schedule,
    resume_schedule,
]
