"""Jobs: calls of somebody's URL, made by workers.

A job is a task of the queue it names; `eventkit.webhooks` says what it has in it.  Its status is the task's state, and
when it is done, its queue says for how long it is kept.
"""

from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import JSONBody, QueryParameter

from .. import arguments
from ..operations.job import GetJob, ListJobs, ListJobsOf
from ..records import TaskInfo
from ..webhooks import Job, call_of
from .answers import Answer
from .keys import require
from .problems import Refusal
from .queues import State
from .routing import route
from .service import Desk, Service
from .terms import IS_NAME, IS_NUMBER, Id


class JobInfo(msgspec.Struct, frozen=True):
    """A job as it stands: *status* is ``scheduled``, ``ready``, ``leased``, ``dead`` or ``done``.

    *result* is what the URL has answered, *error* the last failure, and *reason* why it is dead.
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


QueueName = Annotated[str | None, QueryParameter(**IS_NAME, description="Only those of this queue.")]
Status = Annotated[State | None, QueryParameter(description="Only those that stand like this.")]
Limit = Annotated[int, QueryParameter(ge=1, le=1000)]
Offset = Annotated[int, QueryParameter(**IS_NUMBER, description="How many to pass over.")]


@route("POST", "/jobs", scope="produce", on="job", status=201, also=200)
async def create_job(request: Request[Any, Any, Any], service: Service, data: JSONBody[Job]) -> Response[JobInfo]:
    """Have a URL called.  201 for a new job, 200 for one whose key was known."""
    require(request, "produce", "queue", data.queue_name)
    with service.pressure.write():
        [answer] = await service.kit.queue(data.queue_name).enqueue_many([data.task()])
    return Answer(await _job(service, answer.id), status_code=201 if answer.created else 200)


@route("GET", "/jobs", scope="consume", on="job")
async def list_jobs(
    service: Service, queue: QueueName = None, status: Status = None, limit: Limit = 100, offset: Offset = 0
) -> list[JobInfo]:
    """Jobs in the order in which they were made."""
    if queue is None:
        tasks = await service.execute(ListJobs(status, limit, offset))
    else:
        tasks = await service.execute(ListJobsOf(arguments.name("queue", queue), status, limit, offset))
    return [job for task in tasks if (job := _info(task)) is not None]


@route("GET", "/jobs/{id:int}", scope="consume", on="job", problems=(404,))
async def get_job(service: Service, id: Id) -> JobInfo:
    """A job."""
    return await _job(service, id)


@route("DELETE", "/jobs/{id:int}", scope="admin", on="job", status=204, problems=(404, 409))
async def cancel_job(service: Service, id: Id) -> None:
    """Cancel a job that waits."""
    job = await _job(service, id)
    if not await service.queue(job.queue_name).cancel(id):
        raise Refusal(409, f"job_{job.status}", f"job {id} is {job.status}, and only one that waits can be cancelled")


@route("POST", "/jobs/{id:int}/retry", scope="admin", on="job", problems=(404, 409))
async def retry_job(service: Service, id: Id) -> JobInfo:
    """Give a dead job a new life, with no attempt made."""
    job = await _job(service, id)
    if not await service.queue(job.queue_name).requeue([id]):
        raise Refusal(409, f"job_{job.status}", f"job {id} is {job.status}, and only a dead one can be tried again")
    return await _job(service, id)


async def _job(service: Desk, id: int) -> JobInfo:
    found = await service.execute(GetJob(id))
    job = None if found is None else _info(found)
    if job is None:
        raise Refusal(404, "unknown_job", f"there is no job {id}: it is done and was not kept, or never was")
    return job


def _info(task: TaskInfo[Any]) -> JobInfo | None:
    """The job that a task is; None for one that somebody has made a mess of."""
    call = call_of(task.payload)
    if call is None:
        return None
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
