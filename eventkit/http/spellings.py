"""Sqew's spelling of routes, deprecated in the OpenAPI document; Sqew's other routes are spelled like ours."""

from collections.abc import Mapping
from typing import Any

from litestar.handlers import HTTPRouteHandler

from . import queues, tasks
from .routing import Route

SPELLINGS: Mapping[tuple[Any, str], HTTPRouteHandler] = {
    ("POST", "/queues/{queue:str}/messages"): tasks.add_tasks,
    ("GET", "/queues/{queue:str}/messages"): tasks.peek,
    ("DELETE", "/queues/{queue:str}/messages"): queues.purge_queue,
}
"""Our route for each method and path."""


def deprecated_routes() -> list[HTTPRouteHandler]:
    """Return a route for each spelling."""
    routes, names = [], ("status_code", "opt", "dto", "response_class")
    for (method, path), ours in SPELLINGS.items():
        same: dict[str, Any] = {name: getattr(ours, name) for name in names}
        id = f"{ours.operation_id}_of_sqew"
        routes.append(Route(path, http_method=method, operation_id=id, deprecated=True, **same)(ours.fn))
    return routes
