"""Who may see the pages, and who may act: by the key that a browser has in a cookie, as any caller has it in a header.

The cookie is read by the pages alone, is out of reach for scripts, and is not sent by a request that another site
begins.  Without any key the service is for this machine alone, and whoever reaches it may do all.
"""

import hmac
import secrets
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from litestar import Request
from litestar.datastructures import Cookie
from litestar.types import ASGIApp, Empty, Receive, Scope, Send
from litestar.utils.scope.state import ScopeState

from ..keys import Keys, to_this_machine
from ..problems import Refusal
from ..routing import ACCESS, Access

COOKIE, TOKEN = "eventkit_key", "eventkit_form"
"""The cookies with the key, and with what a form has to bring along."""

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
    """Gives the key in the cookie as the header that guards look at."""

    def __init__(self, app: ASGIApp) -> None:
        self._application = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = dict(scope["headers"])
        if b"cookie" in headers and b"authorization" not in headers:
            cookies = SimpleCookie(headers[b"cookie"].decode("latin-1"))
            if COOKIE in cookies:
                scope = as_holder_of(cookies[COOKIE].value, scope)
        await self._application(scope, receive, send)


def guard_of(request: Request[Any, Any, Any]) -> Any:
    """The guard of the service; None where everybody may do all."""
    return request.app.state.get("guard")


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
    """Refuse a form that no page of ours has sent."""
    known = request.cookies.get(TOKEN, "")
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = urlsplit(request.headers.get("origin", "")).netloc or request.headers.get("host", "")
    host = request.headers.get("host", "")
    ours = site == "same-origin" and origin == host and (COOKIE in request.cookies or to_this_machine(request))
    if not (ours and known and isinstance(given, str) and hmac.compare_digest(known.encode(), given.encode())):
        raise Refusal(403, "forged", "this form was not sent by a page of the dashboard: load the page, and try again")


def cookie(request: Request[Any, Any, Any], name: str, value: str) -> Cookie:
    """A cookie of ours for a day, or one that is over if it has nothing to say."""
    secure = request.scope["scheme"] == "https"
    age = 86_400 if value else 0
    return Cookie(key=name, value=value, max_age=age, path="/", httponly=True, samesite="strict", secure=secure)
