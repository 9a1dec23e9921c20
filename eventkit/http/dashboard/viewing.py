"""From what is to be shown to a page: the templates, and the headers that let a browser do nothing else."""

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from litestar import Request, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from ..problems import Refusal
from . import access
from .showing import FILTERS, spark

ASKED = "x-eventkit-part"
"""The header by which the script asks for a page that it has already."""

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
"""What each page comes with: nothing is loaded from elsewhere, no script stands in a page, and nobody frames it."""

STATIC = {
    "dashboard.css": "text/css; charset=utf-8",
    "dashboard.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}

SAID = {
    "paused": "{} is paused: it accepts tasks and hands out none.",
    "resumed": "{} is resumed.",
    "requeued": "{} back in the queue.",
    "edited": "{} back in the queue, with the new payload.",
    "purged": "{} deleted.",
    "cancelled": "{} cancelled.",
    "gone": "There was nothing left to do: somebody else was faster.",
}
"""What an action has come to, by the word that the address has for it."""

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
    """A file that pages load, and what tells it from any other version of it."""
    content = files("eventkit.http.dashboard").joinpath("static", name).read_bytes()
    return content, sha256(content).hexdigest()[:12]


def base_of(request: Request[Any, Any, Any]) -> str:
    """Where the application is mounted."""
    return str(request.scope.get("root_path") or "").rstrip("/")


def document(payload: Any) -> tuple[str, int]:
    """JSON as it is read best, or the beginning of it where it is long; and how many characters it has."""
    raw = bytes(payload) if isinstance(payload, msgspec.Raw) else msgspec.json.encode(payload)
    text = msgspec.json.format(raw.decode(), indent=2)
    return text, len(text)


async def page(
    request: Request[Any, Any, Any], template: str, title: str, status: int = 200, **shown: Any
) -> Response[Any]:
    """A page with what is *shown* on it, and with buttons for whoever may act."""
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
    """A page with what is *shown* on it; one that nothing is known for of who looks is not told to follow anything."""
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
        said=SAID[said].format(what) if said in SAID else None,
        static=lambda file: link(f"/dashboard/static/{file}", v=_static(file)[1]),
        **shown,
    )
    cookies = [access.cookie(request, access.TOKEN, token)] if fresh else []
    return Response(text, status_code=status, media_type="text/html; charset=utf-8", headers=HEADERS, cookies=cookies)


@get("/dashboard/static/{name:str}")
async def static(name: FromPath[str]) -> Response[bytes]:
    """A file that pages load; its address changes with it, so it may be kept."""
    if name not in STATIC:
        raise Refusal(404, "not_found", f"there is no file {name!r}")
    kept = {"cache-control": "public, max-age=31536000, immutable", "x-content-type-options": "nosniff"}
    return Response(_static(name)[0], media_type=STATIC[name], headers=kept)


routes: list[HTTPRouteHandler] = [static]
