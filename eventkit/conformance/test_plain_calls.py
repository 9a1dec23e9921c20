"""The calls of plain SQL beside the handles: what each leaves, and what it refuses."""

import json
import time
from typing import Any

import pytest

from eventkit import EventKit
from eventkit.testing import advance

from .calling import Plain
from .clauses import proves
from .processes import PATIENCE, background


@proves("P3")
def test_a_plain_task_from_end_to_end(kit: EventKit, plain: Plain) -> None:
    """A task is enqueued with all options, claimed in order, extended and finished, each as by a handle."""
    queue = kit.queue("q")
    options: dict[str, Any] = {"priority": 3, "max_attempts": 5, "expires": 90, "headers": {"trace": "1"}}
    queue.enqueue({"a": "é"}, key="a", **options)
    second = plain.enqueue("q", '{"a": "é"}', 3, None, None, 5, 90, None, "b", '{"trace": "1"}')
    assert plain.enqueue("q", "2", None, None, None, None, None, None, "b") == second
    later = plain.enqueue("q", "3", 0, None, "2100-01-01T00:00:00+00:00", None, None, "2100-01-02 00:00:00Z")
    kept = ("payload", "priority", "max_attempts", "headers", "state", "attempt")
    one, two, future = queue.tasks()
    assert [getattr(one, name) for name in kept] == [getattr(two, name) for name in kept]
    assert (two.id, two.key, (two.expires_ms or 0) - two.enqueued_ms) == (second, "b", 90_000)
    assert (future.id, future.run_at.isoformat()) == (later, "2100-01-01T00:00:00+00:00")
    assert str(future.expires_at) == "2100-01-02 00:00:00+00:00"

    claimed = plain.claim("q", "w", 5, 30)
    assert [(task["id"], task["payload"], task["lease_ms"]) for task in claimed] == [
        (one.id, {"a": "é"}, 30_000),
        (second, {"a": "é"}, 30_000),
    ]
    before = queue.get(second)
    assert plain.extend(json.dumps(claimed[1]), 300)
    after = queue.get(second)
    assert before is not None
    assert after is not None
    assert (after.lease_expires_ms or 0) > (before.lease_expires_ms or 0) + 200_000
    assert plain.ack(json.dumps(claimed[1]), '{"sum": 3}')
    assert kit.results.get(second) == {"sum": 3}
    assert not queue.enqueue(4, key="b").created
    assert [task.id for task in queue.tasks()] == [one.id, later]


@proves("P3")
def test_a_lost_lease_is_an_error_of_plain_sql(kit: EventKit, plain: Plain) -> None:
    """Neither an old token nor a lapsed lease ends another worker's claim, and the error leaves the task as it was."""
    queue = kit.queue("q")
    queue.configure(max_attempts=9)
    queue.enqueue(1)
    [stale] = plain.claim("q", "w", 1, 30)
    advance(kit, 31)
    plain.do("sweep", queue="q")
    [task] = queue.tasks()
    assert (task.state, task.error) == ("ready", "the lease of worker w ran out in attempt 1")
    [held] = queue.claim("w")
    text = json.dumps(stale)
    assert not any([plain.ack(text), plain.retry(text, 0), plain.fail(text, "x"), plain.extend(text, 60)])
    with pytest.raises(Exception, match="roll back what was done for it, and claim with a longer lease"):
        plain.do("ack", id=held.id, token="7")
    assert queue.ack(held)


@proves("P3", "Q4")
def test_plain_retries_follow_the_policy(kit: EventKit, plain: Plain) -> None:
    """Without a delay a retry waits as the queue's policy says; after the last attempt the task is dead."""
    policies: list[tuple[str, Any, float]] = [
        ("a", "exponential", 1),
        ("b", "linear", 1),
        ("c", [5], 5),
        ("d", "fixed", 1),
    ]
    for name, policy, seconds in policies:
        queue = kit.queue(name)
        queue.configure(max_attempts=2, retry=policy)
        queue.enqueue(1)
        [task] = plain.claim(name, "w")
        started = time.time()
        assert plain.retry(json.dumps(task), None, "first")
        [info] = queue.tasks()
        assert info.error == "first"
        assert seconds * 0.7 - 0.1 < info.run_at.timestamp() - started < seconds * 1.3 + 1
        advance(kit, 10)
        [task] = plain.claim(name, "w")
        assert plain.retry(json.dumps(task), 60, "second")
        assert [(dead.reason, dead.error) for dead in queue.dead()] == [("exhausted", "second")]


@proves("P3")
def test_a_plain_claim_keeps_to_a_pause(kit: EventKit, plain: Plain) -> None:
    """A paused queue hands out nothing."""
    queue = kit.queue("q")
    queue.enqueue(1)
    queue.pause()
    assert plain.claim("q", "w") == []
    queue.resume()
    assert [task["payload"] for task in plain.claim("q", "w", 2)] == [1]


@proves("P3")
def test_plain_streams_channels_and_locks(kit: EventKit, plain: Plain) -> None:
    """An event, an offset, a notification and a lock are those of the handles."""
    stream = kit.stream("t")
    with kit.channel("c").listen() as heard:
        plain.do("notify", channel="c", payload='{"a": 1}', headers='{"trace": "1"}')
        notification = next(heard)
    assert (notification.payload, notification.headers) == ({"a": 1}, {"trace": "1"})
    for payload in ("1", "2"):
        plain.do("publish", stream="t", payload=payload, key="k", headers='{"h": "v"}', dedup="once")
    [event] = stream.read()
    assert (event.payload, event.key, event.headers) == (1, "k", {"h": "v"})
    for offset in (event.offset, 0):
        plain.do("save_offset", stream="t", consumer="audit", offset=offset)
    assert stream.offset("audit") == event.offset

    lock, held = kit.lock("l"), plain.lock("l", 30)
    assert held is not None
    assert not lock.acquire()
    assert plain.lock("l", 30) is None
    with pytest.raises(Exception, match="the lock was lost"):
        plain.do("unlock", name="l", token="7")
    plain.do("unlock", name="l", token=held["token"])
    assert lock.acquire()
    assert lock.fence == held["fence"] + 1


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "an empty name": ("publish", {"stream": "", "payload": "1"}, "1 to 255 characters"),
    "a long name": ("claim", {"queue": "q" * 256, "worker": "w"}, "1 to 255 characters"),
    "a control character": ("notify", {"channel": "a\u0085b", "payload": "1"}, "no.* control characters"),
    "no name": ("sweep", {"queue": None}, "name of a queue"),
    "a long key": ("publish", {"stream": "t", "payload": "1", "key": "k" * 1001}, "1 to 1000 characters"),
    "no JSON": ("publish", {"stream": "t", "payload": "{"}, "(?i)json"),
    "no payload": ("enqueue", {"queue": "q", "payload": None}, "JSON"),
    "NaN": ("enqueue", {"queue": "q", "payload": "NaN"}, "(?i)json"),
    "a large payload": ("notify", {"channel": "c", "payload": '"' + "x" * 524_287 + '"'}, "more than 524,288"),
    "headers of numbers": ("publish", {"stream": "t", "payload": "1", "headers": '{"a": 1}'}, "an object of strings"),
    "headers in a list": ("notify", {"channel": "c", "payload": "1", "headers": "[]"}, "an object of strings"),
    "two moments": ("enqueue", {"queue": "q", "payload": "1", "delay": 1, "run_at": "2100-01-01Z"}, "pass one of them"),
    "no moment": ("enqueue", {"queue": "q", "payload": "1", "run_at": "soon"}, "(?i)time"),
    "no attempts": ("enqueue", {"queue": "q", "payload": "1", "max_attempts": 0}, "max_attempts is a whole number"),
    "no batch": ("claim", {"queue": "q", "worker": "w", "batch": 0}, "batch is a whole number from 1"),
    "a negative lease": ("claim", {"queue": "q", "worker": "w", "lease": -1}, "lease is"),
    "an offset below zero": (
        "save_offset",
        {"stream": "t", "consumer": "c", "offset": -1},
        "offset is a whole number from 0",
    ),
    "a negative delay": ("retry", {"id": 1, "token": "1", "delay": -1}, "delay is"),
    "two hundred years": ("extend", {"id": 1, "token": "1", "seconds": 6e9}, "up to a hundred years"),
    "no error": ("fail", {"id": 1, "token": "1", "error": None}, "error is a text"),
    "no ttl": ("lock", {"name": "l", "ttl": 0}, "ttl is"),
    "a long holder": ("lock", {"name": "l", "holder": "h" * 256}, "1 to 255 characters"),
    "a moment without a day": ("enqueue", {"queue": "q", "payload": "1", "run_at": "12:00"}, "(?i)time"),
}


@proves("P3", "G8", "G10")
def test_a_mistake_is_an_error_of_plain_sql(kit: EventKit, plain: Plain) -> None:
    """Plain SQL refuses what the handles refuse, a full queue too, and writes nothing."""
    for name, arguments, message in BAD.values():
        with pytest.raises(Exception, match=message):
            plain.do(name, **arguments)
    assert (kit.stream("t").read(), kit.queue("q").size(), kit.lock("l").acquire()) == ([], 0, True)
    kit.queue("q").configure(max_size=1)
    kit.queue("strict").configure(strict_keys=True)
    for payload in ('{"a": 1, "a": 1}', '{"a": 1, "a": 1}'):
        plain.enqueue("strict", payload, 0, None, None, None, None, None, "key")
    first = plain.enqueue("q", "1", 0, 60, None, None, None, None, "key")
    with pytest.raises(Exception, match="has reached its max_size: run more workers"):
        plain.do("enqueue", queue="q", payload="2")
    assert plain.enqueue("q", "1", 0, None, None, None, None, None, "key") == first


@proves("P3", "W1")
def test_plain_sql_wakes(kit: EventKit, plain: Plain) -> None:
    """Waiters for a task, an event, a lock or a result wake by the commit."""
    held = plain.lock("l", 60)
    kit.queue("other").enqueue(1)
    [task] = plain.claim("other", "w")
    waiting = [
        background(lambda: kit.queue("q").claim("w", wait=PATIENCE)[0].payload),
        background(lambda: next(iter(kit.stream("t").subscribe())).payload),
        background(lambda: kit.lock("l").acquire(wait=PATIENCE)),
        background(lambda: kit.results.wait(task["id"], PATIENCE)),
    ]
    time.sleep(0.3)  # Give the waiters time to fall asleep; those that have not see the change when they look.
    started = time.monotonic()
    plain.enqueue("q", "1")
    plain.do("publish", stream="t", payload="1")
    plain.do("unlock", name="l", token=held["token"] if held else None)
    plain.ack(json.dumps(task), "1")
    assert [future.result(PATIENCE) for future in waiting] == [1, 1, True, 1]
    assert time.monotonic() - started < 4  # Less than the fallback poll.
