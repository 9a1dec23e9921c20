"""Schedules: tasks, or calls of a URL, at certain times."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import msgspec
from litestar import Request
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, UnsetType

from ..records import Schedule
from ..stopping import completed
from ..webhooks import Job
from .keys import require
from .problems import Refusal
from .routing import route
from .service import Desk, Service
from .terms import Name, Priority, Seconds

When = Annotated[str, msgspec.Meta(min_length=1, max_length=255, examples=["*/5 * * * *", "@every 30s"])]
CatchUp = Literal["all", "latest", "none"]
Retries = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 2)]


class _Fires(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be said of a schedule beside its time."""

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
        """What is said, as `AsyncSchedules.update` has it."""
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
                raise Refusal(422, "invalid", "timeout_ms is for a call: give callback_url with it")
            return payload
        said = {"payload": payload, "timeout_ms": self.timeout_ms}
        call: dict[str, Any] = {name: value for name, value in said.items() if value is not UNSET}
        return Job(callback_url=self.callback_url, **call).task_payload


class ScheduleChanges(_Fires, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be changed of a schedule; what is left out stays.

    *cron_expression* has five fields, six with the seconds first, or is ``@hourly`` and the like or ``@every 30s``, by
    the clock of *tz*.  With *callback_url* a fire is a job that sends *payload* there; without, a message of it.
    """

    cron_expression: When | UnsetType = UNSET


class NewSchedule(_Fires, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule; its *cron_expression* is as `ScheduleChanges` says."""

    name: Name
    cron_expression: When
    queue_name: Name = "default"


@route("GET", "/schedules", scope="consume", on="schedule")
async def list_schedules(service: Service) -> list[Schedule]:
    """All schedules, by name."""
    return await service.kit.schedules.list()


@route("POST", "/schedules", scope="admin", on="schedule", status=201, problems=(409,))
async def create_schedule(request: Request[Any, Any, Any], service: Service, data: JSONBody[NewSchedule]) -> Schedule:
    """Make a schedule; one of that name stays as it is, and the answer is 409."""
    require(request, "produce", "queue", name=data.queue_name)
    given = data.given()
    async with _alone(service):
        if await service.kit.schedules.get(data.name) is not None:
            raise Refusal(409, "schedule_exists", f"there is a schedule {data.name!r} already: PATCH it to change it")
        await service.kit.schedules.add(data.name, data.cron_expression, **given)
    return await _schedule(service, data.name)


@route("GET", "/schedules/{schedule:str}", scope="consume", on="schedule", problems=(404,))
async def get_schedule(service: Service, schedule: FromPath[str]) -> Schedule:
    """A schedule, and when it fires next."""
    return await _schedule(service, schedule)


@route("PATCH", "/schedules/{schedule:str}", scope="admin", on="schedule", problems=(404,))
async def change_schedule(
    request: Request[Any, Any, Any], service: Service, schedule: FromPath[str], data: JSONBody[ScheduleChanges]
) -> Schedule:
    """Change what is given of a schedule; another time has its first fire after now.

    It takes the right to produce into the queue that the schedule has, and into the one that is given.
    """
    if data.queue_name is not UNSET:
        require(request, "produce", "queue", name=data.queue_name)
    when: dict[str, Any] = {} if data.cron_expression is UNSET else {"when": data.cron_expression}
    given = data.given()
    async with _alone(service):  # No other service changes its queue in between.
        require(request, "produce", "queue", name=(await _schedule(service, schedule)).queue)
        if not await service.kit.schedules.update(schedule, **when, **given):
            raise _unknown(schedule)
    return await _schedule(service, schedule)


@route("DELETE", "/schedules/{schedule:str}", scope="admin", on="schedule", status=204, problems=(404,))
async def delete_schedule(service: Service, schedule: FromPath[str]) -> None:
    """Forget a schedule."""
    if not await service.kit.schedules.remove(schedule):
        raise _unknown(schedule)


@route("POST", "/schedules/{schedule:str}/pause", scope="admin", on="schedule", problems=(404,))
async def pause_schedule(service: Service, schedule: FromPath[str]) -> Schedule:
    """Let a schedule fire no more, until it is resumed."""
    if not await service.kit.schedules.pause(schedule):
        raise _unknown(schedule)
    return await _schedule(service, schedule)


@route("POST", "/schedules/{schedule:str}/resume", scope="admin", on="schedule", problems=(404,))
async def resume_schedule(service: Service, schedule: FromPath[str]) -> Schedule:
    """Let a schedule fire again, from now on."""
    if not await service.kit.schedules.resume(schedule):
        raise _unknown(schedule)
    return await _schedule(service, schedule)


@asynccontextmanager
async def _alone(service: Desk) -> AsyncIterator[None]:
    """Hold the lock with which services make and change schedules one at a time."""
    lock = service.kit.lock("eventkit:schedules", ttl=10)
    if not await lock.acquire(wait=5):
        raise Refusal(503, "busy", "another request changes schedules: try again")
    try:
        yield
    finally:
        await completed(lock.release())


async def _schedule(service: Desk, name: str) -> Schedule:
    found = await service.kit.schedules.get(name)
    if found is None:
        raise _unknown(name)
    return found


def _unknown(name: str) -> Refusal:
    return Refusal(404, "unknown_schedule", f"there is no schedule {name!r}: make it with POST /schedules")


routes = [
    list_schedules,
    create_schedule,
    get_schedule,
    change_schedule,
    delete_schedule,
    pause_schedule,
    resume_schedule,
]
