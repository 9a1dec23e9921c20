"""Trace context across the database, for applications that use OpenTelemetry.

The publisher's ``traceparent`` travels in the headers of events, tasks and notifications.  Nothing is
imported on our account: without OpenTelemetry in the process there is no context to carry.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol


class Carrier(Protocol):
    """Anything with headers: an event, a task, a notification."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What travelled along."""
        ...


def with_trace(headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """*headers* with the ``traceparent`` of the current span, unless they name one or there is none."""
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
def tracing(message: Carrier) -> Iterator[None]:
    """Spans begun inside are children of the span that published *message*.

    `handling` does this for tasks by itself; around events and notifications it is yours to write.
    """
    if "opentelemetry.trace" not in sys.modules or "traceparent" not in message.headers:
        yield
        return
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    token = context.attach(TraceContextTextMapPropagator().extract(dict(message.headers)))
    try:
        yield
    finally:
        context.detach(token)
