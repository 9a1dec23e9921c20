"""Metrics of a worker, and the list of working workers: J9, H5."""

import asyncio
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

import databases
import pytest
import working
from databases import on_both
from working import until

from eventkit import App, EventKit
from eventkit.conformance import proves
from eventkit.metrics import Histogram
from eventkit.operations.coordination import Beat
from eventkit.testing import advance
from eventkit.worker.lifecycle import Readiness
from eventkit.worker.metrics import Metrics, shown

url, kit = databases.url, databases.kit

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"


@proves("J9")
def test_runs_are_counted(kit: EventKit, url: str) -> None:
    app = App(url)

    @app.task(queue="jobs", max_attempts=2, backoff=[0])
    async def job(fails: bool) -> None:
        if fails:
            raise ValueError

    with working.working(app, concurrency=7) as worker:
        queue = kit.queue("jobs")
        for fails in (False, False, True):
            queue.enqueue({"task": "job", "args": {"fails": fails}})
        queue.enqueue({"task": "job", "args": {"fails": True}}, max_attempts=1)
        until(lambda: queue.size() == 0)
        text = worker.metrics.render()
    for line in (
        'eventkit_tasks_ended_total{queue="jobs",task="job",outcome="succeeded"} 2',
        'eventkit_tasks_ended_total{queue="jobs",task="job",outcome="retried"} 1',
        'eventkit_tasks_ended_total{queue="jobs",task="job",outcome="dead"} 2',
        'eventkit_task_seconds_count{queue="jobs",task="job"} 5',
        'eventkit_task_seconds_bucket{queue="jobs",task="job",le="+Inf"} 5',
        'eventkit_worker_claimed_total{queue="jobs"} 5',
        "eventkit_worker_slots 7",
        "eventkit_worker_database_up 1",
    ):
        assert line in text.split("\n")


@proves("J9")
def test_every_metric_is_documented() -> None:
    """Each is documented with its labels, and no other is."""
    page = PAGE.read_text("utf-8").partition("## The service")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", page, re.MULTILINE)
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
def test_the_service_manager_is_notified(tmp_path: Path) -> None:
    """The worker reports to it that it is ready, alive, and stopping."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(working.PATIENCE)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "20000"}
        readiness = Readiness(str(tmp_path / "ready"), environment)
        readiness.ready()
        assert manager.recv(100) == b"READY=1"
        assert (tmp_path / "ready").read_text("utf-8") == f"{os.getpid()}\n"

        async def watch() -> list[bytes]:
            watching = asyncio.ensure_future(readiness.watch())
            heard = [await asyncio.to_thread(manager.recv, 100) for _ in range(2)]
            watching.cancel()
            return heard

        assert asyncio.run(watch()) == [b"WATCHDOG=1"] * 2
        readiness.stopping()
        while (said := manager.recv(100)) == b"WATCHDOG=1":
            pass
        assert said == b"STOPPING=1"
    assert not (tmp_path / "ready").exists()
    Readiness(None, environment).ready()  # The service manager's socket is closed.


@proves("J9", "G11")
def test_runs_are_spans_of_the_trace_that_enqueued_them(kit: EventKit, url: str) -> None:
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

    @app.task(max_attempts=1)
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


@pytest.fixture(scope="session")
def reader() -> Any:
    """Return the reader of an application's exporter; a process sets its provider once."""
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
    return reader


def read(reader: Any) -> dict[str, Any]:
    """Return OpenTelemetry's metrics of eventkit, by name."""
    data = reader.get_metrics_data()
    scopes = [] if data is None else [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    return {metric.name: metric for scope in scopes if scope.scope.name == "eventkit" for metric in scope.metrics}


def point(reader: Any, name: str, **attributes: str) -> Any:
    """Return the data point of the metric *name* with exactly these attributes."""
    [found] = [point for point in read(reader)[name].data.data_points if dict(point.attributes) == attributes]
    return found


@proves("J9")
def test_every_metric_is_an_instrument(reader: Any) -> None:
    """They have the same name, kind, numbers and labels, in the same buckets."""
    kinds = {"Sum": "counter", "Gauge": "gauge", "Histogram": "histogram"}
    metrics = Metrics()
    with shown(metrics):
        for metric in metrics:
            cell: Any = metric.of(*(f"every {label}" for label in metric.labels))
            if isinstance(metric, Histogram):
                cell.observe(0.02)
                cell.observe(1000)
            else:
                cell.value = 3
        there = read(reader)
        assert {name: kinds[type(metric.data).__name__] for name, metric in there.items()} == {
            metric.name: metric.kind for metric in metrics
        }
        for metric in metrics:
            mine = point(reader, metric.name, **{label: f"every {label}" for label in metric.labels})
            assert there[metric.name].description == metric.help
            if isinstance(metric, Histogram):
                [counted] = metric.cells.values()
                assert (list(mine.bucket_counts), mine.sum) == (counted.counts, counted.total)
                assert there[metric.name].unit == "s"
            elif metric.labels:
                assert mine.value == 3


@proves("J9")
def test_instruments_add_up_the_workers_of_a_process(reader: Any) -> None:
    """A counter includes ended workers; a gauge has the running ones."""
    first, second = Metrics(), Metrics()
    with shown(first):
        before = point(reader, "eventkit_worker_slots").value if "eventkit_worker_slots" in read(reader) else 0
        first.claims.of("added up").value += 2
        first.slots.of().value = 7
        with shown(second):
            second.claims.of("added up").value += 3
            second.slots.of().value = 4
            assert point(reader, "eventkit_worker_claims_total", queue="added up").value == 5
            assert point(reader, "eventkit_worker_slots").value - before == 11
        assert point(reader, "eventkit_worker_claims_total", queue="added up").value == 5
        assert point(reader, "eventkit_worker_slots").value - before == 7
    assert point(reader, "eventkit_worker_claims_total", queue="added up").value == 5
    assert "eventkit_worker_slots" not in read(reader)


@proves("J9")
def test_without_opentelemetry_nothing_is_shown(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.metrics")
    with shown(metrics := Metrics()):
        metrics.claims.of("not shown").value += 1
        metrics.lateness.of("not shown").observe(1)
        assert "opentelemetry.metrics" not in sys.modules
    assert "not shown" not in str(read(reader))


@proves("J9")
def test_a_worker_is_shown(reader: Any, kit: EventKit, url: str) -> None:
    """It is shown from its start to its end, and each run once."""
    app, queue = App(url), f"shown {url.partition(':')[0]}"

    @app.task(queue=queue)
    async def shown_job() -> None: ...

    with working.working(app, concurrency=7) as worker:
        until(lambda: "eventkit_worker_slots" in read(reader))
        assert point(reader, "eventkit_worker_slots").value == 7
        for _ in range(3):
            kit.queue(queue).enqueue({"task": "shown_job"})
        until(lambda: kit.queue(queue).size() == 0)
    ended = {"queue": queue, "task": "shown_job", "outcome": "succeeded"}
    assert point(reader, "eventkit_tasks_ended_total", **ended).value == 3
    assert point(reader, "eventkit_task_seconds", queue=queue, task="shown_job").count == 3
    assert point(reader, "eventkit_worker_claimed_total", queue=queue).value == 3
    assert 'task="shown_job",outcome="succeeded"} 3' in worker.metrics.render()


@proves("H5")
@on_both
def test_a_worker_is_known_while_it_works(kit: EventKit, url: str) -> None:
    """It is listed with its queues, slots and runs, until it has ended."""
    app, release = App(url), asyncio.Event()

    @app.task(queue="jobs")
    async def job() -> None:
        await release.wait()

    with working.working(app, concurrency=7, name="one", queues=iter(["jobs", "others"])) as worker:
        [found] = until(kit.workers)
        assert (found.name, found.queues, found.slots, found.alive) == ("one", ["jobs", "others"], 7, True)
        assert (found.running, found.leased) == (0, 0)
        kit.queue("jobs").enqueue({"task": "job"})
        until(lambda: kit.workers()[0].leased == 1)
        assert worker._loop is not None
        worker._loop.call_soon_threadsafe(release.set)
        until(lambda: kit.queue("jobs").size() == 0)
    assert kit.workers() == []


@proves("H5")
@on_both
def test_a_worker_without_a_heartbeat_is_not_alive(kit: EventKit) -> None:
    """It is listed for an hour, and the next worker then removes it."""
    execute = kit._connection.execute  # type: ignore[attr-defined]
    execute(Beat("killed", ["jobs"], 5, 2))
    advance(kit, 29)
    assert [(one.name, one.alive) for one in kit.workers()] == [("killed", True)]
    advance(kit, 2)
    assert [(one.name, one.alive, one.slots) for one in kit.workers()] == [("killed", False, 5)]
    execute(Beat("other", ["jobs"], 1, 0))
    assert [one.name for one in kit.workers()] == ["killed", "other"]
    advance(kit, 3600)
    execute(Beat("other", ["jobs"], 1, 1))
    assert [(one.name, one.running, one.alive) for one in kit.workers()] == [("other", 1, True)]
