"""Health checks, metrics, and the OpenAPI document of the routes.

The document's schemas are msgspec's, which also decodes bodies and encodes answers by the same types; `CONDITIONS` has
the checks between two fields, which types cannot express.
"""

import asyncio
import inspect
import re
from collections.abc import Iterable
from functools import lru_cache
from time import monotonic
from typing import Any, Literal, get_args, get_origin
from zoneinfo import available_timezones

import msgspec
from litestar import Response

from .. import __version__
from ..errors import EventkitError
from ..operations.channel import NotificationsAhead
from .bodies import JSON, NDJSON, PROBLEM, Problem, Refusal, title_of
from .dashboard import template
from .routing import ACCESS, DECLARED, Access, Declared, HTTPRequest, Parameter, Route, problem_of, route
from .service import ServiceContext

_CHANNEL = "eventkit:ready"

_PATIENCE = 2.0  # The maximum seconds until a commit must be noticed.
_GOOD_FOR = 1.0  # Seconds for which the result of a check is reused.


class Alive(msgspec.Struct, frozen=True):
    """The process responds."""

    status: str = "ok"


class Ready(msgspec.Struct, frozen=True):
    """The database accepts writes; *wake_ms* is the time until a commit was noticed."""

    status: str
    wake_ms: float


class Health(msgspec.Struct, frozen=True):
    """The state of the service: its load, refused requests, and the latency of the database."""

    status: str
    wake_ms: float
    commit_ms: float
    wal_bytes: int
    writing: int
    listeners: int
    listeners_dropped: int
    refused: int


@route("GET", "/healthz", "open")
async def healthz() -> Alive:
    """Check that the process responds, without the database."""
    return Alive()


@route("GET", "/readyz", "open")
async def readyz(service: ServiceContext) -> Ready:
    """Check that the database accepts writes and signals commits; 503 if not, or during shutdown."""
    return Ready("ok", await _wake_ms(service))


@route("GET", "/health", "open")
async def health(service: ServiceContext) -> Health:
    """Return the state of the service; 503 if it is not ready."""
    wake, load = await _wake_ms(service), service.pressure
    commit = round(1000 * load.commit, 1)
    return Health("ok", wake, commit, load.wal, load.writing, service.listeners, service.dropped, load.refused)


async def _wake_ms(service: ServiceContext) -> float:
    """Return the milliseconds from a commit to a listener; requests within a second share one check."""
    if service.connection.closing:
        raise Refusal(503, "ending", "the service is shutting down: retry with another instance")
    checked = service.readiness
    if checked is None or (checked.done() and monotonic() - checked.result()[0] > _GOOD_FOR):
        checked = service.readiness = asyncio.create_task(_checked(service))
    _, found = await asyncio.shield(checked)
    if isinstance(found, tuple):
        raise Refusal(503, *found)
    return round(1000 * found, 1)


async def _checked(service: ServiceContext) -> tuple[float, float | tuple[str, str]]:
    """Return the time at which the check ended, and the seconds, or the code and the detail of a refusal."""
    found: float | tuple[str, str]
    try:
        async with asyncio.timeout(2 * _PATIENCE):
            found = await _woken(service)
    except TimeoutError:
        found = "not_ready", f"the database did not respond within {2 * _PATIENCE:g} s"
    except EventkitError as error:
        found = "not_ready", problem_of(error)[0].detail
    return monotonic(), found


async def _woken(service: ServiceContext) -> float | tuple[str, str]:
    channel = service.channel(_CHANNEL)
    before = await channel.notify(msgspec.Raw(b"null"))
    probe = NotificationsAhead((_CHANNEL,), before)
    sleeping = asyncio.ensure_future(service.connection.sleep(probe, _PATIENCE))
    await asyncio.sleep(0.01)
    began = monotonic()
    await channel.notify(msgspec.Raw(b"null"))
    woken, took = await sleeping, monotonic() - began
    await channel.prune(keep_count=0)
    if not woken:
        return "not_woken", "commits are not noticed: behind a pooler, add ?listen_url= to the URL"
    return took


@route("GET", "/metrics", "consume", media=("text/plain", JSON))
async def metrics(request: HTTPRequest, service: ServiceContext) -> Response[Any]:
    """Return all metrics in Prometheus' text format, or as JSON with ``Accept: application/json``."""
    if "application/json" in request.headers.get("accept", ""):
        return await _as_json(service)
    await service.watch.sample()
    text = "".join(registry.render() for registry in service.registries)
    return Response(text, media_type="text/plain; version=0.0.4")


@route("GET", "/metrics.json", "consume")
async def metrics_json(service: ServiceContext) -> Response[Any]:
    """Return all metrics as JSON: type, help and samples of each."""
    return await _as_json(service)


async def _as_json(service: ServiceContext) -> Response[Any]:
    await service.watch.sample()
    shown = {
        metric.name: {
            "type": metric.kind,
            "help": metric.help,
            "samples": [{"name": name, "labels": labels, "value": value} for name, labels, value in metric.samples()],
        }
        for registry in service.registries
        for metric in registry
    }
    return Response(shown, media_type=JSON)


_RETRY_AFTER = {"Retry-After": {"description": "Seconds until the next attempt.", "schema": {"type": "integer"}}}
_SECURITY = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key of `eventkit key add`, with the scopes that an operation names.  As long as no key was "
        "ever added, a service that listens only on loopback needs none.",
    }
}


def _given(names: tuple[str, str], how: Literal["anyOf", "oneOf"]) -> dict[str, Any]:
    """Return the condition that at least one field, or exactly one, is there and not null."""
    return {how: [{"required": [name], "properties": {name: {"type": "number"}}} for name in names]}


_TIMEOUT = {"dependentRequired": {"timeout_ms": ["callback_url"]}}

_DUE = {"not": {"required": ["delay_ms", "run_at"]}}

CONDITIONS: dict[str, dict[str, Any]] = {
    "NewTask": _DUE,
    "FollowingTask": _DUE,
    "ScheduleInput": _TIMEOUT,
    "ScheduleChanges": _TIMEOUT,
    "Pruning": _given(("older_than_s", "keep_count"), "anyOf"),
    "ChannelPruning": _given(("older_than_s", "keep_count"), "anyOf"),
    "Place": _given(("offset", "at_ms"), "oneOf"),
}
"""The conditions of types on several of their fields."""


def _field(low: int, high: int, names: str = "", ranges: bool = True) -> str:
    """Return the pattern of a field of a cron expression: ``*``, each n-th, a list, or an ascending range."""
    numbers = [str(number) for number in range(low, high + 1)]
    one = f"(?:{'|'.join([*numbers, *names.split(), *names.upper().split()])})"
    spans = [f"{first}-(?:{'|'.join(numbers[at:])})" for at, first in enumerate(numbers)] if ranges else []
    return f"(?:{'|'.join(['[*](?:/[1-9])?', f'{one}(?:,{one})*', *spans])})"


def _times() -> str:
    """Return a pattern of times that `eventkit.cron` accepts; it also accepts rarer forms, as lists of ranges."""
    often, hour = _field(0, 59, ranges=False), _field(0, 23)
    month = _field(1, 12, "jan feb mar apr may jun jul aug sep oct nov dec")
    weekday = f"(?:{_field(0, 7, 'mon tue wed thu fri sat sun')}|mon-fri|MON-FRI)"
    # Not every month has a 30th, and an expression that never fires is refused.
    date = f"(?:{_field(1, 29)} {month}|{_field(1, 31)} [*])"
    every = "@every (?:[1-9][0-9]{0,3}[smhd]){1,3}"
    alias = "@(?:yearly|annually|monthly|weekly|daily|midnight|hourly)"
    return f"^(?:{alias}|{every}|(?:{often} )?{often} {hour} {date} {weekday})$"


class _Schemas:
    """The schemas of types that are known only when all types are."""

    def __init__(self) -> None:
        self._wanted: list[tuple[dict[str, Any], Any]] = []

    def of(self, type: Any) -> dict[str, Any]:
        """Return a schema that `components` fills in."""
        if type is Any:
            return {}
        self._wanted.append(({}, type))
        return self._wanted[-1][0]

    def components(self) -> dict[str, Any]:
        """Return the schemas to which the others refer."""
        types = [type for _, type in self._wanted]
        found, named = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
        for (schema, _), filled in zip(self._wanted, found, strict=True):
            schema |= filled
        for name, condition in CONDITIONS.items():
            named[name] |= condition
        # An enumeration would give each zone a name in the generated client, and some of those are equal.
        zones = "|".join(sorted(available_timezones())).replace("+", "[+]")
        return named | {
            "TimeZone": {"type": "string", "pattern": f"^(?:{zones})$", "description": "An IANA time zone."},
            "When": {"type": "string", "pattern": _times(), "description": "A cron expression, or an interval."},
        }


@lru_cache(4)
def written(routes: tuple[Route, ...]) -> bytes:
    """Return the document of some routes as JSON."""
    return msgspec.json.encode(document(routes))


def document(routes: tuple[Route, ...]) -> dict[str, Any]:
    """Return the document of some routes."""
    schemas, paths = _Schemas(), dict[str, dict[str, Any]]()
    for one in routes:
        if one.include_in_schema is not False:
            [path], [method] = one.paths, one.http_methods
            paths.setdefault(re.sub(r":\w+}", "}", path), {})[method.lower()] = _operation(one, path, schemas)
    found = {
        "openapi": "3.1.0",
        "info": {
            "title": "eventkit",
            "version": __version__,
            "description": "Durable streams, a task queue and notifications in your own database.",
        },
        "servers": [{"url": "."}],
        "paths": paths,
        "components": {"schemas": schemas.components(), "securitySchemes": _SECURITY},
    }
    _set_sizes(found)
    return found


def _set_sizes(part: Any) -> None:
    """Set the format of all numbers, without which some generators use 32 bits."""
    if isinstance(part, dict):
        if (format := {"integer": "int64", "number": "double"}.get(str(part.get("type")))) is not None:
            part["format"] = format
        part = part.values()
    if not isinstance(part, str):
        for one in part if isinstance(part, Iterable) else ():
            _set_sizes(one)


def _operation(route: Route, path: str, schemas: _Schemas) -> dict[str, Any]:
    declared: Declared = route.opt[DECLARED]
    summary, _, more = (inspect.getdoc(declared.function) or "").partition("\n\n")
    found: dict[str, Any] = {
        "tags": [path.split("/")[1] or "service"],
        "summary": " ".join(summary.split()),
        "operationId": declared.function.__name__ + ("_of_sqew" if route.deprecated else ""),
        "parameters": [_parameter(one, schemas) for one in declared.parameters.values()],
        "security": _security(route.opt[ACCESS]),
        "responses": {str(status): _answer(status, declared, schemas) for status in declared.statuses}
        | {str(status): _refusal(status, schemas) for status in declared.problems},
    }
    if declared.body is not None:
        content = {JSON: {"schema": schemas.of(declared.body)}} | ({NDJSON: {"schema": {}}} if declared.lines else {})
        found["requestBody"] = {"required": True, "content": content}
    optional: dict[str, Any] = {"description": more, "deprecated": bool(route.deprecated)}
    return found | {name: value for name, value in optional.items() if value}


def _security(access: Access) -> list[dict[str, list[str]]]:
    """Return the scope that a key needs, and that a service without keys needs none."""
    if access.scope == "open":
        return []
    return [{"key": [access.scope if access.on is None else f"{access.scope}:{access.on}"]}, {}]


def _parameter(one: Parameter, schemas: _Schemas) -> dict[str, Any]:
    schema = schemas.of(one.type)
    if one.default is not None and not one.required:
        schema["default"] = one.default
    shown = {"name": one.name, "in": one.place, "required": one.required, "schema": schema}
    return shown | ({"description": one.description} if one.description else {})


def _answer(status: int, declared: Declared, schemas: _Schemas) -> dict[str, Any]:
    described = {"description": "Nothing new" if status != declared.statuses[0] else title_of(status)}
    if status == 204:
        return described
    type = declared.answer
    if get_origin(type) == Response:
        [type] = get_args(type)
    content = {media: {"schema": schemas.of(str if media.startswith("text/") else type)} for media in declared.media}
    return described | {"content": content}


def _refusal(status: int, schemas: _Schemas) -> dict[str, Any]:
    content = {PROBLEM: {"schema": schemas.of(Problem)}}
    headers = {"headers": _RETRY_AFTER} if status in (429, 503) else {}
    return {"description": title_of(status), "content": content, **headers}


@route("GET", "/openapi.json", "open", include_in_schema=False)
async def openapi(request: HTTPRequest) -> Response[bytes]:
    """Return the OpenAPI document."""
    return Response(written(request.app.state.routes), media_type=JSON)


@route("GET", "/docs", "open", include_in_schema=False)
async def docs(request: HTTPRequest) -> Response[str]:
    """Return the document as a page."""
    return Response(_page(request.app.state.routes), media_type="text/html")


@lru_cache(4)
def _page(routes: tuple[Route, ...]) -> str:
    found = document(routes)
    parts: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            if not operation.get("deprecated"):
                parts.setdefault(operation["tags"][0], []).append((path, method, operation))
    schemas = sorted(found["components"]["schemas"].items())
    return template("docs").render(description=found["info"]["description"], parts=parts, schemas=schemas)
