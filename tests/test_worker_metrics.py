"""What a worker shows of itself: J9."""

import asyncio
import os
import re
import socket
from pathlib import Path

import pytest
import working
from working import until

from eventkit import App, EventKit
from eventkit.conformance import proves
from eventkit.worker.metrics import Histogram, Metrics
from eventkit.worker.readiness import Readiness

url, kit = working.url, working.kit

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"


@proves("J9")
def test_runs_are_counted(kit: EventKit, url: str) -> None:
    app = App(url)

    @app.task(queue="jobs", retries=1, backoff=[0])
    async def job(fails: bool) -> None:
        if fails:
            raise ValueError

    with working.working(app, concurrency=7) as worker:
        queue = kit.queue("jobs")
        for fails in (False, False, True):
            queue.enqueue({"task": "job", "args": {"fails": fails}})
        until(lambda: queue.size() == 0)
        text = worker.metrics.render()
    for line in (
        'eventkit_tasks_ended_total{queue="jobs",task="job",outcome="succeeded"} 2',
        'eventkit_tasks_ended_total{queue="jobs",task="job",outcome="retried"} 1',
        'eventkit_tasks_ended_total{queue="jobs",task="job",outcome="dead"} 1',
        'eventkit_task_seconds_count{queue="jobs",task="job"} 4',
        'eventkit_task_seconds_bucket{queue="jobs",task="job",le="+Inf"} 4',
        'eventkit_worker_claimed_total{queue="jobs"} 4',
        "eventkit_worker_slots 7",
        "eventkit_worker_database_up 1",
    ):
        assert line in text.split("\n")


@proves("J9")
def test_every_metric_is_documented() -> None:
    """With its labels, and no other is."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    documented = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert documented == {metric.name: (metric.kind, metric.labels) for metric in Metrics()}


@proves("J9")
def test_the_text_is_what_prometheus_reads() -> None:
    """Labels are quoted, and buckets count all that is below them."""
    metrics = Metrics()
    metrics.claims.of('a "queue"\n\\').value = 1
    assert 'eventkit_worker_claims_total{queue="a \\"queue\\"\\n\\\\"} 1' in metrics.render()
    histogram = Histogram("h", "help", "a")
    for seconds in (0.001, 0.02, 1000):
        histogram.of("x").observe(seconds)
    lines = list(histogram.lines())
    assert lines[:2] == ["# HELP h help", "# TYPE h histogram"]
    assert 'h_bucket{a="x",le="0.001"} 1' in lines
    assert 'h_bucket{a="x",le="0.025"} 2' in lines
    assert 'h_bucket{a="x",le="+Inf"} 3' in lines
    assert 'h_count{a="x"} 3' in lines
    assert 'h_sum{a="x"} 1000.021' in lines


@proves("J5")
def test_the_service_manager_is_told(tmp_path: Path) -> None:
    """That the worker is ready, that it is alive, and that it ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(working.PATIENCE)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "20000"}
        readiness = Readiness(str(tmp_path / "ready"), environment)
        readiness.ready()
        assert manager.recv(100) == b"READY=1"
        assert (tmp_path / "ready").read_text("utf-8") == f"{os.getpid()}\n"

        async def watch() -> None:
            watching = asyncio.ensure_future(readiness.watch())
            await asyncio.sleep(0.1)
            watching.cancel()

        asyncio.run(watch())
        assert [manager.recv(100), manager.recv(100)] == [b"WATCHDOG=1"] * 2
        readiness.stopping()
        while (said := manager.recv(100)) == b"WATCHDOG=1":
            pass
        assert said == b"STOPPING=1"
    assert not (tmp_path / "ready").exists()
    Readiness(None, environment).ready()  # Nobody is there to hear it any more.


@proves("J9", "G11")
def test_runs_are_spans_of_whoever_enqueued_them(kit: EventKit, url: str) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = trace.get_tracer("test")
    app, inside = App(url), list[int]()

    @app.task
    async def traced(waits: bool) -> None:
        if waits:
            await asyncio.sleep(0)
        inside.append(trace.get_current_span().get_span_context().trace_id)

    @app.task(retries=0)
    def traced_blocking() -> None:
        inside.append(trace.get_current_span().get_span_context().trace_id)
        raise ValueError("on purpose")

    with tracer.start_as_current_span("publisher") as publisher, working.working(app):
        expected = publisher.get_span_context().trace_id
        kit.queue("default").enqueue({"task": "traced", "args": {"waits": False}})
        kit.queue("default").enqueue({"task": "traced", "args": {"waits": True}})
        kit.queue("default").enqueue({"task": "traced_blocking"})
        until(lambda: kit.queue("default").size() == 0)
    assert inside == [expected] * 3
    spans = {span.name: span for span in exporter.get_finished_spans() if span.name.endswith(" run")}
    assert spans.keys() == {"traced run", "traced_blocking run"}
    assert not spans["traced_blocking run"].status.is_ok
    assert spans["traced run"].attributes is not None
    assert spans["traced run"].attributes["messaging.destination.name"] == "default"
