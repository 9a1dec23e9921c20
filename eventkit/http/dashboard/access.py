"""Access to the dashboard: the session cookie, and signing in."""

import hmac
import secrets
from http.cookies import SimpleCookie
from time import monotonic
from typing import Any
from urllib.parse import urlencode

from litestar import Request, Response, get, post
from litestar.datastructures import Cookie
from litestar.response import Redirect
from litestar.types import ASGIApp, Empty, Receive, Scope, Send
from litestar.utils.scope.state import ScopeState

from ...access.keys import fresh_session
from ..keys import SESSION_LASTS, Keys, to_this_machine
from ..origins import browsed, is_public
from ..requests import Refusal, problem_of
from ..routing import ACCESS, Access
from . import access
from .views import base_of, render

COOKIE, TOKEN = "eventkit_session", "eventkit_form"
"""The cookies with the session id, and with the CSRF token."""

_MOST = 1_000
"""The maximum number of sessions kept for a guard other than `Keys`."""

VIEWER = {ACCESS: Access("consume", None)}
"""The right to see pages."""

ADMIN = {ACCESS: Access("admin", None)}
"""The right to change something."""


def with_key(key: str, scope: Scope) -> Scope:
    """Return the request with *key* as its authorization header."""
    others = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
    bearer = (b"authorization", f"Bearer {key}".encode("latin-1", "replace"))
    ScopeState.from_scope(scope).headers = Empty  # Clears the cache of parsed headers.
    return {**scope, "headers": [*others, bearer]}  # type: ignore[return-value]


class SessionMiddleware:
    """Middleware that turns the session cookie into the header that guards check."""

    def __init__(self, app: ASGIApp) -> None:
        self._application = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        headers = dict(scope["headers"])
        if b"cookie" in headers and b"authorization" not in headers:
            cookies = SimpleCookie(headers[b"cookie"].decode("latin-1"))
            if COOKIE in cookies:
                session = cookies[COOKIE].value
                key, until = scope["litestar_app"].state.sessions.get(session, (session, float("inf")))
                if monotonic() < until:
                    scope = with_key(key, scope)
        await self._application(scope, receive, send)


def guard_of(request: Request[Any, Any, Any]) -> Any:
    """Return the guard of the service; None if there is none."""
    return request.app.state.get("guard")


async def sign_in(request: Request[Any, Any, Any], key: str) -> str:
    """Begin a session for a key that may see pages, and return its id."""
    guard, sessions = guard_of(request), request.app.state.sessions
    asking: Request[Any, Any, Any] = Request(with_key(key, request.scope))
    if isinstance(guard, Keys):
        await guard.check(asking, VIEWER[ACCESS])
        return await guard.begin_session(key)
    await guard(asking, VIEWER[ACCESS])
    if len(sessions) >= _MOST:
        del sessions[next(iter(sessions))]
    session = fresh_session()
    sessions[session] = (key, monotonic() + SESSION_LASTS)
    return session


async def sign_out(request: Request[Any, Any, Any]) -> None:
    """End the browser's session."""
    guard, session = guard_of(request), request.cookies.get(COOKIE, "")
    if isinstance(guard, Keys):
        await guard.end_session(session)
    request.app.state.sessions.pop(session, None)


async def may_act(request: Request[Any, Any, Any]) -> bool:
    """Return whether pages have buttons."""
    if request.app.state.context.settings.read_only:
        return False
    guard = guard_of(request)
    if guard is None:
        return True
    if isinstance(guard, Keys):  # A call would count against the limits of the key.
        return guard.allows(request, ADMIN[ACCESS])
    try:
        await guard(request, ADMIN[ACCESS])
    except Refusal:
        return False
    return True


def token(request: Request[Any, Any, Any]) -> tuple[str, bool]:
    """Return the CSRF token, and whether the browser has yet to store it."""
    known = request.cookies.get(TOKEN, "")
    return (known, False) if len(known) == 43 else (secrets.token_urlsafe(32), True)


def check_form(request: Request[Any, Any, Any], given: Any) -> None:
    """Check the CSRF token of a form; the origin is checked for all requests."""
    known, settings = request.cookies.get(TOKEN, ""), request.app.state.context.settings
    if not (known and isinstance(given, str) and hmac.compare_digest(known.encode(), given.encode())):
        raise Refusal(403, "forged", "invalid form token: reload the page and try again")
    # Without a guard, a page whose host name resolves to this machine would be of the same origin.
    if guard_of(request) is None and not (to_this_machine(request) or is_public(request, settings)):
        raise Refusal(403, "forbidden", "unknown host name: set public_origin to the address of the service")


def cookie(request: Request[Any, Any, Any], name: str, value: str) -> Cookie:
    """Return a cookie for a day; an empty value deletes it."""
    secure = browsed(request, request.app.state.context.settings).startswith("https:")
    age = SESSION_LASTS if value else 0
    return Cookie(key=name, value=value, max_age=age, path="/", httponly=True, samesite="strict", secure=secure)


def error_page(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """Return an error page, or a redirect to the login page."""
    problem, _ = problem_of(error)
    if problem.status == 401 and request.method == "GET":
        return Redirect(f"{base_of(request)}/dashboard/login?{urlencode({'next': _address(request)})}", status_code=303)
    return render(request, "problem", "Error", problem.status, problem=problem)


@get("/dashboard/login")
async def login_page(request: Request[Any, Any, Any]) -> Response[Any]:
    """Show the login form."""
    return render(request, "login", "Sign in", next=request.query_params.get("next", "/"), failed=None)


@post("/dashboard/login")
async def login(request: Request[Any, Any, Any]) -> Response[Any]:
    """Begin a session for a valid key."""
    form = await request.form()
    access.check_form(request, form.get("csrf"))
    key, wanted = str(form.get("key", "")).strip(), str(form.get("next", "/"))
    answer = Redirect(_inside(request, wanted), status_code=303)
    if access.guard_of(request) is not None:
        try:
            session = await access.sign_in(request, key)
        except Refusal as error:
            return render(request, "login", "Sign in", 401, next=wanted, failed=str(error))
        answer.set_cookie(access.cookie(request, access.COOKIE, session))
    return answer


@post("/dashboard/logout")
async def logout(request: Request[Any, Any, Any]) -> Response[Any]:
    """End the session."""
    access.check_form(request, (await request.form()).get("csrf"))
    await access.sign_out(request)
    answer = Redirect(_inside(request, "/dashboard/login"), status_code=303)
    answer.set_cookie(access.cookie(request, access.COOKIE, ""))
    return answer


def _address(request: Request[Any, Any, Any]) -> str:
    query = request.scope["query_string"].decode("latin-1")
    return request.scope["path"] + (f"?{query}" if query else "")


def _inside(request: Request[Any, Any, Any], path: str) -> str:
    """Return *path* if it is a page of the dashboard, as redirects must not lead elsewhere."""
    ours = path == "/" or path.startswith(("/?", "/dashboard/"))
    return base_of(request) + (path if ours and path.isprintable() and "\\" not in path else "/")


routes = [
    login_page,
    login,
    logout,
]
