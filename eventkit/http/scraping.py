"""The metrics of the service, and of what runs beside it in its process, for whoever comes to read them."""

from typing import Any

from litestar import Request, Response
from litestar.openapi.datastructures import ResponseSpec

from .routing import route
from .service import Desk, Service


@route("GET", "/metrics", scope="consume", responses={200: ResponseSpec(str, media_type="text/plain")})
async def metrics(request: Request[Any, Any, Any], service: Service) -> Response[str]:
    """What the service counts: as Prometheus' text, or as JSON for whoever asks for that."""
    if "application/json" in request.headers.get("accept", ""):
        return await _as_json(service)
    await service.watch.look()
    text = "".join(registry.render() for registry in service.registries)
    return Response(text, media_type="text/plain; version=0.0.4")


@route("GET", "/metrics.json", scope="consume")
async def metrics_json(service: Service) -> Response[Any]:
    """What the service counts, as JSON: of each metric its type, what it means, and its samples."""
    return await _as_json(service)


async def _as_json(service: Desk) -> Response[Any]:
    await service.watch.look()
    told = {
        metric.name: {
            "type": metric.kind,
            "help": metric.help,
            "samples": [{"name": name, "labels": labels, "value": value} for name, labels, value in metric.samples()],
        }
        for registry in service.registries
        for metric in registry
    }
    return Response(told, media_type="application/json")


routes = [metrics, metrics_json]
