"""Jobs: calls of somebody's URL, made by workers.

A job is a task of the queue it names; `eventkit.webhooks` says what it has in it.  Its status is the task's state, and
when it is done, its queue says for how long it is kept.

The right to a job is that to the jobs of its queue, or to the queue: a scope such as ``consume:job:hooks`` or
``consume:queue:hooks``.  The key that made a job may read it as well; the task has its id in the header `CREATOR`.
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
from .keys import ANYBODY, caller, require
from .problems import Refusal
from .queues import State
from .routing import route
from .service import Desk, Service
from .terms import IS_NAME, IS_NUMBER, Id

CREATOR = "eventkit-key"


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
    """Jobs in the order in which they were made."""
    require(request, "consume", "job", "queue", name=queue)
    if queue is None:
        tasks = await service.execute(ListJobs(status, limit, offset))
    else:
        tasks = await service.execute(ListJobsOf(arguments.name("queue", queue), status, limit, offset))
    return [_info(task) for task in tasks if call_of(task.payload) is not None]


@route("GET", "/jobs/{id:int}", scope="consume", on="job", problems=(404,))
async def get_job(request: Request[Any, Any, Any], service: Service, id: Id) -> JobInfo:
    """A job."""
    task = await _task(service, id)
    if task.headers.get(CREATOR) != caller(request):
        require(request, "consume", "job", "queue", name=task.queue)
    return _info(task)


@route("DELETE", "/jobs/{id:int}", scope="admin", on="job", status=204, problems=(404, 409))
async def cancel_job(request: Request[Any, Any, Any], service: Service, id: Id) -> None:
    """Cancel a job that waits."""
    task = await _task(service, id)
    require(request, "admin", "job", "queue", name=task.queue)
    if not await service.queue(task.queue).cancel(id):
        raise Refusal(409, f"job_{task.state}", f"job {id} is {task.state}, and only one that waits can be cancelled")


@route("POST", "/jobs/{id:int}/retry", scope="admin", on="job", problems=(404, 409))
async def retry_job(request: Request[Any, Any, Any], service: Service, id: Id) -> JobInfo:
    """Give a dead job a new life, with no attempt made."""
    task = await _task(service, id)
    require(request, "admin", "job", "queue", name=task.queue)
    if not await service.queue(task.queue).requeue([id]):
        raise Refusal(409, f"job_{task.state}", f"job {id} is {task.state}, and only a dead one can be tried again")
    return _info(await _task(service, id))


async def _task(service: Desk, id: int) -> TaskInfo[Any]:
    """The task of a job; a task whose payload begins like a job's and is none is not found."""
    found = await service.execute(GetJob(id))
    if found is None or call_of(found.payload) is None:
        raise Refusal(404, "unknown_job", f"there is no job {id}: it is done and was not kept, or never was")
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
