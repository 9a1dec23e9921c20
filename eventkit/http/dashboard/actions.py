"""Actions of pages: forms that need the right ``admin``."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec
from litestar import Request as HTTPRequest
from litestar import Response, post
from litestar.response import Redirect

from ...codec import Codec
from ...operations import Operation
from ...operations.admin import FindDead, PurgeLetters, RequeueEdited
from ...operations.queue import Cancel, Purge, Requeue, SetPaused
from ...operations.schedule import ChangeSchedule
from ..keys import caller
from ..requests import Refusal
from ..service import Service, ServiceContext, audit
from . import access
from .queues import kind_of
from .views import base_of

T = TypeVar("T")

AT_ONCE = 1_000
"""The maximum number of dead letters changed in a transaction."""

_LARGEST = 4
"""How many times its size a payload may have in a form, whose encoding writes one byte as three."""


class Done(NamedTuple):
    """The result of an action: its notice, what was changed, and the next page."""

    said: str
    what: str
    path: str
    query: dict[str, Any]


class Request(NamedTuple):
    """A form, its sender, and the service."""

    service: ServiceContext
    form: Mapping[str, Any]
    by: str

    def text(self, name: str) -> str:
        """Return a field of the form."""
        value = self.form.get(name)
        if not isinstance(value, str) or not value:
            raise Refusal(422, "invalid", f"the form has no {name}: reload the page and try again")
        return value

    @property
    def id(self) -> int:
        """The task id of the form."""
        text = self.text("id")
        if not text.isdecimal() or len(text) > 18:
            raise Refusal(422, "invalid", f"{text!r} is not a task id")
        return int(text)

    async def do(self, operation: Operation[T], **about: Any) -> T:
        """Execute *operation* and audit it."""
        audit(f"dashboard.{self.text('do')}", self.by, **about)
        return await self.service.execute(operation)


async def pause_queue(request: Request) -> Done:
    """Pause a queue."""
    name = request.text("queue")
    await request.do(SetPaused(name, True), queue=name)
    return Done("paused", name, "/dashboard/queue", {"name": name})


async def resume_queue(request: Request) -> Done:
    """Resume a queue."""
    name = request.text("queue")
    await request.do(SetPaused(name, False), queue=name)
    return Done("resumed", name, "/dashboard/queue", {"name": name})


async def pause_schedule(request: Request) -> Done:
    """Pause a schedule."""
    name = request.text("schedule")
    known = await request.do(ChangeSchedule(name, {}, True), schedule=name)
    return Done("paused" if known else "gone", name, "/dashboard/schedules", {})


async def resume_schedule(request: Request) -> Done:
    """Resume a schedule."""
    name = request.text("schedule")
    known = await request.do(ChangeSchedule(name, {}, False), schedule=name)
    return Done("resumed" if known else "gone", name, "/dashboard/schedules", {})


async def cancel(request: Request) -> Done:
    """Delete a waiting or running task."""
    name, id = request.text("queue"), request.id
    done = await request.do(Cancel(name, id, True), queue=name, task=id)
    return Done("cancelled" if done else "gone", f"task {id}", "/dashboard/queue", {"name": name})


async def requeue(request: Request) -> Done:
    """Requeue dead letters: one, those of an error, or all."""
    name = request.text("queue")

    async def requeue_ids(ids: list[int]) -> int:
        return await request.do(Requeue(name, False, ids), queue=name, tasks=ids)

    if "id" in request.form:
        number = await requeue_ids([request.id])
        return Done(*_counted("requeued", number), "/dashboard/task", {"queue": name, "id": request.id})
    if "group" in request.form:
        number = await _each(request, name, requeue_ids)
    else:
        number = await request.do(Requeue(name, True, []), queue=name)
    return Done(*_counted("requeued", number), "/dashboard/dead", {"queue": name})


async def edit(request: Request) -> Done:
    """Requeue a dead letter with another payload."""
    name, id = request.text("queue"), request.id
    text = Codec(largest=request.service.largest).check(request.text("payload"))
    done = await request.do(RequeueEdited(name, id, msgspec.json.format(text, indent=-1)), queue=name, task=id)
    return Done("edited" if done else "gone", f"task {id}", "/dashboard/task", {"queue": name, "id": id})


async def purge(request: Request) -> Done:
    """Delete dead letters: one, those of an error, or all."""
    name = request.text("queue")

    async def delete(ids: list[int]) -> int:
        return await request.do(PurgeLetters(name, ids), queue=name, tasks=ids)

    if "id" in request.form:
        number = await delete([request.id])
    elif "group" in request.form:
        number = await _each(request, name, delete)
    else:
        number = await request.do(Purge(name, "dead", None), queue=name)
    return Done(*_counted("purged", number), "/dashboard/dead", {"queue": name})


ACTIONS: dict[str, Callable[[Request], Awaitable[Done]]] = {
    "pause-queue": pause_queue,
    "resume-queue": resume_queue,
    "pause-schedule": pause_schedule,
    "resume-schedule": resume_schedule,
    "cancel": cancel,
    "requeue": requeue,
    "edit": edit,
    "purge": purge,
}


@post("/dashboard/act", opt=access.ADMIN, request_max_body_size=_LARGEST * 2**20)
async def act(request: HTTPRequest[Any, Any, Any], service: Service) -> Response[Any]:
    """Perform the action of a form, and redirect to its page."""
    form = await request.form()
    access.check_form(request, form.get("csrf"))
    if service.settings.read_only:
        raise Refusal(
            403, "read_only", "the service is read-only: start it without --read-only to change anything here"
        )
    action = ACTIONS.get(str(form.get("do")))
    if action is None:
        raise Refusal(422, "invalid", "unknown action: reload the page and try again")
    said, what, path, query = await action(Request(service, form, caller(request)))
    return Redirect(f"{base_of(request)}{path}?{urlencode(query | {'said': said, 'what': what})}", status_code=303)


async def _each(request: Request, name: str, change: Callable[[list[int]], Awaitable[int]]) -> int:
    """Apply *change* to all dead letters of an error, in batches; return their number."""
    reason, error = await kind_of(request.service, name, request.text("group"))
    number = 0
    while ids := await request.service.execute(FindDead(name, reason, error, AT_ONCE)):
        changed = await change(ids)
        number += changed
        if not changed:
            break
    return number


def _counted(said: str, number: int) -> tuple[str, str]:
    return (said, "1 task is" if number == 1 else f"{number:,} tasks are") if number else ("gone", "")


routes = [act]
