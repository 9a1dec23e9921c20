"""The right to see the pages and to act on them, by the session in a browser's cookie.

A session is begun with a key and kept by `Keys` in the database.  With another guard it is kept in this process, with
what was typed, which the guard gets as the key of each request.  The cookie is read by the pages alone, is out of reach
for scripts, and is not sent by a request that another site begins.  Without any key the service is for this machine
alone, and every visitor may do everything.
"""

import hmac
import secrets
from http.cookies import SimpleCookie
from time import monotonic
from typing import Any

from litestar import Request
from litestar.datastructures import Cookie
from litestar.types import ASGIApp, Empty, Receive, Scope, Send
from litestar.utils.scope.state import ScopeState

from ...access.secrets import fresh_session
from ..keys import SESSION_LASTS, Keys, to_this_machine
from ..origins import browsed, is_public
from ..problems import Refusal
from ..routing import ACCESS, Access

COOKIE, TOKEN = "eventkit_session", "eventkit_form"
"""The cookies with the id of the session, and with what a form has to bring along."""

_MOST = 1_000
"""How many sessions of a guard other than `Keys` are kept."""

SEES = {ACCESS: Access("consume", None)}
"""What a page asks of whoever looks at it."""

ACTS = {ACCESS: Access("admin", None)}
"""What it asks of whoever changes something."""


def as_holder_of(key: str, scope: Scope) -> Scope:
    """The request as it would be if its header had *key*."""
    others = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
    bearer = (b"authorization", f"Bearer {key}".encode("latin-1", "replace"))
    ScopeState.from_scope(scope).headers = Empty  # What was read of them before.
    return {**scope, "headers": [*others, bearer]}  # type: ignore[return-value]


class Keyed:
    """Gives the session in the cookie as the header that guards look at."""

    def __init__(self, app: ASGIApp) -> None:
        self._application = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = dict(scope["headers"])
        if b"cookie" in headers and b"authorization" not in headers:
            cookies = SimpleCookie(headers[b"cookie"].decode("latin-1"))
            if COOKIE in cookies:
                session = cookies[COOKIE].value
                key, until = scope["litestar_app"].state.sessions.get(session, (session, float("inf")))
                if monotonic() < until:
                    scope = as_holder_of(key, scope)
        await self._application(scope, receive, send)


def guard_of(request: Request[Any, Any, Any]) -> Any:
    """The guard of the service; None where everybody may do all."""
    return request.app.state.get("guard")


async def sign_in(request: Request[Any, Any, Any], key: str) -> str:
    """The id of a session for who has *key*, if it lets its holder see something."""
    guard, sessions = guard_of(request), request.app.state.sessions
    asking: Request[Any, Any, Any] = Request(as_holder_of(key, request.scope))
    if isinstance(guard, Keys):
        await guard.check(asking, SEES[ACCESS])
        return await guard.begin_session(key)
    await guard(asking, SEES[ACCESS])
    if len(sessions) >= _MOST:
        del sessions[next(iter(sessions))]
    session = fresh_session()
    sessions[session] = (key, monotonic() + SESSION_LASTS)
    return session


async def sign_out(request: Request[Any, Any, Any]) -> None:
    """End the session that the browser has."""
    guard, session = guard_of(request), request.cookies.get(COOKIE, "")
    if isinstance(guard, Keys):
        await guard.end_session(session)
    request.app.state.sessions.pop(session, None)


async def may_act(request: Request[Any, Any, Any]) -> bool:
    """Whether pages have buttons."""
    if request.app.state.desk.settings.read_only:
        return False
    guard = guard_of(request)
    if guard is None:
        return True
    if isinstance(guard, Keys):  # Which counts each time it is asked.
        return guard.allows(request, ACTS[ACCESS])
    try:
        await guard(request, ACTS[ACCESS])
    except Refusal:
        return False
    return True


def token(request: Request[Any, Any, Any]) -> tuple[str, bool]:
    """What a form has to bring along, and whether the browser does not know it yet."""
    known = request.cookies.get(TOKEN, "")
    return (known, False) if len(known) == 43 else (secrets.token_urlsafe(32), True)


def check_form(request: Request[Any, Any, Any], given: Any) -> None:
    """Refuse a form that no page of ours has sent; that no other origin has is checked for all requests."""
    known, settings = request.cookies.get(TOKEN, ""), request.app.state.desk.settings
    if not (known and isinstance(given, str) and hmac.compare_digest(known.encode(), given.encode())):
        raise Refusal(403, "forged", "this form was not sent by a page of the dashboard: load the page, and try again")
    # Without a guard, a page whose host name was made to mean this machine would be of the same origin.
    if guard_of(request) is None and not (to_this_machine(request) or is_public(request, settings)):
        raise Refusal(403, "forbidden", "the service does not know itself by this name: name it in public_origin")


def cookie(request: Request[Any, Any, Any], name: str, value: str) -> Cookie:
    """A cookie of ours for a day, or one that is over if it has nothing to say."""
    secure = browsed(request, request.app.state.desk.settings).startswith("https:")
    age = SESSION_LASTS if value else 0
    return Cookie(key=name, value=value, max_age=age, path="/", httponly=True, samesite="strict", secure=secure)
