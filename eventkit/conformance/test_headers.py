"""Headers and errors."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import eventkit
from eventkit import DatabaseError, EventKit, EventkitError, NewEvent, NewTask, Unavailable, errors

from .clauses import both_flavours, proves

_HEADERS = {"tenant": "eu 🦊", "": "", "x-Y": "a\u0000b", "q": "\"'\\%"}


@proves("G11")
@both_flavours
def test_headers_travel(kit: EventKit) -> None:
    """Headers arrive unchanged through every call that takes them; by default they are empty."""
    stream, queue, channel = kit.stream("t"), kit.queue("q"), kit.channel("c")
    with channel.listen() as notifications:
        stream.publish(1, headers=_HEADERS)
        stream.publish(1, headers=_HEADERS, dedup="d")
        stream.publish_many([1, NewEvent(1, headers=_HEADERS), NewEvent(1, headers={})])
        queue.enqueue(1, headers=_HEADERS)
        queue.enqueue(1, headers=_HEADERS, key="k")
        queue.enqueue_many([1, NewTask(1, headers=_HEADERS)])
        channel.notify(1, headers=_HEADERS)
        channel.notify(1)
        assert [next(notifications).headers for _ in range(2)] == [_HEADERS, {}]
    assert [event.headers for event in stream.read()] == [_HEADERS, _HEADERS, {}, _HEADERS, {}]
    assert [info.headers for info in queue.tasks()] == [_HEADERS, _HEADERS, {}, _HEADERS]
    assert [task.headers for task in queue.claim("w", 4)] == [_HEADERS, _HEADERS, {}, _HEADERS]


@proves("G11")
def test_headers_stay_with_a_task(kit: EventKit) -> None:
    """A retried, a dead and a copied task keep the headers they were enqueued with."""
    queue = kit.queue("q")
    queue.configure(dead_letter_to="morgue")
    queue.enqueue(1, headers=_HEADERS)
    [task] = queue.claim("w")
    queue.retry(task, delay=0)
    [task] = queue.claim("w")
    assert task.headers == _HEADERS
    queue.fail(task, "enough")
    assert [info.headers for info in queue.dead()] == [_HEADERS]
    assert [task.headers for task in kit.queue("morgue").claim("w")] == [_HEADERS]


@proves("G11", "G13")
def test_headers_are_strings(kit: EventKit) -> None:
    """Headers other than str → str are refused before anything is written."""
    stream: Any
    queue: Any
    channel: Any
    stream, queue, channel = kit.stream("t"), kit.queue("q"), kit.channel("c")
    bad: list[Any] = [{"a": 1}, {1: "a"}, {"a": None}, {"a": b"x"}, {"a": ["x"]}, {"a": "\ud800"}]
    for headers in bad:
        calls: list[Callable[[Any], Any]] = [
            lambda headers: stream.publish(1, headers=headers),
            lambda headers: stream.publish_many([1, NewEvent(1, headers=headers)]),
            lambda headers: queue.enqueue(1, headers=headers),
            lambda headers: queue.enqueue_many([1, NewTask(1, headers=headers)]),
            lambda headers: channel.notify(1, headers=headers),
        ]
        for call in calls:
            with pytest.raises((TypeError, ValueError), match="header"):
                call(headers)
    assert (stream.head(), queue.size()) == (0, 0)


@pytest.fixture(scope="session")
def tracer() -> Any:
    """Return a tracer of OpenTelemetry's SDK, or skip the test without it."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed")
    return sdk.TracerProvider().get_tracer("eventkit.conformance")


@pytest.fixture
def publishing(tracer: Any) -> Iterator[Any]:
    """Return the publisher's span context, which is not current yet."""
    span = tracer.start_span("publisher")
    yield span
    span.end()


def _current() -> Any:
    from opentelemetry import trace

    return trace.get_current_span().get_span_context()


def _traceparent(span: Any) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


async def _publish_everything(kit: Any, span: Any) -> None:
    """Publish in every way inside *span*, in either flavour."""
    from opentelemetry import trace

    async def settle(result: Any) -> None:
        if hasattr(result, "__await__"):
            await result

    with trace.use_span(span):
        await settle(kit.stream("t").publish(1))
        await settle(kit.stream("t").publish(1, headers={"a": "b"}, key="k"))
        await settle(kit.stream("t").publish(1, dedup="d"))
        await settle(kit.stream("t").publish_many([1, NewEvent(1, headers={"traceparent": "mine"})]))
        await settle(kit.queue("q").enqueue(1))
        await settle(kit.queue("q").enqueue(1, key="k"))
        await settle(kit.queue("q").enqueue_many([1, 2]))
        await settle(kit.queue("q").enqueue_many([1, NewTask(2, delay=-1)]))
        await settle(kit.channel("c").notify(1))


@proves("G11")
@both_flavours
def test_the_traceparent_travels(connect: Callable[..., Any], url: str, flavour: str, publishing: Any) -> None:
    """A message sent inside a span carries its ``traceparent``, unless its headers name one; outside it has none."""
    reader = connect(url)
    reader.stream("t").publish("outside")

    async def main() -> None:
        if flavour == "sync":
            with eventkit.connect(url) as kit:
                await _publish_everything(kit, publishing)
        else:
            async with eventkit.connect_async(url) as kit:
                await _publish_everything(kit, publishing)

    with reader.channel("c").listen() as notifications:
        asyncio.run(main())
        heard = next(notifications).headers
    mine = {"traceparent": _traceparent(publishing)}
    events = [event.headers for event in reader.stream("t").read()]
    assert events == [{}, mine, {"a": "b", **mine}, mine, mine, {"traceparent": "mine"}]
    assert [info.headers for info in reader.queue("q").tasks()] == [mine] * 6
    assert heard == mine


@proves("G11")
@both_flavours
def test_handling_continues_the_trace(url: str, flavour: str, tracer: Any, publishing: Any) -> None:
    """Inside `handling` and `tracing` the publisher's span is the parent; afterwards it is not, even after an error."""
    traceparent = {"traceparent": _traceparent(publishing)}
    expected = publishing.get_span_context()

    def inside() -> None:
        assert _current().span_id == expected.span_id
        child = tracer.start_span("consumer")
        assert (child.parent.span_id, child.context.trace_id) == (expected.span_id, expected.trace_id)
        child.end()

    def sync() -> None:
        with eventkit.connect(url) as kit:
            queue, stream = kit.queue("q"), kit.stream("t")
            queue.enqueue_many([NewTask(number, headers=traceparent) for number in range(2)])
            for number, task in enumerate(queue.claim("w", 2)):
                with queue.handling(task):
                    inside()
                    if number:
                        raise ValueError("a failure")
                assert not _current().is_valid
            stream.publish(1, headers=traceparent)
            with eventkit.tracing(stream.read()[0]):
                inside()

    async def asynchronous() -> None:
        async with eventkit.connect_async(url) as kit:
            queue, stream = kit.queue("q"), kit.stream("t")
            await queue.enqueue_many([NewTask(number, headers=traceparent) for number in range(2)])
            for number, task in enumerate(await queue.claim("w", 2)):
                async with queue.handling(task):
                    await asyncio.sleep(0)
                    inside()
                    if number:
                        raise ValueError("a failure")
                assert not _current().is_valid
            await stream.publish(1, headers=traceparent)
            with eventkit.tracing((await stream.read())[0]):
                inside()

    sync() if flavour == "sync" else asyncio.run(asynchronous())
    assert not _current().is_valid


@proves("G11")
def test_an_invalid_traceparent_has_no_effect(kit: EventKit, tracer: Any) -> None:
    """A message with a broken trace or none is handled like any other."""
    queue = kit.queue("q")
    queue.enqueue(1, headers={"traceparent": "nonsense"})
    queue.enqueue(2)
    for task in queue.claim("w", 2):
        with eventkit.tracing(task):
            assert not _current().is_valid
        with queue.handling(task):
            pass
    assert queue.size() == 0


@proves("G13")
@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("UnknownBackend", "EventkitError"),
        ("NotMigrated", "EventkitError"),
        ("ForeignTransaction", "EventkitError"),
        ("DatabaseError", "EventkitError"),
        ("Unavailable", "EventkitError"),
        ("Busy", "Unavailable"),
        ("Disconnected", "Unavailable"),
        ("Closed", "EventkitError"),
        ("QueueFull", "EventkitError"),
        ("KeyConflict", "EventkitError"),
        ("Truncated", "EventkitError"),
        ("LockHeld", "EventkitError"),
        ("TaskFailed", "EventkitError"),
        ("DatabaseReplaced", "EventkitError"),
    ],
)
def test_errors_are_exported_under_one_base(name: str, base: str) -> None:
    """Every exception that the package raises derives from `EventkitError`."""
    assert name in eventkit.__all__ or name == "UnknownBackend"
    assert issubclass(getattr(errors, name), getattr(errors, base))


@proves("G13")
def test_bad_arguments_are_refused_before_anything_is_written(kit: EventKit) -> None:
    """Arguments with an invalid value are a `ValueError`, those of a wrong type a `TypeError`."""
    stream: Any
    queue: Any
    stream, queue = kit.stream("t"), kit.queue("q")
    values: list[Callable[[], Any]] = [
        lambda: stream.read(-1),
        lambda: stream.read(limit=0),
        lambda: stream.subscribe(start="tomorrow"),
        lambda: stream.prune(),
        lambda: queue.claim("w", 0),
        lambda: queue.claim("w", wait=-1),
        lambda: queue.enqueue(1, priority=2**40),
        lambda: queue.enqueue(1, max_attempts=0),
        lambda: queue.enqueue(1, delay=float("nan")),
        lambda: queue.enqueue(1, wait=1, tx=object()),
        lambda: queue.claim("w", wait=1, tx=object()),
        lambda: queue.tasks("asleep"),
        lambda: queue.configure(rate=0),
    ]
    types: list[Callable[[], Any]] = [
        lambda: queue.enqueue(1, delay="soon"),
        lambda: queue.enqueue(1, priority="high"),
        lambda: queue.enqueue(1, run_at=5),
        lambda: queue.claim("w", "all"),
        lambda: stream.save_offset("c", "5"),
        lambda: queue.configure(colour="red"),
    ]
    for error, calls in ((ValueError, values), (TypeError, types)):
        for number, call in enumerate(calls):
            with pytest.raises(error):
                raise AssertionError(f"accepted {number}: {call()}")
    assert (stream.head(), queue.size()) == (0, 0)


@proves("G13")
@both_flavours
def test_an_error_that_the_library_does_not_know(kit: EventKit, bare_sql: tuple[str, Callable[[str], Any]]) -> None:
    """Without ``tx=`` it is a `DatabaseError`, which is not retried; with ``tx=`` it is the driver's own."""
    prefix, execute = bare_sql
    stream = kit.stream("t")
    execute(f"CREATE UNIQUE INDEX one_of_a_key ON {prefix}eventkit_event (key)")
    try:
        stream.publish(1, key="a")
        for call in (lambda: stream.publish(2, key="a"), lambda: stream.publish_many([NewEvent(3, key="a")])):
            with pytest.raises(DatabaseError, match=r"constraint") as refused:
                call()
            assert refused.value.sqlstate == ("23505" if prefix else None)
            assert refused.value.__cause__ is not None
        with pytest.raises(Exception, match=r"(?i)unique") as raw, kit.transaction() as tx:
            stream.publish(4, key="a", tx=tx)
        assert not isinstance(raw.value, EventkitError)
        stream.publish(5, key="b")
        assert [event.payload for event in stream.read()] == [1, 5]
    finally:
        execute(f"DROP INDEX {prefix}one_of_a_key")
    assert not issubclass(DatabaseError, Unavailable)
