"""What is raised and what is answered (G13)."""

from collections.abc import Callable
from typing import Any

import pytest

import eventkit
from eventkit import DatabaseError, EventKit, EventkitError, NewEvent, Unavailable

from .clauses import proves


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
        ("Truncated", "EventkitError"),
        ("LockHeld", "EventkitError"),
        ("TaskFailed", "EventkitError"),
        ("DatabaseReplaced", "EventkitError"),
    ],
)
def test_errors_are_exported_under_one_base(name: str, base: str) -> None:
    """Every surprise is an exception of the package, under `EventkitError`."""
    assert name in eventkit.__all__
    assert issubclass(getattr(eventkit, name), getattr(eventkit, base))


@proves("G13")
def test_expected_outcomes_are_values(kit: EventKit) -> None:
    """What can happen to anybody is answered, not raised."""
    queue, stream = kit.queue("q"), kit.stream("t")
    queue.enqueue(1)
    [task] = queue.claim("w")
    assert queue.ack(task) is True
    assert queue.ack(task) is queue.retry(task) is queue.fail(task, "x") is False
    assert queue.release(task) is queue.extend(task, 10) is queue.cancel(task.id) is False
    assert queue.ack_many([task]) == []
    assert queue.get(task.id) is None
    assert queue.claim("w") == []
    assert stream.save_offset("c", 5) is True
    assert stream.save_offset("c", 4) is False


@proves("G13")
def test_bad_arguments_are_refused_before_anything_is_written(kit: EventKit) -> None:
    """Arguments that make no sense are a `ValueError`, those of a wrong type a `TypeError`."""
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
        lambda: queue.list("asleep"),
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
def test_an_error_that_the_library_does_not_know(kit: EventKit, bare_sql: tuple[str, Callable[[str], Any]]) -> None:
    """Without ``tx=`` it is a `DatabaseError`, which nothing repeats; with ``tx=`` it is the driver's own."""
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
