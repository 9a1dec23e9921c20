"""Trace context across the database, for applications that use OpenTelemetry.

The publisher's ``traceparent`` is stored in the headers of events, tasks and notifications.  The library does not
import OpenTelemetry: without it in the process, there is no context to store.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol


class Carrier(Protocol):
    """A value with headers: an event, a task, a notification."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The stored headers."""
        ...


def with_trace(headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return *headers* with the ``traceparent`` of the current span, unless they have one or there is none."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None or (headers is not None and "traceparent" in headers):
        return headers
    if not trace.get_current_span().get_span_context().is_valid:
        return headers
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = dict(headers or {})
    TraceContextTextMapPropagator().inject(carrier)
    return carrier


@contextmanager
def tracing(carrier: Carrier) -> Iterator[None]:
    """Make spans begun in the body children of the span that published *carrier*.

    `handling` does this for tasks; around events and notifications, the application calls it.
    """
    if "opentelemetry.trace" not in sys.modules or "traceparent" not in carrier.headers:
        yield
        return
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    token = context.attach(TraceContextTextMapPropagator().extract(dict(carrier.headers)))
    try:
        yield
    finally:
        context.detach(token)
