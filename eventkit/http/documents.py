"""What the service says of itself: the OpenAPI document, and a page of it with nothing fetched from elsewhere."""

from functools import lru_cache
from html import escape
from typing import Any

import msgspec
from litestar import Litestar, Request, Response
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from .routing import route

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
    """What the framework goes by when it writes the document."""
    return OpenAPIConfig(
        title="eventkit",
        version="1",
        description="Durable streams, a task queue and notifications in the database you have.",
        path="/schema",
        render_plugins=[JsonRenderPlugin()],
    )


@route("GET", "/openapi.json", scope="open", include_in_schema=False)
async def openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The OpenAPI document."""
    return Response(_written(request.app), media_type="application/json")


@route("GET", "/docs", scope="open", include_in_schema=False)
async def docs(request: Request[Any, Any, Any]) -> Response[str]:
    """The document as a page."""
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


routes = [openapi, docs]
