"""Locks, limits, results, workers and channels."""

from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from .. import checks
from ..errors import TaskFailed
from ..operations import coordination as operations
from ..operations.channel import FindNotification, FindNow, FollowNotifications, NotificationsAhead
from ..operations.claim import fresh_token
from ..operations.queue import FindTokens
from ..protocols import AsyncNotificationChannel
from ..results import key_of
from ..values import ChannelInfo, ChannelSettings, ClusterLimit, HeldLock, LimitInfo, WorkerInfo
from .bodies import AtLeastOne, Burst, Lifetime, Name, Number, Rate, Refusal, Seconds, Token
from .keys import require
from .routing import EVENTS, AfterName, Count, HTTPRequest, Listed, page, route, sent, token, whole
from .service import AnyChannel, ServiceContext
from .streams import AT_ONCE, ChannelChanges, ChannelPruning, LastEventId, Live, Source

OlderThan = Annotated[Seconds | None, "Age in seconds."]
Kept = Annotated[Number | None, "Number to keep of each."]
LockName = Annotated[str, lambda service, name: checks.name("lock", name)]
Length = Annotated[int, Meta(ge=1, le=checks.FOREVER)]


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An attempt to acquire a lock for *ttl_ms*, waiting up to *wait_s* seconds."""

    ttl_ms: Length = 60_000
    wait_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    holder: Name = "http"


class Lock(msgspec.Struct, frozen=True):
    """An acquired lock: *token* is needed to renew and release it, and *fence* grows with each holder."""

    name: str
    token: str
    fence: int


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A lock to release."""

    token: Token


class Renewal(Release, frozen=True, forbid_unknown_fields=True):
    """A lock to renew for *ttl_ms* from now."""

    ttl_ms: Length = 60_000


class Holder(msgspec.Struct, frozen=True):
    """The holder of a lock, and when it expires; null and null for a free lock."""

    holder: str | None
    until: datetime | None


class StillHeld(msgspec.Struct, frozen=True):
    """Whether this token held the lock."""

    held: bool


@route("GET", "/locks", "consume")
async def list_locks(service: ServiceContext, after: AfterName = None, limit: Listed = 100) -> dict[str, HeldLock]:
    """List the locks that are held, by name."""
    return page((await service.kit.overview()).locks, after, limit)


@route("GET", "/locks/{lock:str}", "consume")
async def get_lock(service: ServiceContext, lock: LockName) -> Holder:
    """Return the holder of a lock."""
    return Holder(*await service.execute(operations.ReadHolder(lock)))


@route("POST", "/locks/{lock:str}/acquire", "produce", 409)
async def acquire_lock(request: HTTPRequest, service: ServiceContext, lock: LockName, data: Attempt) -> Lock:
    """Acquire a lock; 409 if it is held."""
    attempt = operations.AcquireLock(lock, fresh_token(), checks.name("holder", data.holder), data.ttl_ms)
    release, ahead = operations.ReleaseLock(lock, attempt.token), operations.LockAhead(lock)
    fence = await service.awaited(request, attempt, ahead, data.wait_s, lambda late: service.execute(release))
    if fence is None:
        holder, until = await service.execute(operations.ReadHolder(lock))
        raise Refusal(
            409, "lock_held", f"lock {lock!r} is held by {holder} until {until}: wait with wait_s, or try again later"
        )
    return Lock(lock, str(attempt.token), fence)


@route("POST", "/locks/{lock:str}/renew", "produce")
async def renew_lock(service: ServiceContext, lock: LockName, data: Renewal) -> StillHeld:
    """Renew a lock."""
    return StillHeld(await service.execute(operations.RenewLock(lock, token(data.token), data.ttl_ms)))


@route("POST", "/locks/{lock:str}/release", "produce")
async def release_lock(service: ServiceContext, lock: LockName, data: Release) -> StillHeld:
    """Release a lock."""
    return StillHeld(await service.execute(operations.ReleaseLock(lock, token(data.token))))


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """At most *count* calls in each window of *per_s* seconds."""

    count: AtLeastOne
    per_s: Lifetime


class Bucket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """*rate* tokens per second, and at most *burst*, by default those of a second."""

    rate: Rate
    burst: Burst | None = None


class Decision(msgspec.Struct, frozen=True):
    """Whether the call is allowed."""

    allowed: bool


@route("GET", "/limits", "consume", on="limit")
async def list_limits(service: ServiceContext, limit: Listed = 100) -> list[LimitInfo]:
    """List limits with their counts, by name."""
    return await service.kit.limits(limit)


@route("GET", "/workers", "consume")
async def list_workers(service: ServiceContext) -> list[WorkerInfo]:
    """List the workers with their queues and slots, by name."""
    return await service.kit.workers()


@route("POST", "/limits/{limit:str}/window", "produce")
async def count_call(service: ServiceContext, limit: str, data: Window) -> Decision:
    """Count a call in the current window if there is room; refused calls do not count."""
    return Decision(await service.kit.limit(limit, count=data.count, per=data.per_s).acquire())


@route("POST", "/limits/{limit:str}/bucket", "produce")
async def take_token(service: ServiceContext, limit: str, data: Bucket) -> Decision:
    """Take a token from a bucket if there is one."""
    return Decision(await service.kit.limit(limit, rate=data.rate, burst=data.burst).acquire())


class ClusterLimits(msgspec.Struct, frozen=True):
    """Limits over several queues."""

    limits: list[ClusterLimit]


class ClusterLimitInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """At most *max_running* tasks of all *queues* run at once."""

    max_running: AtLeastOne
    queues: Annotated[list[Name], Meta(min_length=1)]


@route("GET", "/cluster-limits", "admin")
async def list_cluster_limits(service: ServiceContext) -> ClusterLimits:
    """List the limits over several queues, with the number of running tasks."""
    return ClusterLimits(await service.kit.cluster_limits())


@route("PUT", "/cluster-limits/{limit:str}", "admin", status=204)
async def set_cluster_limit(request: HTTPRequest, service: ServiceContext, limit: str, data: ClusterLimitInput) -> None:
    """Set a limit over several queues, or replace the one of the same name."""
    for name in data.queues:
        require(request, "admin", "queue", name=name)
    await service.kit.cluster_limit(limit, data.max_running, queues=data.queues)


@route("DELETE", "/cluster-limits/{limit:str}", "admin", status=204)
async def delete_cluster_limit(service: ServiceContext, limit: str) -> None:
    """Delete a limit over several queues, if there is one."""
    await service.kit.cluster_limit(limit, None)


class ResultInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value to store until its ttl."""

    value: msgspec.Raw
    ttl_s: Lifetime = 3600.0


class Result(msgspec.Struct, frozen=True):
    """The result of a task, or a value under a name."""

    id: int | str
    value: Any


ResultWait = Annotated[float, Meta(ge=0, le=3600), "Seconds to wait for the result."]


@route("GET", "/results/{result:str}", "consume", 404, 410)
async def get_result(request: HTTPRequest, service: ServiceContext, result: str, wait_s: ResultWait = 0.0) -> Result:
    """Return the result of a task by its id, or a value by its name; 410 if the task is dead."""
    task = whole(result)
    id = result if task is None else task
    key = key_of(id)
    found = await service.awaited(request, operations.AwaitResult(key, task), operations.ResultAhead(key, task), wait_s)
    if found is None:
        raise Refusal(404, "no_result", f"there is no result {result!r}: wait for it with ?wait_s=20")
    if isinstance(found, TaskFailed):
        raise found
    return Result(id, found[0])


@route("PUT", "/results/{result:str}", "produce", status=204)
async def save_result(request: HTTPRequest, service: ServiceContext, result: str, data: ResultInput) -> None:
    """Store a value; that of a task, by its id, needs the right to consume from its queue."""
    id = whole(result)
    if id is not None:  # A deleted task may have been in any queue.
        queue, _ = (await service.execute(FindTokens([id]))).get(id, (None, 0))
        require(request, "consume", "queue", name=queue)
    lasts = checks.milliseconds("ttl_s", data.ttl_s, least=1)
    save = operations.SaveResult(key_of(result if id is None else id), service.raw.encode(data.value), lasts)
    with service.pressure.write():
        await service.execute(save)


class NewNotification(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A notification for a channel."""

    payload: msgspec.Raw
    headers: dict[str, str] | None = None


class Notified(msgspec.Struct, frozen=True):
    """The id of the notification."""

    id: int


@route("GET", "/channels", "consume")
async def list_channels(service: ServiceContext) -> list[ChannelInfo]:
    """List all channels with notifications or settings."""
    return await service.kit.channels()


class ChannelDetails(msgspec.Struct, frozen=True):
    """A channel: the id of its last notification, and its settings."""

    channel: str
    head: int
    settings: ChannelSettings


async def _shown(channel: AsyncNotificationChannel[Any]) -> ChannelDetails:
    return ChannelDetails(channel.name, await channel.head(), await channel.settings())


@route("DELETE", "/channels", "admin")
async def prune_channels(service: ServiceContext, older_than_s: OlderThan = None, keep_count: Kept = None) -> Count:
    """Drop the oldest notifications of each channel: those older, and those beyond a number; none without limits."""
    if older_than_s is None and keep_count is None:
        return Count(0)
    return Count(await service.kit.prune_channels(older_than=older_than_s, keep_count=keep_count))


@route("GET", "/channels/{channel:str}", "consume")
async def get_channel(channel: AnyChannel) -> ChannelDetails:
    """Return a channel; an unknown channel is empty."""
    return await _shown(channel)


@route("PATCH", "/channels/{channel:str}", "admin")
async def change_channel(channel: AnyChannel, data: ChannelChanges) -> ChannelDetails:
    """Change the retention of a channel."""
    await channel.configure(**sent(data))
    return await _shown(channel)


@route("POST", "/channels/{channel:str}/prune", "admin")
async def prune_channel(channel: AnyChannel, data: ChannelPruning) -> Count:
    """Drop the oldest notifications of a channel."""
    return Count(await channel.prune(older_than=data.older_than_s, keep_count=data.keep_count))


@route("POST", "/channels/{channel:str}", "produce", status=201)
async def notify(service: ServiceContext, channel: AnyChannel, data: NewNotification) -> Notified:
    """Send a notification to all listeners."""
    with service.pressure.write():
        return Notified(await channel.notify(data.payload, headers=data.headers))


@route("GET", "/channels/{channel:str}/sse", "consume", media=(EVENTS,))
async def listen(service: ServiceContext, channel: AnyChannel, last_event_id: LastEventId = None) -> Live:
    """Follow a channel as server-sent events: new notifications, or those after the last id."""
    channels = (channel.name,)
    source = Source(
        place=lambda after, seen: FindNotification(channels, after, checks.MOST),
        read=lambda place: FollowNotifications(channels, place, AT_ONCE, service.raw),
        ahead=lambda place: NotificationsAhead(channels, *place),
        position=attrgetter("id"),
    )
    return await Live.of(service, source, FindNow(channels), last_event_id)
