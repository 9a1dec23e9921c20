"""Webhook jobs: calls of a URL, made by workers.

A job is a task of its queue, with the payload of `eventkit.webhooks`.  Its status is the task's state, and the queue's
settings say how long a finished job is kept.

A job needs a right to the jobs of its queue, or to the queue: ``consume:job:hooks`` or ``consume:queue:hooks``.  The
key that created a job may also read it; the task has the key's id in the header `CREATOR`.
"""

from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import JSONBody, QueryParameter

from .. import checks
from ..operations.queue import GetJob, ListJobs, ListJobsOf
from ..values import TaskInfo
from ..webhooks import Job, call_of
from .keys import ANYBODY, caller, require
from .queues import State
from .requests import IS_NAME, IS_NUMBER, Answer, Id, Refusal
from .routing import route
from .service import Service, ServiceContext

CREATOR = "eventkit-key"


class JobInfo(msgspec.Struct, frozen=True):
    """A job: *status* is ``scheduled``, ``ready``, ``leased``, ``dead`` or ``done``.

    *result* is the response of the URL, *error* the last failure, and *reason* why the job is dead.
    """

    id: int
    queue_name: str
    status: str
    callback_url: str
    payload: Any
    priority: int
    attempt: int
    max_retries: int
    timeout_ms: int
    idempotency_key: str | None
    run_ms: int
    enqueued_ms: int
    finished_ms: int | None
    reason: str | None
    error: str | None
    result: Any


QueueName = Annotated[str | None, QueryParameter(**IS_NAME, description="Only jobs of this queue.")]
Status = Annotated[State | None, QueryParameter(description="Only jobs with this status.")]
Limit = Annotated[int, QueryParameter(ge=1, le=1000)]
Offset = Annotated[int, QueryParameter(**IS_NUMBER, description="Jobs to skip.")]


@route("POST", "/jobs", scope="produce", on="job", status=201, also=200)
async def create_job(request: Request[Any, Any, Any], service: Service, data: JSONBody[Job]) -> Response[JobInfo]:
    """Create a job.  201 for a new job, 200 for one with a known key."""
    require(request, "produce", "job", name=data.queue_name)
    require(request, "produce", "queue", name=data.queue_name)
    by = caller(request)
    task = msgspec.structs.replace(data.task(), headers=None if by == ANYBODY else {CREATOR: by})
    with service.pressure.write():
        [answer] = await service.kit.queue(data.queue_name).enqueue_many([task])
    return Answer(_info(await _task(service, answer.id)), status_code=201 if answer.created else 200)


@route("GET", "/jobs", scope="consume", on="job")
async def list_jobs(
    request: Request[Any, Any, Any],
    service: Service,
    queue: QueueName = None,
    status: Status = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> list[JobInfo]:
    """List jobs in the order of their creation."""
    require(request, "consume", "job", "queue", name=queue)
    if queue is None:
        tasks = await service.execute(ListJobs(status, limit, offset))
    else:
        tasks = await service.execute(ListJobsOf(checks.name("queue", queue), status, limit, offset))
    return [_info(task) for task in tasks if call_of(task.payload) is not None]


@route("GET", "/jobs/{id:int}", scope="consume", on="job", problems=(404,))
async def get_job(request: Request[Any, Any, Any], service: Service, id: Id) -> JobInfo:
    """Return a job."""
    task = await _task(service, id)
    if task.headers.get(CREATOR) != caller(request):
        require(request, "consume", "job", "queue", name=task.queue)
    return _info(task)


@route("DELETE", "/jobs/{id:int}", scope="admin", on="job", status=204, problems=(404, 409))
async def cancel_job(request: Request[Any, Any, Any], service: Service, id: Id) -> None:
    """Cancel a waiting job."""
    task = await _task(service, id)
    require(request, "admin", "job", "queue", name=task.queue)
    if not await service.queue(task.queue).cancel(id):
        raise Refusal(409, f"job_{task.state}", f"job {id} is {task.state}: only waiting jobs can be cancelled")


@route("POST", "/jobs/{id:int}/retry", scope="admin", on="job", problems=(404, 409))
async def retry_job(request: Request[Any, Any, Any], service: Service, id: Id) -> JobInfo:
    """Requeue a dead job, with its attempts reset."""
    task = await _task(service, id)
    require(request, "admin", "job", "queue", name=task.queue)
    if not await service.queue(task.queue).requeue([id]):
        raise Refusal(409, f"job_{task.state}", f"job {id} is {task.state}: only dead jobs can be retried")
    return _info(await _task(service, id))


async def _task(service: ServiceContext, id: int) -> TaskInfo[Any]:
    """Return the task of a job; raise `Refusal` if there is none, or if its payload is not a job's."""
    found = await service.execute(GetJob(id))
    if found is None or call_of(found.payload) is None:
        raise Refusal(404, "unknown_job", f"there is no job {id}: it has finished and was not kept, or never existed")
    return found


def _info(task: TaskInfo[Any]) -> JobInfo:
    call = call_of(task.payload)
    assert call is not None
    return JobInfo(
        id=task.id,
        queue_name=task.queue,
        status=task.state,
        callback_url=call.url,
        payload=call.payload,
        priority=task.priority,
        attempt=task.attempt,
        max_retries=task.max_attempts - 1,
        timeout_ms=call.timeout_ms,
        idempotency_key=task.key,
        run_ms=task.run_ms,
        enqueued_ms=task.enqueued_ms,
        finished_ms=task.finished_ms,
        reason=task.reason,
        error=task.error,
        result=task.result,
    )


routes = [create_job, list_jobs, get_job, cancel_job, retry_job]
