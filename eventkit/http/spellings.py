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
    return [
        Route(path, http_method=method, status_code=200, opt=ours.opt, deprecated=True)(ours.fn)
        for (method, path), ours in SPELLINGS.items()
    ]
