"""Templates, their filters, and the headers of pages."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from time import time
from typing import Any
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from litestar import Request, Response, get
from litestar.params import FromPath
from markupsafe import Markup

from ...operations.queue import MOST_COUNTED
from ...retry import Delays, Exponential, Fixed, Linear
from ..requests import Refusal
from . import access

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Invisible characters, and those that change the direction of text."""

_STEPS = ((1, 0.001, "ms"), (60, 1, "s"), (3600, 60, "min"), (86_400, 3600, "h"), (float("inf"), 86_400, "d"))

_LENGTHS = {"lease", "keep_done", "keep_dead", "key_ttl"}
"""Settings in seconds."""

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
    for below, unit, name in _STEPS:
        if seconds < below:
            value = seconds / unit
            return f"{value:.1f} {name}" if value < 10 and unit > 1 else f"{value:.0f} {name}"
    raise AssertionError("unreachable: the last step is infinite")


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
    most = max(values) or 1
    step = _WIDTH / (len(values) - 1)
    points = [
        f"{place * step:.1f},{_HEIGHT - 2 - (_HEIGHT - 4) * value / most:.1f}" for place, value in enumerate(values)
    ]
    line = " ".join(points)
    return Markup(
        '<svg class="spark" viewBox="0 0 {w} {h}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        '<polygon points="0,{h} {line} {w},{h}"/><polyline points="{line}" vector-effect="non-scaling-stroke"/></svg>'
    ).format(w=_WIDTH, h=_HEIGHT, line=line, label=f"{label}: {values[0]:,} to {values[-1]:,}, at most {max(values):,}")


FILTERS = {
    "visible": visible,
    "number": number,
    "amount": amount,
    "span": span,
    "moment": moment,
    "clock": clock,
    "last_line": last_line,
}


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

STATIC = {
    "dashboard.css": "text/css; charset=utf-8",
    "dashboard.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}

NOTICES = {
    "paused": "{} is paused: workers get no tasks.",
    "resumed": "{} is resumed.",
    "requeued": "{} back in the queue.",
    "edited": "{} back in the queue, with the new payload.",
    "purged": "{} deleted.",
    "cancelled": "{} cancelled.",
    "gone": "Nothing to do: it was already changed.",
}
"""Notices of finished actions, by the word in the URL."""

_environment = Environment(
    loader=PackageLoader("eventkit.http.dashboard"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters.update(FILTERS)
_environment.globals.update(spark=spark)


@cache
def _static(name: str) -> tuple[bytes, str]:
    """Return a static file and a hash of its content."""
    content = files("eventkit.http.dashboard").joinpath("static", name).read_bytes()
    return content, sha256(content).hexdigest()[:12]


def base_of(request: Request[Any, Any, Any]) -> str:
    """Return the path under which the application is mounted."""
    return str(request.scope.get("root_path") or "").rstrip("/")


def document(payload: Any) -> tuple[str, int]:
    """Format JSON with indentation; return it with its length."""
    raw = bytes(payload) if isinstance(payload, msgspec.Raw) else msgspec.json.encode(payload)
    text = msgspec.json.format(raw.decode(), indent=2)
    return text, len(text)


async def page(
    request: Request[Any, Any, Any], template: str, title: str, status: int = 200, **shown: Any
) -> Response[Any]:
    """Render a page, with buttons if the caller may act."""
    return render(request, template, title, status, may_act=await access.may_act(request), **shown)


def render(
    request: Request[Any, Any, Any],
    template: str,
    title: str,
    status: int = 200,
    *,
    may_act: bool | None = None,
    **shown: Any,
) -> Response[Any]:
    """Render a page; without *may_act*, which is not known on login and error pages, it does not follow updates."""
    base = base_of(request)

    def link(path: str, **query: Any) -> str:
        given = {key: value for key, value in query.items() if value is not None}
        return f"{base}{path}" + (f"?{urlencode(given)}" if given else "")

    token, fresh = access.token(request)
    said, what = request.query_params.get("said", ""), request.query_params.get("what", "")
    text = _environment.get_template(f"{template}.html").render(
        link=link,
        title=title,
        here=template,
        csrf=token,
        may_act=may_act,
        signed_in=access.COOKIE in request.cookies,
        keyed=access.guard_of(request) is not None,
        said=NOTICES[said].format(what) if said in NOTICES else None,
        static=lambda file: link(f"/dashboard/static/{file}", v=_static(file)[1]),
        **shown,
    )
    cookies = [access.cookie(request, access.TOKEN, token)] if fresh else []
    return Response(text, status_code=status, media_type="text/html; charset=utf-8", headers=HEADERS, cookies=cookies)


@get("/dashboard/static/{name:str}")
async def static(name: FromPath[str]) -> Response[bytes]:
    """Return a static file, which browsers may cache because its URL has its hash."""
    if name not in STATIC:
        raise Refusal(404, "not_found", f"there is no file {name!r}")
    kept = {"cache-control": "public, max-age=31536000, immutable", "x-content-type-options": "nosniff"}
    return Response(_static(name)[0], media_type=STATIC[name], headers=kept)


routes = [
    static,
]
