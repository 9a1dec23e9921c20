"""What `bench` measures, on the database as it is, in a queue, a topic and a channel of its own."""

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from .opening import opened

if TYPE_CHECKING:
    from eventkit import EventKit

_BATCH = 1000
_WAKES = 20

Measure = tuple[str, float, str]
"""What was measured, how much it is, and of what."""


def measure(url: str, seconds: float) -> Iterator[Measure]:
    """Each measure, as soon as it is taken; what it needed is gone afterwards, however it ends."""
    name = f"eventkit:bench:{uuid4().hex[:8]}"
    with opened(url) as kit:
        try:
            yield from _queue(kit.queue(name), seconds)
            yield from _stream(kit.stream(name), seconds)
            yield "commit to listener, median", _wake(kit, name), "ms"
        finally:
            kit.queue(name).drop(force=True)
            kit.stream(name).prune(max_keep=0, keep_unconsumed=False)
            kit.channel(name).prune(max_keep=0)


def _queue(queue: Any, seconds: float) -> Iterator[Measure]:
    payload = {"to": "ann@example.com", "order": 42}
    yield "enqueue, one by one", _rate(seconds, 1, lambda: queue.enqueue(payload)), "tasks/s"
    yield f"enqueue_many, {_BATCH}", _rate(seconds, _BATCH, lambda: queue.enqueue_many([payload] * _BATCH)), "tasks/s"

    def work(limit: int) -> Callable[[], object]:
        return lambda: queue.ack_many(queue.claim("bench", limit)) or queue.enqueue_many([payload] * _BATCH)

    yield "claim and ack, one by one", _rate(seconds, 1, work(1)), "tasks/s"
    yield "claim and ack, 100", _rate(seconds, 100, work(100)), "tasks/s"


def _stream(stream: Any, seconds: float) -> Iterator[Measure]:
    payload = {"id": 42}
    yield "publish, one by one", _rate(seconds, 1, lambda: stream.publish(payload)), "events/s"
    yield f"publish_many, {_BATCH}", _rate(seconds, _BATCH, lambda: stream.publish_many([payload] * _BATCH)), "events/s"
    place = 0

    def read() -> int:
        nonlocal place
        events = stream.read(place, _BATCH)
        place = events[-1].offset if len(events) == _BATCH else 0
        return len(events)

    yield f"read, {_BATCH}", _rate(seconds, _BATCH, read), "events/s"


def _rate(seconds: float, each: int, act: Callable[[], object]) -> float:
    """How many things a second, where each act is *each* of them."""
    began = time.perf_counter()
    acts = 0
    while (took := time.perf_counter() - began) < seconds or not acts:
        act()
        acts += 1
    return round(acts * each / took)


def _wake(kit: "EventKit", name: str) -> float:
    """Milliseconds from before a commit until a listener in this process has it."""
    took: list[float] = []
    sent = 0.0
    handled = threading.Event()
    with kit.channel(name).listen() as heard:

        def listen() -> None:
            for _ in range(_WAKES):
                next(heard)
                took.append(time.perf_counter() - sent)
                handled.set()

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        for _ in range(_WAKES):
            time.sleep(0.02)
            handled.clear()
            sent = time.perf_counter()
            kit.channel(name).notify(None)
            handled.wait(10)
        listener.join(10)
    return round(statistics.median(took) * 1000, 2)
