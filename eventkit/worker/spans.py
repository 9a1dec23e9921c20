"""Spans of OpenTelemetry around runs, for applications that use it.

Nothing is imported on our account: without that library in the process there are no spans.
"""

import sys
from contextvars import Context
from typing import Any

from ..records import Task


class RunSpan:
    """The span of one run."""

    def __init__(self, span: Any) -> None:
        self._span = span

    def end(self, error: BaseException | None) -> None:
        """The run has ended, with *error* or well."""
        if error is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, str(error)))
        self._span.end()


def begin_span(tasks: list[Task[Any]], name: str, variables: Context) -> RunSpan | None:
    """A span that is current in *variables*, the child of the one that enqueued the first of *tasks*."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    return variables.run(_begin, tasks, name)


def _begin(tasks: list[Task[Any]], name: str) -> RunSpan:
    from opentelemetry import context, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    task = tasks[0]
    parent = TraceContextTextMapPropagator().extract(dict(task.headers)) if "traceparent" in task.headers else None
    attributes: dict[str, Any] = {
        "messaging.system": "eventkit",
        "messaging.operation.type": "process",
        "messaging.destination.name": task.queue,
        "messaging.message.id": str(task.id),
        "messaging.batch.message_count": len(tasks),
        "eventkit.task.name": name,
        "eventkit.task.attempt": task.attempt,
    }
    tracer = trace.get_tracer("eventkit")
    span = tracer.start_span(f"{name} run", context=parent, kind=trace.SpanKind.CONSUMER, attributes=attributes)
    # The variables are the run's own and end with it, so nothing has to be detached.
    context.attach(trace.set_span_in_context(span, parent))
    return RunSpan(span)
