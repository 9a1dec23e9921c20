"""Headers, and the trace that travels in them (G11)."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import eventkit
from eventkit import EventKit, NewEvent, NewTask

from .clauses import proves

_HEADERS = {"tenant": "eu 🦊", "": "", "x-Y": "a\u0000b", "q": "\"'\\%"}


@proves("G11")
def test_headers_travel(kit: EventKit) -> None:
    """Headers arrive as they were sent, through every call that takes them; without any, they are empty."""
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
    assert [info.headers for info in queue.list()] == [_HEADERS, _HEADERS, {}, _HEADERS]
    assert [task.headers for task in queue.claim("w", 4)] == [_HEADERS, _HEADERS, {}, _HEADERS]


@proves("G11")
def test_headers_stay_with_a_task(kit: EventKit) -> None:
    """A retried, a dead and a copied task have the headers they were enqueued with."""
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
    """Anything but str → str is refused before anything is written."""
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
    """A tracer of OpenTelemetry's SDK; without it, its tests are skipped."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed")
    return sdk.TracerProvider().get_tracer("eventkit.conformance")


@pytest.fixture
def publishing(tracer: Any) -> Iterator[Any]:
    """The publisher's span context; it is current nowhere yet."""
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
    """With either flavour, inside *span*: awaits what has to be awaited."""
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
def test_the_traceparent_travels(connect: Callable[..., Any], url: str, flavour: str, publishing: Any) -> None:
    """What is sent inside a span carries its ``traceparent``, unless its headers name one; else nothing."""
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
    assert [info.headers for info in reader.queue("q").list()] == [mine] * 6
    assert heard == mine


@proves("G11")
def test_handling_continues_the_trace(url: str, flavour: str, tracer: Any, publishing: Any) -> None:
    """Inside `handling` and `tracing` the publisher's span is the parent; outside it is not, after an error too."""
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
def test_a_traceparent_that_means_nothing_hurts_nobody(kit: EventKit, tracer: Any) -> None:
    """A message with a broken or no trace is handled like any other."""
    queue = kit.queue("q")
    queue.enqueue(1, headers={"traceparent": "nonsense"})
    queue.enqueue(2)
    for task in queue.claim("w", 2):
        with eventkit.tracing(task):
            assert not _current().is_valid
        with queue.handling(task):
            pass
    assert queue.size() == 0
