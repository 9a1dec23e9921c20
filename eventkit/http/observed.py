"""What is around each request so that it can be followed: its id, how long it took, its line in the log, its span.

The id is the caller's ``X-Request-Id`` or a new one; it is in the answer, and in each line that is logged meanwhile.
Where OpenTelemetry is loaded, a request is a span, the child of the caller's; what is enqueued and published during it
carries its ``traceparent``, so the run of a task is the child of the request that enqueued it.
"""

import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import getrandbits
from time import perf_counter
from typing import Any

from litestar.types import ASGIApp, Message, Receive, Scope, Send

from ..logs import REQUEST
from .metrics import ServiceMetrics
from .routing import show_slashes

access = logging.getLogger("eventkit.http.access")

_HEADER = b"x-request-id"
_ID = re.compile(rb"[\w.:/+=-]{1,128}")


class Observed:
    """Around each request of *app*."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics) -> None:
        self._application = app
        self._seconds, self._open = metrics.requests, metrics.open.of()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        show_slashes(scope)
        headers = dict(scope["headers"])
        route, method = str(scope.get("path_template") or "/"), str(scope.get("method", ""))
        given = headers.get(_HEADER)
        id = given.decode() if given is not None and _ID.fullmatch(given) else f"{getrandbits(128):032x}"
        status = 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (_HEADER, id.encode())]
            await send(message)

        began, token = perf_counter(), REQUEST.set(id)
        self._open.value += 1
        try:
            with _span(method, route, headers) as span:
                try:
                    await self._application(scope, receive, answer)
                finally:
                    if span is not None:
                        span.set_attribute("http.response.status_code", status)
        finally:
            self._open.value -= 1
            took = perf_counter() - began
            self._seconds.of(method, route, f"{status // 100}xx").observe(took)
            if access.isEnabledFor(logging.INFO):
                fields = {"method": method, "route": route, "status": status, "seconds": round(took, 6)}
                access.info("%s %s %s", method, scope["path"], status, extra=fields)
            REQUEST.reset(token)


@contextmanager
def _span(method: str, route: str, headers: Mapping[bytes, bytes]) -> Iterator[Any]:
    """A span that is current inside; None where nobody has loaded OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:
        yield None
        return
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {
        name: headers[name.encode()].decode("latin-1")
        for name in ("traceparent", "tracestate")
        if name.encode() in headers
    }
    parent = TraceContextTextMapPropagator().extract(carrier)
    attributes = {"http.request.method": method, "http.route": route}
    with trace.get_tracer("eventkit").start_as_current_span(
        f"{method} {route}", context=parent, kind=trace.SpanKind.SERVER, attributes=attributes
    ) as span:
        yield span
