"""The dashboard: HTML pages for operators, which work without scripts.

A page is a function of `pages`.  It returns values, which `render` shows in the template of its name.  Templates escape
all values, and the content security policy permits no script except `static/dashboard.js`, which reloads the page on
signals of `pages.live`.  Changes are forms of `actions`, which need the right ``admin`` and a CSRF token.

Names of queues and streams may contain any character, so they are in the query and not in the path.
"""

import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from time import time
from typing import Any
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from litestar import Response
from litestar.datastructures import Cookie
from litestar.response import Redirect
from markupsafe import Markup

from ...operations.queue import MOST_COUNTED
from ...retry import Delays, Exponential, Fixed, Linear
from ..bodies import Refusal
from ..keys import SESSION_LASTS, Keys, is_at
from ..routing import ACCESS, Access, HTTPRequest, problem_of

COOKIE, TOKEN = "eventkit_session", "eventkit_form"
"""The cookies with the session id, and with the CSRF token."""

VIEWER = {ACCESS: Access("consume", None)}  # The right to see pages.
ADMIN = {ACCESS: Access("admin", None)}  # The right to change something.

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Invisible characters, and those that change the direction of text."""

_STEPS = ((1, 0.001, "ms"), (60, 1, "s"), (3600, 60, "min"), (86_400, 3600, "h"), (float("inf"), 86_400, "d"))

_LENGTHS = {"lease", "keep_done", "keep_dead", "key_ttl"}  # Settings in seconds.

_WIDTH, _HEIGHT = 120, 28


def visible(text: object) -> str:
    """Make invisible characters and direction changes visible."""
    return _INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", str(text))


def number(value: float | None) -> str:
    """Format an integer; mark those at which counting stopped."""
    if value is None:
        return "–"
    return f"{value:,}" + ("+" if value == MOST_COUNTED else "")


def amount(value: float) -> str:
    """Format a number with at most two decimals."""
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def span(seconds: float | None) -> str:
    """Format a duration with a suitable unit."""
    if seconds is None:
        return "–"
    value, unit, name = next((seconds / unit, unit, name) for below, unit, name in _STEPS if seconds < below)
    return f"{value:.1f} {name}" if value < 10 and unit > 1 else f"{value:.0f} {name}"


def moment(milliseconds: int | None) -> Markup | str:
    """Format a time relative to now, with the exact time as a tooltip."""
    if milliseconds is None:
        return "–"
    exact = datetime.fromtimestamp(milliseconds / 1000, UTC)
    away = time() - milliseconds / 1000
    text = "now" if abs(away) < 1 else f"{span(away)} ago" if away > 0 else f"in {span(-away)}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact.isoformat(), f"{exact:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03d} UTC", text
    )


def clock(milliseconds: int | None, precise: bool = True) -> Markup | str:
    """Format a time as date and clock time."""
    if milliseconds is None:
        return "–"
    exact = datetime.fromtimestamp(milliseconds / 1000, UTC)
    text = f"{exact:%Y-%m-%d %H:%M:%S}" + (f".{milliseconds % 1000:03d}" if precise else "")
    return Markup('<time datetime="{}">{}</time>').format(exact.isoformat(), text)


def last_line(text: str | None) -> str:
    """Return the most telling line of an error: the last of a traceback."""
    lines = (text or "").strip().splitlines()
    return lines[-1] if lines else ""


def setting(name: str, value: Any) -> str:
    """Format a setting."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if name in _LENGTHS:
        return span(value)
    if isinstance(value, Delays):
        return f"after {', '.join(map(span, value.seconds))}"
    if isinstance(value, Exponential | Linear | Fixed):
        return f"{type(value).__name__.lower()}, from {span(value.base)}, at most {span(value.cap)}"
    return amount(value) if isinstance(value, int | float) else str(value)


def spark(values: Sequence[float], label: str) -> Markup:
    """Return a sparkline, the latest value at the right; empty for fewer than two values."""
    if len(values) < 2:
        return Markup('<span class="spark" aria-hidden="true"></span>')
    most, step = max(values) or 1, _WIDTH / (len(values) - 1)
    heights = [_HEIGHT - 2 - (_HEIGHT - 4) * value / most for value in values]
    line = " ".join([f"{place * step:.1f},{height:.1f}" for place, height in enumerate(heights)])
    return Markup(
        '<svg class="spark" viewBox="0 0 {w} {h}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        '<polygon points="0,{h} {line} {w},{h}"/><polyline points="{line}" vector-effect="non-scaling-stroke"/></svg>'
    ).format(w=_WIDTH, h=_HEIGHT, line=line, label=f"{label}: {values[0]:,} to {values[-1]:,}, at most {max(values):,}")


def json(value: Any) -> str:
    """Format a value as JSON with indentation."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode()


HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
"""The headers of pages: they load nothing from elsewhere, run no inline script, and cannot be framed."""

_environment = Environment(
    loader=PackageLoader("eventkit.http.dashboard"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters.update({it.__name__: it for it in (visible, number, amount, span, moment, clock, last_line, json)})
_environment.globals.update(spark=spark)


def template(name: str) -> Template:
    """Return a template."""
    return _environment.get_template(f"{name}.html")


@cache
def static(name: str) -> tuple[bytes, str]:
    """Return a static file and a hash of its content."""
    content = files("eventkit.http.dashboard").joinpath("static", name).read_bytes()
    return content, sha256(content).hexdigest()[:12]


def base_of(request: HTTPRequest) -> str:
    """Return the path under which the application is mounted."""
    return str(request.scope.get("root_path") or "").rstrip("/")


def guard_of(request: HTTPRequest) -> Any:
    """Return the guard of the service; None if there is none."""
    return request.app.state.get("guard")


async def may_act(request: HTTPRequest) -> bool:
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


def cookie(request: HTTPRequest, name: str, value: str) -> Cookie:
    """Return a cookie for a day; an empty value deletes it."""
    public = request.app.state.context.settings.public_origin
    # A proxy may have decrypted the request.
    browsed = request.headers.get("origin") or (public if is_at(public, request) else f"{request.scope['scheme']}:")
    secure = browsed.startswith("https:")
    age = SESSION_LASTS if value else 0
    return Cookie(key=name, value=value, max_age=age, path="/", httponly=True, samesite="strict", secure=secure)


def render(
    request: HTTPRequest, name: str, title: str, status: int = 200, *, may_act: bool | None = None, **shown: Any
) -> Response[Any]:
    """Render a page; without *may_act*, which is not known on login and error pages, it does not follow updates."""
    base = base_of(request)

    def link(path: str, **query: Any) -> str:
        given = {key: value for key, value in query.items() if value is not None}
        return f"{base}{path}" + (f"?{urlencode(given)}" if given else "")

    known = request.cookies.get(TOKEN, "")
    token = known if len(known) == 43 else secrets.token_urlsafe(32)
    text = template("base").render(
        link=link,
        title=title,
        here=name,
        csrf=token,
        may_act=may_act,
        signed_in=COOKIE in request.cookies,
        keyed=guard_of(request) is not None,
        said=request.query_params.get("said"),
        what=request.query_params.get("what", ""),
        static=lambda file: link(f"/dashboard/static/{file}", v=static(file)[1]),
        **shown,
    )
    cookies = [] if token == known else [cookie(request, TOKEN, token)]
    return Response(text, status_code=status, media_type="text/html", headers=HEADERS, cookies=cookies)


def error_page(request: HTTPRequest, error: Exception) -> Response[Any]:
    """Return an error page, or a redirect to the login page."""
    problem, _ = problem_of(error)
    if problem.status == 401 and request.method == "GET":
        query = request.scope["query_string"].decode("latin-1")
        wanted = urlencode({"next": request.scope["path"] + (f"?{query}" if query else "")})
        return Redirect(f"{base_of(request)}/dashboard/login?{wanted}", status_code=303)
    return render(request, "problem", "Error", problem.status, problem=problem)
