"""What a page can change: each of these is a form, which takes the right of an administrator."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec
from litestar import Request as HTTPRequest
from litestar import Response, post
from litestar.response import Redirect

from ...codec import Codec
from ...operations import Operation
from ...operations.browse import FindDead, PurgeLetters, RequeueEdited
from ...operations.queue import Cancel, Purge, Requeue
from ...operations.queue_settings import SetPaused
from ...operations.schedule import ChangeSchedule
from ..auditing import tell
from ..keys import caller
from ..problems import Refusal
from ..service import Desk, Service
from . import access
from .queues import kind_of
from .viewing import base_of

T = TypeVar("T")

AT_ONCE = 1_000
"""How many dead letters are changed in a transaction."""

_LARGEST = 4
"""How many times its size a payload may take in a form, which writes many letters as three."""


class Done(NamedTuple):
    """What an action has come to: a word for it, what was changed, and where to go on."""

    said: str
    what: str
    path: str
    query: dict[str, Any]


class Request(NamedTuple):
    """A form that was sent: what it says, by whom, and the service that it was sent to."""

    service: Desk
    form: Mapping[str, Any]
    by: str

    def text(self, name: str) -> str:
        """What the form says of *name*."""
        value = self.form.get(name)
        if not isinstance(value, str) or not value:
            raise Refusal(422, "invalid", f"the form has no {name}: load the page, and try again")
        return value

    @property
    def id(self) -> int:
        """The task that the form is about."""
        text = self.text("id")
        if not text.isdecimal() or len(text) > 18:
            raise Refusal(422, "invalid", f"{text!r} is no id of a task")
        return int(text)

    async def do(self, operation: Operation[T], **about: Any) -> T:
        """The answer to *operation*, which is told with what it is *about*."""
        tell(f"dashboard.{self.text('do')}", self.by, **about)
        return await self.service.execute(operation)


async def pause_queue(asked: Request) -> Done:
    """Hand out no tasks."""
    name = asked.text("queue")
    await asked.do(SetPaused(name, True), queue=name)
    return Done("paused", name, "/dashboard/queue", {"name": name})


async def resume_queue(asked: Request) -> Done:
    """Hand out tasks again."""
    name = asked.text("queue")
    await asked.do(SetPaused(name, False), queue=name)
    return Done("resumed", name, "/dashboard/queue", {"name": name})


async def pause_schedule(asked: Request) -> Done:
    """Fire no more."""
    name = asked.text("schedule")
    known = await asked.do(ChangeSchedule(name, {}, True), schedule=name)
    return Done("paused" if known else "gone", name, "/dashboard/schedules", {})


async def resume_schedule(asked: Request) -> Done:
    """Fire again."""
    name = asked.text("schedule")
    known = await asked.do(ChangeSchedule(name, {}, False), schedule=name)
    return Done("resumed" if known else "gone", name, "/dashboard/schedules", {})


async def cancel(asked: Request) -> Done:
    """Delete a task that waits or runs."""
    name, id = asked.text("queue"), asked.id
    done = await asked.do(Cancel(name, id, True), queue=name, task=id)
    return Done("cancelled" if done else "gone", f"task {id}", "/dashboard/queue", {"name": name})


async def requeue(asked: Request) -> Done:
    """Give dead letters a new life: one, all of a kind, or all."""
    name = asked.text("queue")

    async def revive(ids: list[int]) -> int:
        return await asked.do(Requeue(name, False, ids), queue=name, tasks=ids)

    if "id" in asked.form:
        number = await revive([asked.id])
        return Done(*_counted("requeued", number), "/dashboard/task", {"queue": name, "id": asked.id})
    if "group" in asked.form:
        number = await _each(asked, name, revive)
    else:
        number = await asked.do(Requeue(name, True, []), queue=name)
    return Done(*_counted("requeued", number), "/dashboard/dead", {"queue": name})


async def edit(asked: Request) -> Done:
    """Give a dead letter another payload and a new life."""
    name, id = asked.text("queue"), asked.id
    text = Codec(largest=asked.service.largest).check(asked.text("payload"))
    done = await asked.do(RequeueEdited(name, id, msgspec.json.format(text, indent=-1)), queue=name, task=id)
    return Done("edited" if done else "gone", f"task {id}", "/dashboard/task", {"queue": name, "id": id})


async def purge(asked: Request) -> Done:
    """Delete dead letters: one, all of a kind, or all."""
    name = asked.text("queue")

    async def delete(ids: list[int]) -> int:
        return await asked.do(PurgeLetters(name, ids), queue=name, tasks=ids)

    if "id" in asked.form:
        number = await delete([asked.id])
    elif "group" in asked.form:
        number = await _each(asked, name, delete)
    else:
        number = await asked.do(Purge(name, "dead", None), queue=name)
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


@post("/dashboard/act", opt=access.ACTS, request_max_body_size=_LARGEST * 2**20)
async def act(request: HTTPRequest[Any, Any, Any], service: Service) -> Response[Any]:
    """Do what a form asks for, and go where it can be seen."""
    form = await request.form()
    access.check_form(request, form.get("csrf"))
    if service.settings.read_only:
        raise Refusal(
            403, "read_only", "the service is read-only: start it without --read-only to change anything here"
        )
    action = ACTIONS.get(str(form.get("do")))
    if action is None:
        raise Refusal(422, "invalid", "this form asks for nothing that is known: load the page, and try again")
    said, what, path, query = await action(Request(service, form, caller(request)))
    return Redirect(f"{base_of(request)}{path}?{urlencode(query | {'said': said, 'what': what})}", status_code=303)


async def _each(asked: Request, name: str, change: Callable[[list[int]], Awaitable[int]]) -> int:
    """*change* all dead letters of a kind, so many at a time that others have their turn; how many."""
    reason, error = await kind_of(asked.service, name, asked.text("group"))
    number = 0
    while ids := await asked.service.execute(FindDead(name, reason, error, AT_ONCE)):
        changed = await change(ids)
        number += changed
        if not changed:
            break
    return number


def _counted(said: str, number: int) -> tuple[str, str]:
    return (said, "1 task is" if number == 1 else f"{number:,} tasks are") if number else ("gone", "")


routes = [act]
