"""Signing in and out, and the forms that change something, which need the right ``admin``."""

import hmac
from collections.abc import Awaitable, Callable, Mapping
from http.cookies import SimpleCookie
from time import monotonic
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec
from litestar import Request, Response, get, post
from litestar.response import Redirect
from litestar.types import ASGIApp, Empty, Receive, Scope, Send
from litestar.utils.scope.state import ScopeState

from ...access import fresh_session
from ...codec import Codec
from ...operations import Operation
from ...operations.admin import FindDead, PurgeDeadTasks, RequeueEdited
from ...operations.queue import Cancel, Purge, Requeue, SetPaused
from ...operations.schedule import ChangeSchedule
from ..bodies import Refusal
from ..keys import SESSION_LASTS, Keys, caller, is_at, to_this_machine
from ..routing import ACCESS, HTTPRequest, whole
from ..service import Service, ServiceContext, audit
from . import ADMIN, COOKIE, TOKEN, VIEWER, base_of, cookie, guard_of, render

T = TypeVar("T")

AT_ONCE = 1_000  # The maximum number of dead tasks changed in a transaction.
_LARGEST = 4  # How many times its size a payload may have in a form, whose encoding writes one byte as three.
_MOST = 1_000  # The maximum number of sessions kept for a guard other than `Keys`.


def sessions(app: ASGIApp) -> ASGIApp:
    """Return *app* with the session cookie turned into the header that guards check."""

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if b"cookie" in headers and b"authorization" not in headers:
            cookies = SimpleCookie(headers[b"cookie"].decode("latin-1"))
            if COOKIE in cookies:
                session = cookies[COOKIE].value
                key, until = scope["litestar_app"].state.sessions.get(session, (session, float("inf")))
                if monotonic() < until:
                    scope = _with_key(key, scope)
        await app(scope, receive, send)

    return handle


def _with_key(key: str, scope: Scope) -> Scope:
    """Return the request with *key* as its authorization header."""
    others = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
    bearer = (b"authorization", f"Bearer {key}".encode("latin-1", "replace"))
    ScopeState.from_scope(scope).headers = Empty  # Clears the cache of parsed headers.
    return {**scope, "headers": [*others, bearer]}  # type: ignore[return-value]


async def _checked_form(request: HTTPRequest) -> Mapping[str, Any]:
    """Return the form of a request after checking its CSRF token; the origin is checked for all requests."""
    form = await request.form()
    known, given = request.cookies.get(TOKEN, ""), form.get("csrf")
    if not (known and isinstance(given, str) and hmac.compare_digest(known.encode(), given.encode())):
        raise Refusal(403, "forged", "invalid form token: reload the page and try again")
    # Without a guard, a page whose host name resolves to this machine would be of the same origin.
    public = request.app.state.context.settings.public_origin
    if guard_of(request) is None and not (to_this_machine(request) or is_at(public, request)):
        raise Refusal(403, "forbidden", "unknown host name: set public_origin to the address of the service")
    return form


@get("/dashboard/login")
async def login_page(request: HTTPRequest) -> Response[Any]:
    """Show the login form."""
    return render(request, "login", "Sign in", next=request.query_params.get("next", "/"), failed=None)


@post("/dashboard/login")
async def login(request: HTTPRequest) -> Response[Any]:
    """Begin a session for a valid key."""
    form = await _checked_form(request)
    key, wanted = str(form.get("key", "")).strip(), str(form.get("next", "/"))
    answer = Redirect(_inside(request, wanted), status_code=303)
    if guard_of(request) is not None:
        try:
            session = await _sign_in(request, key)
        except Refusal as error:
            return render(request, "login", "Sign in", 401, next=wanted, failed=str(error))
        answer.set_cookie(cookie(request, COOKIE, session))
    return answer


async def _sign_in(request: HTTPRequest, key: str) -> str:
    """Begin a session for a key that may see pages, and return its id."""
    guard, sessions = guard_of(request), request.app.state.sessions
    asking: HTTPRequest = Request(_with_key(key, request.scope))
    if isinstance(guard, Keys):
        await guard.check(asking, VIEWER[ACCESS])
        return await guard.begin_session(key)
    await guard(asking, VIEWER[ACCESS])
    if len(sessions) >= _MOST:
        del sessions[next(iter(sessions))]
    session = fresh_session()
    sessions[session] = (key, monotonic() + SESSION_LASTS)
    return session


@post("/dashboard/logout")
async def logout(request: HTTPRequest) -> Response[Any]:
    """End the browser's session."""
    await _checked_form(request)
    guard, session = guard_of(request), request.cookies.get(COOKIE, "")
    if isinstance(guard, Keys):
        await guard.end_session(session)
    request.app.state.sessions.pop(session, None)
    answer = Redirect(_inside(request, "/dashboard/login"), status_code=303)
    answer.set_cookie(cookie(request, COOKIE, ""))
    return answer


def _inside(request: HTTPRequest, path: str) -> str:
    """Return *path* if it is a page of the dashboard, as redirects must not lead elsewhere."""
    ours = path == "/" or path.startswith(("/?", "/dashboard/"))
    return base_of(request) + (path if ours and path.isprintable() and "\\" not in path else "/")


class Done(NamedTuple):
    """The result of an action: its notice, what was changed, and the next page."""

    said: str
    what: str
    path: str
    query: dict[str, Any]


class Form(NamedTuple):
    """A form, its sender, and the service."""

    service: ServiceContext
    fields: Mapping[str, Any]
    by: str

    def text(self, name: str) -> str:
        """Return a field of the form."""
        value = self.fields.get(name)
        if not isinstance(value, str) or not value:
            raise Refusal(422, "invalid", f"the form has no {name}: reload the page and try again")
        return value

    @property
    def id(self) -> int:
        """The task id of the form."""
        if (id := whole(self.text("id"))) is None:
            raise Refusal(422, "invalid", f"{self.text('id')!r} is not a task id")
        return id

    async def do(self, operation: Operation[T], **about: Any) -> T:
        """Execute *operation* and audit it."""
        audit(f"dashboard.{self.text('do')}", self.by, **about)
        return await self.service.execute(operation)


async def _pause_queue(form: Form, paused: bool = True) -> Done:
    name = form.text("queue")
    await form.do(SetPaused(name, paused), queue=name)
    return Done("paused" if paused else "resumed", name, "/dashboard/queue", {"name": name})


async def _pause_schedule(form: Form, paused: bool = True) -> Done:
    name = form.text("schedule")
    known = await form.do(ChangeSchedule(name, {}, paused), schedule=name)
    said = "gone" if not known else "paused" if paused else "resumed"
    return Done(said, name, "/dashboard/schedules", {})


async def _cancel(form: Form) -> Done:
    name, id = form.text("queue"), form.id
    done = await form.do(Cancel(name, id, True), queue=name, task=id)
    return Done("cancelled" if done else "gone", f"task {id}", "/dashboard/queue", {"name": name})


async def _edit(form: Form) -> Done:
    """Requeue a dead task with another payload."""
    name, id = form.text("queue"), form.id
    text = Codec(largest=form.service.raw.largest).check(form.text("payload"))
    done = await form.do(RequeueEdited(name, id, msgspec.json.format(text, indent=-1)), queue=name, task=id)
    return Done("edited" if done else "gone", f"task {id}", "/dashboard/task", {"queue": name, "id": id})


async def _dead(
    form: Form, said: str, some: Callable[[str, list[int]], Operation[int]], all: Callable[[str], Operation[int]]
) -> Done:
    """Requeue or delete dead tasks: one, those of an error, or all of a queue."""
    name, path, query = form.text("queue"), "/dashboard/dead", {}
    if "id" in form.fields:
        number = await form.do(some(name, [form.id]), queue=name, tasks=[form.id])
        if said == "requeued":
            path, query = "/dashboard/task", {"id": form.id}
    elif "group" in form.fields:
        reason, error = await group_of(form.service, name, form.text("group"))
        number = 0
        while ids := await form.service.execute(FindDead(name, reason, error, AT_ONCE)):
            changed = await form.do(some(name, ids), queue=name, tasks=ids)
            number += changed
            if not changed:
                break
    else:
        number = await form.do(all(name), queue=name)
    what = "1 task is" if number == 1 else f"{number:,} tasks are" if number else ""
    return Done(said if number else "gone", what, path, {"queue": name, **query})


async def group_of(service: ServiceContext, name: str, group: str) -> tuple[str, str | None]:
    """Return reason and error of a group of dead tasks, which the id of one of them names."""
    task = None if (id := whole(group)) is None else await service.queue(name).get(id)
    if task is None or task.state != "dead" or task.reason is None:
        raise Refusal(404, "not_found", f"task {group} of {name} is no longer dead: reload the list")
    return task.reason, task.error


ACTIONS: dict[str, Callable[[Form], Awaitable[Done]]] = {
    "pause-queue": _pause_queue,
    "resume-queue": lambda form: _pause_queue(form, False),
    "pause-schedule": _pause_schedule,
    "resume-schedule": lambda form: _pause_schedule(form, False),
    "cancel": _cancel,
    "edit": _edit,
    "requeue": lambda form: _dead(
        form, "requeued", lambda name, ids: Requeue(name, False, ids), lambda name: Requeue(name, True, [])
    ),
    "purge": lambda form: _dead(form, "purged", PurgeDeadTasks, lambda name: Purge(name, "dead", None)),
}


@post("/dashboard/act", opt=ADMIN, request_max_body_size=_LARGEST * 2**20)
async def act(request: HTTPRequest, service: Service) -> Response[Any]:
    """Perform the action of a form, and redirect to its page."""
    form = await _checked_form(request)
    if service.settings.read_only:
        raise Refusal(403, "read_only", "the service is read-only: start it without --read-only to change anything")
    action = ACTIONS.get(str(form.get("do")))
    if action is None:
        raise Refusal(422, "invalid", "unknown action: reload the page and try again")
    said, what, path, query = await action(Form(service, form, caller(request)))
    return Redirect(f"{base_of(request)}{path}?{urlencode(query | {'said': said, 'what': what})}", status_code=303)
