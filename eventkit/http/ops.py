"""Health checks, metrics, and the OpenAPI document."""

import asyncio
from functools import lru_cache
from time import monotonic
from typing import Any

import msgspec
from litestar import Litestar, Response
from litestar.openapi import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin

from ..errors import EventkitError
from ..operations.channel import NotificationsAhead
from .dashboard import template
from .routing import HTTPRequest, Refusal, problem_of, route
from .service import Service, ServiceContext

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
async def readyz(service: Service) -> Ready:
    """Check that the database accepts writes and signals commits; 503 if not, or during shutdown."""
    return Ready("ok", await _wake_ms(service))


@route("GET", "/health", "open")
async def health(service: Service) -> Health:
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
    if isinstance(found, Refusal):
        problem = found.problem
        raise Refusal(problem.status, problem.code, problem.error)
    return round(1000 * found, 1)


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
    probe = NotificationsAhead((_CHANNEL,), before)
    sleeping = asyncio.ensure_future(service.connection.sleep(probe, _PATIENCE))
    await asyncio.sleep(0.01)
    began = monotonic()
    await channel.notify(msgspec.Raw(b"null"))
    woken, took = await sleeping, monotonic() - began
    await channel.prune(keep_count=0)
    if not woken:
        return Refusal(503, "not_woken", "commits are not noticed: behind a pooler, add ?listen_url= to the URL")
    return took


@route("GET", "/metrics", "consume", responses={200: ResponseSpec(str, media_type="text/plain")})
async def metrics(request: HTTPRequest, service: Service) -> Response[str]:
    """Return all metrics in Prometheus' text format, or as JSON with ``Accept: application/json``."""
    if "application/json" in request.headers.get("accept", ""):
        return await _as_json(service)
    await service.watch.sample()
    text = "".join(registry.render() for registry in service.registries)
    return Response(text, media_type="text/plain; version=0.0.4")


@route("GET", "/metrics.json", "consume")
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


def document() -> OpenAPIConfig:
    """Return the settings of the OpenAPI document."""
    return OpenAPIConfig(
        title="eventkit",
        version="1",
        description="Durable streams, a task queue and notifications in your own database.",
        path="/schema",
        render_plugins=[JsonRenderPlugin()],
    )


@route("GET", "/openapi.json", "open", include_in_schema=False)
async def openapi(request: HTTPRequest) -> Response[bytes]:
    """Return the OpenAPI document."""
    return Response(_written(request.app), media_type="application/json")


@route("GET", "/docs", "open", include_in_schema=False)
async def docs(request: HTTPRequest) -> Response[str]:
    """Return the document as a page."""
    return Response(_page(request.app), media_type="text/html; charset=utf-8")


@lru_cache(4)
def _written(application: Litestar) -> bytes:
    return msgspec.json.encode(application.openapi_schema.to_schema())


@lru_cache(4)
def _page(application: Litestar) -> str:
    found = application.openapi_schema.to_schema()
    parts: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            if "operationId" in operation and not operation.get("deprecated"):
                parts.setdefault(operation["tags"][0], []).append((path, method, operation))
    schemas = sorted(found["components"]["schemas"].items())
    return template("docs").render(description=found["info"]["description"], parts=parts, schemas=schemas)
