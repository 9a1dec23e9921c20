"""Health checks, metrics, and the OpenAPI document."""

import asyncio
from functools import lru_cache
from html import escape
from time import monotonic
from typing import Any

import msgspec
from litestar import Litestar, Request, Response
from litestar.openapi import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin

from ..errors import EventkitError
from ..operations.channel import NotificationsAhead
from .requests import Refusal, problem_of
from .routing import route
from .service import Service, ServiceContext

_CHANNEL = "eventkit:ready"
_PATIENCE = 2.0
"""The maximum seconds until a commit must be noticed."""


_GOOD_FOR = 1.0
"""Seconds for which the result of a check is reused."""


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


@route("GET", "/healthz", scope="open")
async def healthz() -> Alive:
    """Check that the process responds, without the database."""
    return Alive()


@route("GET", "/readyz", scope="open")
async def readyz(service: Service) -> Ready:
    """Check that the database accepts writes and signals commits; 503 if not, or during shutdown."""
    return Ready("ok", round(1000 * await _wake(service), 1))


@route("GET", "/health", scope="open")
async def health(service: Service) -> Health:
    """Return the state of the service; 503 if it is not ready."""
    wake, pressure = await _wake(service), service.pressure
    return Health(
        "ok",
        round(1000 * wake, 1),
        round(1000 * pressure.commit, 1),
        pressure.wal,
        pressure.writing,
        service.listeners,
        service.dropped,
        pressure.refused,
    )


async def _wake(service: ServiceContext) -> float:
    """Return the seconds from a commit to a listener; requests within a second share one check."""
    if service.closing:
        raise Refusal(503, "ending", "the service is shutting down: retry with another instance")
    checked = service.readiness
    if checked is None or (checked.done() and monotonic() - checked.result()[0] > _GOOD_FOR):
        checked = service.readiness = asyncio.create_task(_checked(service))
    _, found = await asyncio.shield(checked)
    if isinstance(found, Refusal):
        problem = found.problem
        raise Refusal(problem.status, problem.code, problem.error)
    return found


async def _checked(service: ServiceContext) -> tuple[float, float | Refusal]:
    """Return the time at which the check ended, and the seconds or the refusal."""
    try:
        async with asyncio.timeout(2 * _PATIENCE):
            found = await _woken(service)
    except TimeoutError:
        found = Refusal(503, "not_ready", f"the database did not respond within {2 * _PATIENCE:g} s")
    except EventkitError as error:
        found = Refusal(503, "not_ready", problem_of(error)[0].error)
    return monotonic(), found


async def _woken(service: ServiceContext) -> float | Refusal:
    channel = service.channel(_CHANNEL)
    before = await channel.notify(msgspec.Raw(b"null"))
    sleeping = asyncio.ensure_future(service.sleep(NotificationsAhead((_CHANNEL,), before), _PATIENCE))
    await asyncio.sleep(0.01)
    began = monotonic()
    await channel.notify(msgspec.Raw(b"null"))
    woken, took = await sleeping, monotonic() - began
    await channel.prune(max_keep=0)
    if not woken:
        return Refusal(503, "not_woken", "commits are not noticed: behind a pooler, add ?listen_url= to the URL")
    return took


@route("GET", "/metrics", scope="consume", responses={200: ResponseSpec(str, media_type="text/plain")})
async def metrics(request: Request[Any, Any, Any], service: Service) -> Response[str]:
    """Return all metrics in Prometheus' text format, or as JSON with ``Accept: application/json``."""
    if "application/json" in request.headers.get("accept", ""):
        return await _as_json(service)
    await service.watch.sample()
    text = "".join(registry.render() for registry in service.registries)
    return Response(text, media_type="text/plain; version=0.0.4")


@route("GET", "/metrics.json", scope="consume")
async def metrics_json(service: Service) -> Response[Any]:
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
    return Response(shown, media_type="application/json")


_STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
summary { cursor: pointer; padding: .3rem 0 }
code, pre { font-family: ui-monospace, monospace; font-size: .9em }
pre { overflow: auto; padding: .5rem; border: 1px solid color-mix(in srgb, currentColor 25%, transparent) }
.method { display: inline-block; min-width: 4.5rem; font-weight: bold }
td { padding: .1rem 1rem .1rem 0; vertical-align: top }
"""


def document() -> OpenAPIConfig:
    """Return the settings of the OpenAPI document."""
    return OpenAPIConfig(
        title="eventkit",
        version="1",
        description="Durable streams, a task queue and notifications in your own database.",
        path="/schema",
        render_plugins=[JsonRenderPlugin()],
    )


@route("GET", "/openapi.json", scope="open", include_in_schema=False)
async def openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Return the OpenAPI document."""
    return Response(_written(request.app), media_type="application/json")


@route("GET", "/docs", scope="open", include_in_schema=False)
async def docs(request: Request[Any, Any, Any]) -> Response[str]:
    """Return the document as a page."""
    return Response(_page(request.app), media_type="text/html; charset=utf-8")


@lru_cache(4)
def _written(application: Litestar) -> bytes:
    return msgspec.json.encode(application.openapi_schema.to_schema())


@lru_cache(4)
def _page(application: Litestar) -> str:
    found = application.openapi_schema.to_schema()
    parts: dict[str, list[str]] = {}
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            if "operationId" in operation:
                parts.setdefault(operation["tags"][0], []).append(_operation(path, method, operation))
    sections = "".join(f"<h2>{escape(tag)}</h2>{''.join(shown)}" for tag, shown in parts.items())
    types = "".join(
        f"<details id='{escape(name)}'><summary><code>{escape(name)}</code></summary>{_json(schema)}</details>"
        for name, schema in sorted(found["components"]["schemas"].items())
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>eventkit</title><style>{_STYLE}</style>"
        f"<h1>eventkit</h1><p>{escape(found['info']['description'])} "
        f"The <a href=openapi.json>OpenAPI document</a> is for programs.</p>{sections}<h2>types</h2>{types}</html>"
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(one['name'])}</code><td>{escape(one['in'])}"
        f"<td>{escape(one.get('description') or '')}{_json(one['schema'])}"
        for one in operation.get("parameters", ())
    )
    body = operation.get("requestBody", {}).get("content", {})
    sent = "".join(f"<h4>{escape(media)}</h4>{_json(one['schema'])}" for media, one in body.items())
    answers = "".join(
        f"<tr><td><code>{escape(status)}</code><td>{escape(one['description'])}"
        f"<td>{''.join(_json(kind['schema']) for kind in one.get('content', {}).values()) if status < '3' else ''}"
        for status, one in sorted(operation["responses"].items())
    )
    return (
        f"<details><summary><span class=method>{method.upper()}</span> <code>{escape(path)}</code> "
        f"{escape(operation.get('summary') or '')}</summary>"
        f"<p>{escape(operation.get('description') or '')}</p>"
        f"<table>{rows}</table>{sent}<table>{answers}</table></details>"
    )


def _json(schema: Any) -> str:
    return f"<pre>{escape(msgspec.json.format(msgspec.json.encode(schema), indent=1).decode())}</pre>"


routes = [
    healthz,
    readyz,
    health,
    metrics,
    metrics_json,
    openapi,
    docs,
]
