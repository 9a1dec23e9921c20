"""Observability of the service: metrics, ids of requests, log lines, and spans."""

import asyncio
import contextlib
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest
from clusters import Cluster
from services import Served, Started

import eventkit
from eventkit.access import ApiKeys
from eventkit.conformance import proves
from eventkit.http import app
from eventkit.http.service import ServiceMetrics
from eventkit.logs import REQUEST, JSONLines, TextLines
from eventkit.metrics import MOST, OTHERS, Counter
from eventkit.operations.coordination import Beat

PAGE = Path(__file__).parent.parent.parent / "docs" / "metrics.md"


async def fill(kit: Any) -> None:
    """Add rows for every metric."""
    queue = kit.queue("jobs")
    await queue.enqueue_many(range(5))
    [task, *_] = await queue.claim("worker", 2)
    await queue.fail(task, "broken")
    await kit.queue("paused").pause()
    await kit.stream("orders").publish_many(range(7))
    await kit.stream("orders").save_offset("search", 4)
    await kit.schedules.add("nightly", "0 3 * * *", "jobs")
    await kit.lock("leader").acquire()
    await kit.results.save("one", 1)
    await kit._connection.execute(Beat("worker", ["jobs"], 8, 3))


@proves("E9")
def test_metrics_say_what_there_is(served: Served) -> None:
    """Text and JSON have the same numbers, of everything in the database and of the requests themselves."""
    served.ask(fill(served.kit))
    answer = served("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    for line in (
        'eventkit_queue_tasks{queue="jobs",state="ready"} 3',
        'eventkit_queue_tasks{queue="jobs",state="running"} 1',
        'eventkit_queue_tasks{queue="jobs",state="dead"} 1',
        'eventkit_queue_paused{queue="paused"} 1',
        'eventkit_queue_paused{queue="jobs"} 0',
        'eventkit_stream_events{topic="orders"} 7',
        'eventkit_consumer_lag{topic="orders",consumer="search"} 3',
        'eventkit_schedule_fired_total{schedule="nightly"} 0',
        "eventkit_locks_held 1",
        "eventkit_results 1",
        "eventkit_fleet_workers 1",
        "eventkit_fleet_slots 8",
        "eventkit_fleet_running 3",
        "eventkit_http_requests_open 1",
        'eventkit_database_seconds_count{operation="ReadOverview"} 1',
    ):
        assert line in lines
    for answer in (served("GET", "/metrics.json"), served("GET", "/metrics", headers={"accept": "application/json"})):
        shown = answer.json()
        assert shown["eventkit_fleet_slots"] == {
            "type": "gauge",
            "help": "Slots of all live workers.",
            "samples": [{"name": "eventkit_fleet_slots", "labels": {}, "value": 8}],
        }
        requests = [
            sample for sample in shown["eventkit_http_request_seconds"]["samples"] if "le" not in sample["labels"]
        ]
        assert {"method": "GET", "route": "/metrics", "status": "2xx"} in [sample["labels"] for sample in requests]
        # The database is queried once in two seconds, however often the metrics are read.
        [count] = [
            one["value"]
            for one in shown["eventkit_database_seconds"]["samples"]
            if one["name"].endswith("_count") and one["labels"]["operation"] == "ReadOverview"
        ]
        assert count == 1


@proves("E9")
def test_every_metric_of_the_service_is_documented() -> None:
    """Each is documented with its labels, and no other is."""
    page = PAGE.read_text("utf-8").partition("## The service")[2]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", page, re.MULTILINE)
    documented = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert documented == {metric.name: (metric.kind, metric.labels) for metric in ServiceMetrics()}


@proves("E9")
def test_a_metric_is_bounded_however_many_names_there_are() -> None:
    """The thousandth queue and all further ones share a sample; none of the first is lost."""
    counter = Counter("c", "help", "queue", "state")
    for number in range(3 * MOST):
        counter.of(f"queue {number}", "ready").value += 1
    assert len(counter.cells) == MOST + 1
    assert counter.of(OTHERS, OTHERS).value == 2 * MOST
    assert counter.of("queue 1", "ready").value == 1


@proves("E10")
def test_a_request_has_an_id(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """It is the caller's or a new one, in the answer and in the log."""
    caplog.set_level(logging.INFO, "eventkit.http.access")
    assert served("GET", "/healthz", headers={"x-request-id": "shop-4711"}).headers["x-request-id"] == "shop-4711"
    first, second = (served("GET", "/healthz").headers["x-request-id"] for _ in range(2))
    forged = served("GET", "/healthz", headers={"x-request-id": 'a"b c'}).headers["x-request-id"]
    assert len({first, second, forged}) == 3
    assert re.fullmatch(r"[0-9a-f]{32}", forged)
    [record] = [record for record in caplog.records if getattr(record, "status", None) == 200][:1]
    assert (record.method, record.route) == ("GET", "/healthz")  # type: ignore[attr-defined]


@proves("E10")
def test_texts_of_others_begin_no_line_of_the_log() -> None:
    """Messages of an exception, of its cause and of a group can forge no line and send no terminal command."""
    forged = "no\n2026-01-01 00:00:00,000 INFO    eventkit  forged\x1b[2J"
    try:
        try:
            raise ValueError(forged)
        except ValueError as error:
            raise ExceptionGroup(forged, [KeyError(forged), OSError(forged)]) from error
    except ExceptionGroup:
        line = TextLines().format(logging.LogRecord("eventkit", 40, "", 1, "%s", (forged,), sys.exc_info()))
    first, *rest = line.split("\n")
    assert r"no\n2026-01-01" in first
    assert "\x1b" not in line
    assert any(r"ValueError: no\n2026-01-01 00:00:00,000 INFO    eventkit  forged\x1b[2J" in text for text in rest)
    assert not any(text.startswith("2026") for text in rest)
    assert any("raise ValueError(forged)" in text for text in rest)


def test_lines_of_the_log_are_json() -> None:
    """A line has every attribute of a record, the error included, escaped."""
    token = REQUEST.set("shop-4711")
    try:
        try:
            raise ValueError("broken\n")
        except ValueError:
            error = sys.exc_info()
        record = logging.LogRecord("eventkit.worker", 40, "", 1, "%s is\n%s", ("task", "dead \ud800"), error)
        record.task_id, record.odd = 7, object
        line = JSONLines().format(record)
    finally:
        REQUEST.reset(token)
    assert "\n" not in line
    shown = json.loads(line)
    assert (shown["message"], shown["level"], shown["logger"]) == ("task is\ndead \\ud800", "error", "eventkit.worker")
    assert (shown["request_id"], shown["task_id"], shown["odd"]) == ("shop-4711", 7, str(object))
    assert "ValueError: broken" in shown["error"]
    assert shown["time"].endswith("+00:00")


@proves("E10")
def test_the_service_logs_requests_as_json(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/logs.db"
    eventkit.connect(url).close()
    service = Started(url, tmp_path, "--log-format", "json")
    try:
        httpx.get(f"{service.address}/healthz", headers={"x-request-id": "shop-4711"})
    finally:
        assert service.stop() == 0
    lines = [json.loads(line) for line in service.log.read_text("utf-8").splitlines()]
    asked = [line for line in lines if line.get("request_id") == "shop-4711"]
    assert [(line["logger"], line["route"], line["status"]) for line in asked] == [
        ("eventkit.http.access", "/healthz", 200)
    ], lines
    assert {line["level"] for line in lines} == {"info"}


@proves("E10", "G11")
def test_a_request_is_a_span_and_what_it_enqueues_its_child(url: str) -> None:
    """The caller's span, the request and the run of the task are one trace."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    declared = eventkit.App(url)

    @declared.task(queue="jobs")
    async def job() -> None: ...

    async def story() -> int:
        async with eventkit.connect_async(url) as kit:
            await kit.queue("jobs").configure(max_attempts=3)
            transport = httpx.ASGITransport(app(kit))
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                carrier: dict[str, str] = {}
                with trace.get_tracer("test").start_as_current_span("caller") as caller:
                    TraceContextTextMapPropagator().inject(carrier)
                body = {"payload": {"task": "job", "args": {}}}
                answer = await client.post("/queues/jobs/tasks", json=body, headers=carrier)
                assert answer.status_code == 201, answer.text
            worker = declared.worker(queues=["jobs"])
            serving = asyncio.ensure_future(worker.serve())
            async with asyncio.timeout(30):
                while await kit.queue("jobs").size():
                    await asyncio.sleep(0.01)
            worker.stop()
            await serving
            return caller.get_span_context().trace_id

    expected = asyncio.run(story())
    spans = {span.name: span for span in exporter.get_finished_spans() if span.context.trace_id == expected}
    request = spans["POST /queues/{queue}/tasks"]
    assert request.attributes is not None
    assert request.attributes["http.response.status_code"] == 201
    assert spans["job run"].parent is not None
    assert request.parent is not None
    assert request.parent.span_id == spans["caller"].context.span_id
    assert spans["job run"].parent.span_id == request.context.span_id


@proves("E8")
def test_checks_of_readiness_are_shared(tmp_path: Path) -> None:
    """The database is checked once in a second for all callers, who all get the reason of a failure."""
    url = f"sqlite:///{tmp_path}/locked.db"
    eventkit.connect(url).close()
    service = Started(f"{url}?busy_timeout=1", tmp_path)
    holder = apsw.Connection(f"{tmp_path}/locked.db")
    try:
        holder.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with ThreadPoolExecutor(30) as pool:
            asked = [f"{service.address}/{path}" for path in ("readyz", "health") for _ in range(15)]
            answers = list(pool.map(lambda url: httpx.get(url, timeout=60), asked))
        assert time.monotonic() - began < 15  # One after the other they would take thirty seconds.
        assert {answer.status_code for answer in answers} == {503}
        assert {answer.json()["detail"] for answer in answers} == {"the database is busy: try again"}
        holder.execute("ROLLBACK")
        time.sleep(1.1)
        assert httpx.get(f"{service.address}/readyz").status_code == 200
    finally:
        holder.close()
        service.process.kill()
        service.process.wait()


Lost = tuple[str, Callable[[], object], list[str]]


@pytest.fixture
def lost(url: str, tmp_path: Path) -> Iterator[Lost]:
    """Return a database, a function that removes it, and the words that name its place and user."""
    if url.startswith("sqlite"):
        eventkit.connect(url).close()
        with contextlib.closing(apsw.Connection(f"{tmp_path}/served.db")) as holder:
            yield f"{url}?busy_timeout=0.2", lambda: holder.execute("BEGIN IMMEDIATE"), [str(tmp_path), "served.db"]
    else:
        with Cluster() as cluster:
            port = cluster.url.rpartition(":")[2].partition("/")[0]
            yield f"{cluster.url}?busy_timeout=0.2", lambda: cluster.stop("immediate"), ["127.0.0.1", "postgres", port]


@proves("E8", "E19")
def test_a_database_that_is_away_says_nothing_of_itself(lost: Lost, tmp_path: Path) -> None:
    """Answers have only the kind of error; only the log names the database's address, and not at level info."""
    url, take_away, words = lost
    with eventkit.connect(url) as kit:
        key = ApiKeys(kit).add("a test", ["admin"])
    service = Started(url, tmp_path, "--log-format", "json")
    try:
        take_away()
        asked = [
            httpx.request(method, f"{service.address}{path}", headers={"authorization": f"Bearer {other}"}, timeout=60)
            for other in (f"ek_{'1' * 16}_{'a' * 64}", key)
            for method, path in (
                ("GET", "/queues"),
                ("GET", "/dashboard/queues"),
                ("GET", "/readyz"),
                ("GET", "/health"),
                ("PATCH", "/queues/q"),
            )
        ]
        assert {answer.status_code for answer in asked[-3:-1]} == {503}
        assert [(answer.url, word) for answer in asked for word in words if word in answer.text] == []
    finally:
        service.process.kill()
        service.process.wait()
    lines = [json.loads(line) for line in service.log.read_text("utf-8").splitlines()]
    detailed = [line for line in lines if any(word in line["message"] for word in words)]
    assert {line["level"] for line in detailed if "serving on" not in line["message"]} <= {"warning", "error"}
    assert [line for line in detailed if line["logger"] == "eventkit.http"]
