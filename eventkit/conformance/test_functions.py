"""The functions of SQL answer and do what the calls of the handles do (P2).

Every test calls them by a bare driver, and through a SQLAlchemy session.
"""

import json
import time
from typing import Any

import pytest

from eventkit import EventKit, Truncated
from eventkit.testing import advance

from .calling import Caller, fields
from .clauses import proves
from .processes import PATIENCE, background


@proves("P2")
def test_events_are_published_and_read(kit: EventKit, caller: Caller) -> None:
    """Publishing, reading and saving an offset."""
    stream = kit.stream("t")
    first = caller.call("publish", "t", '{"a": [1, null, "é"]}')
    second = caller.call("publish", "t", "2", "k", '{"trace": "1"}', "once")
    assert caller.call("publish", "t", "3", None, None, "once") == second
    assert [(e.offset, e.payload, e.key, e.headers) for e in stream.read()] == [
        (first, {"a": [1, None, "é"]}, None, {}),
        (second, 2, "k", {"trace": "1"}),
    ]
    assert caller.call("read", "t") == [fields(event) for event in stream.read()]
    assert caller.call("read", "t", first) == [fields(event) for event in stream.read(first)]
    assert caller.call("read", "t", 0, 1) == [fields(event) for event in stream.read(limit=1)]
    assert caller.call("read", "nothing") == []
    assert caller.call("save_offset", "t", "c", first) is not False
    assert stream.offset("c") == first
    assert not caller.call("save_offset", "t", "c", first)


@proves("P2", "S8")
def test_a_reader_behind_a_pruned_gap_is_told(kit: EventKit, caller: Caller) -> None:
    """As the handle's `Truncated` says it."""
    stream = kit.stream("t")
    first, *_, last = stream.publish_many([1, 2, 3])
    stream.prune(max_keep=1)
    with pytest.raises(Truncated):
        stream.read(first)
    with pytest.raises(Exception, match="pruned"):
        caller.call("read", "t", first)
    assert [event["offset"] for event in caller.call("read", "t")] == [last]


@proves("P2")
def test_a_task_from_end_to_end(kit: EventKit, caller: Caller) -> None:
    """Enqueued with everything that can be said, claimed as JSON, and finished with a result."""
    queue = kit.queue("q")
    queue.enqueue(1, priority=3, expires=90, max_attempts=5, key="a", headers={"trace": "1"})
    id = caller.call("enqueue", "q", "1", 3, None, None, 5, 90, None, "b", '{"trace": "1"}')
    assert caller.call("enqueue", "q", "2", None, None, None, None, None, None, "b") == id
    by_handle, by_function = queue.list()
    varying = ("id", "key", "run_ms", "enqueued_ms", "expires_ms")
    same = [{k: v for k, v in fields(task).items() if k not in varying} for task in (by_handle, by_function)]
    assert same[0] == same[1]
    assert (by_function.expires_ms or 0) - by_function.enqueued_ms == 90_000
    later = caller.call("enqueue", "q", "3", 0, 60)
    at = caller.call("enqueue", "q", "4", 0, None, "2100-01-01 00:00:00+00", None, None, "2100-01-02 00:00:00+00")
    moments = queue.get(at)
    assert moments is not None
    assert [moments.run_at.isoformat(), str(moments.expires_at)] == [
        "2100-01-01T00:00:00+00:00",
        "2100-01-02 00:00:00+00:00",
    ]

    tasks = caller.call("claim", "q", "w", 5, 30)
    assert [task["id"] for task in tasks] == [by_handle.id, id]
    info = fields(queue.get(id))
    shared = tasks[1].keys() & info.keys()
    assert {name: tasks[1][name] for name in shared} == {name: info[name] for name in shared}
    assert set(tasks[1]) - shared == {"token", "lease_ms", "lapsed"}
    assert tasks[1]["lease_ms"] == 30_000
    assert tasks[1]["lapsed"] is False
    assert info["worker"] == "w"

    assert caller.call("extend", json.dumps(tasks[0]), 300)
    extended = queue.get(by_handle.id)
    assert extended is not None
    assert extended.lease_expires_ms > info["lease_expires_ms"] + 200_000
    assert caller.call("ack", json.dumps(tasks[0]), '{"sum": 3}')
    assert kit.results.get(by_handle.id) == {"sum": 3}
    assert caller.call("ack", json.dumps(tasks[1]))
    assert not caller.call("ack", json.dumps(tasks[1]))
    assert caller.call("cancel", "q", later)
    assert not caller.call("cancel", "q", later)
    assert [task.id for task in queue.list()] == [at]
    expired = caller.call("enqueue", "q", "5", 0, None, None, None, -60)
    assert queue.claim("w") == []
    assert [(letter.id, letter.reason) for letter in queue.dead()] == [(expired, "expired")]


@proves("P2")
def test_a_handle_finishes_what_a_function_claimed(kit: EventKit, caller: Caller) -> None:
    """And the other way round: it is one queue, and one token."""
    queue = kit.queue("q")
    queue.enqueue_many([1, 2])
    [task] = queue.claim("w")
    assert caller.call("fail", json.dumps({"id": task.id, "queue": "q", "token": str(task.token)}), "bad")
    assert not queue.ack(task)
    [letter] = queue.dead()
    assert (letter.reason, letter.error) == ("failed", "bad")
    stale = json.dumps({"id": letter.id, "queue": "q", "token": "7"})
    assert not caller.call("ack", stale)
    assert not caller.call("retry", stale)
    assert not caller.call("fail", stale, "x")
    assert not caller.call("extend", stale, 1)


@proves("P2")
def test_locks_limits_and_results(kit: EventKit, caller: Caller) -> None:
    """What one side holds, counts or saves, the other side sees."""
    lock = kit.lock("l")
    held = caller.call("lock_acquire", "l", 30)
    assert set(held) == {"name", "token", "fence"}
    assert caller.call("lock_acquire", "l") is None
    assert not lock.acquire()
    assert not caller.call("lock_release", "l", "7")
    assert caller.call("lock_release", "l", held["token"])
    assert not caller.call("lock_release", "l", held["token"])
    assert lock.acquire()
    assert lock.fence == held["fence"] + 1

    assert [bool(caller.call("rate_limit", "calls", 2, 86_400)) for _ in range(3)] == [True, True, False]
    assert not kit.rate_limit("calls", 2, 86_400)

    assert caller.call("result_get", "r") is None
    assert caller.call("result_save", "r", '{"a": 1}')
    assert caller.call("result_save", 7, '"seven"', 60)
    assert (kit.results.get("r"), kit.results.get(7), kit.results.get("7")) == ({"a": 1}, "seven", None)
    kit.results.save(8, [None])
    assert [caller.call("result_get", id) for id in ("r", 7, 8, "8")] == [{"a": 1}, "seven", [None], None]
    advance(kit, 61)
    assert caller.call("result_get", 7) is None


@proves("P2")
def test_a_transaction_has_it_all_or_nothing(kit: EventKit, caller: Caller) -> None:
    """Whatever was called is undone by a rollback, and seen by others after the commit and not before."""
    queue, stream = kit.queue("q"), kit.stream("t")
    for commit in (False, True):
        queue.purge()
        queue.enqueue(1)
        with caller.transaction(commit=commit):
            caller.call("publish", "t", "1")
            caller.call("enqueue", "q", "2", 0, 0, None, None, None, None, "key")
            caller.call("result_save", "r", "1")
            for task in caller.call("claim", "q", "w", 2):
                assert caller.call("ack", json.dumps(task), "5")
            assert (len(stream.read()), queue.size(), kit.results.get("r")) == (0, 1, None)
        assert (len(stream.read()), queue.size(), kit.results.get("r")) == ((1, 0, 1) if commit else (0, 1, None))
        assert queue.enqueue(3, key="key").created is not commit


@proves("P2")
def test_a_call_that_is_refused_leaves_nothing(kit: EventKit, caller: Caller) -> None:
    """A full queue takes nothing, whatever kind of task it is, and the message says what to do."""
    queue = kit.queue("q")
    queue.configure(max_size=1)
    first = caller.call("enqueue", "q", "1", 0, 60, None, None, None, None, "key")
    for arguments in (["2"], ["2", 0, 60], ["2", 0, None, None, None, None, None, "other"]):
        with pytest.raises(Exception, match="has reached its max_size"):
            caller.call("enqueue", "q", *arguments)
    assert caller.call("enqueue", "q", "1", 0, None, None, None, None, None, "key") == first
    assert queue.size() == 1


BAD: dict[str, tuple[str, list[Any], str]] = {
    "an empty name": ("publish", ["", "1"], "1 to 255 characters"),
    "a long name": ("claim", ["q" * 256, "w"], "1 to 255 characters"),
    "a control character": ("notify", ["a\u0085b", "1"], "no control characters"),
    "no name": ("stats", [None], "name of a queue"),
    "a long key": ("publish", ["t", "1", "k" * 1001], "1 to 1000 characters"),
    "no JSON": ("publish", ["t", "{"], "(?i)json"),
    "a delay and a moment": ("enqueue", ["q", "1", 0, 60, "2100-01-01 00:00:00+00"], "pass one of them"),
    "no payload": ("enqueue", ["q", None], "JSON, not NULL"),
    "NaN": ("publish", ["t", "NaN"], "(?i)json"),
    "too large a number": ("publish", ["t", "[1e999]"], "out of range"),
    "a lone surrogate": ("publish", ["t", '"\\ud800"'], "(?i)surrogate|unexpected end|truncated|JSON"),
    "deep nesting": ("publish", ["t", "[" * 65 + "]" * 65], "nested deeper than 64"),
    "a large payload": ("notify", ["c", '"' + "x" * 524_287 + '"'], "more than 524,288"),
    "a large result": ("result_save", ["r", '"' + "x" * 524_287 + '"'], "more than 524,288"),
    "headers that are no texts": ("publish", ["t", "1", None, '{"a": 1}'], "headers are an object of texts"),
    "headers that are no object": ("notify", ["c", "1", "[]"], "headers are an object of texts"),
    "a limit below one": ("claim", ["q", "w", 0], "limit is a whole number from 1"),
    "an offset below zero": ("save_offset", ["t", "c", -1], "offset is a whole number from 0"),
    "no attempts": ("enqueue", ["q", "1", 0, None, None, 0], "max_attempts is a whole number from 1"),
    "a negative lease": ("claim", ["q", "w", 1, -1], "lease is at least 0"),
    "no ttl": ("lock_acquire", ["l", 0], "ttl is at least 0.001"),
    "two hundred years": ("result_save", ["r", "1", 6e9], "up to a hundred years"),
    "no task": ("ack", ["{}"], "a task is an object with id"),
    "no error": ("fail", ['{"id": 1, "queue": "q", "token": "1"}', None], "error is the text"),
}


@proves("P2", "G8", "G10")
def test_a_mistake_is_an_error_of_the_statement(kit: EventKit, caller: Caller) -> None:
    """What the handles refuse is refused with their words, and nothing is written."""
    for name, arguments, message in BAD.values():
        with pytest.raises(Exception, match=message):
            caller.call(name, *arguments)
    assert (kit.stream("t").read(), kit.queue("q").size(), kit.results.get("r")) == ([], 0, None)


@proves("P2", "G8", "G10")
def test_what_is_good_is_taken(kit: EventKit, caller: Caller) -> None:
    """Whatever the handles take, in the places where the checks look."""
    payloads = ["\0", "\\ud800", "😀", 2**53 + 1, -0.0, 1e308, "1e999 " + "[" * 70, [[[]]] * 70, {"z": 1, "a": None}]
    for payload in payloads:
        caller.call("publish", "a: b 😀", json.dumps(payload))
    caller.call("publish", "a: b 😀", '"' + "x" * 524_286 + '"')
    caller.call("publish", "a: b 😀", "[" * 64 + "]" * 64)
    read = [event.payload for event in kit.stream("a: b 😀").read()]
    assert [json.dumps(payload) for payload in read[:-2]] == [json.dumps(payload) for payload in payloads]
    assert [event["payload"] for event in caller.call("read", "a: b 😀")] == read


@proves("P2", "Q13")
@pytest.mark.parametrize("settings", [{"max_running": 3}, {"rate": 0.001, "burst": 3}], ids=["max_running", "rate"])
def test_a_claim_takes_no_more_than_the_queue_allows(kit: EventKit, caller: Caller, settings: dict[str, Any]) -> None:
    """What functions and handles have claimed counts for both."""
    queue = kit.queue("q")
    queue.configure(**settings)
    queue.enqueue_many(list(range(6)))
    assert [task["payload"] for task in caller.call("claim", "q", "w", 2)] == [0, 1]
    assert [task["payload"] for task in caller.call("claim", "q", "w", 5)] == [2]
    assert caller.call("claim", "q", "w", 5) == []
    assert queue.claim("w") == []


@proves("P2", "W1")
def test_a_call_wakes(kit: EventKit, caller: Caller) -> None:
    """Who waits for a task, an event, a lock or a result is woken."""
    held = caller.call("lock_acquire", "l")
    waiting = [
        background(lambda: kit.queue("q").claim("w", wait=PATIENCE)[0].payload),
        background(lambda: next(iter(kit.stream("t").subscribe())).payload),
        background(lambda: kit.lock("l").acquire(wait=PATIENCE)),
        background(lambda: kit.results.wait("r", PATIENCE)),
    ]
    time.sleep(0.3)  # For them to fall asleep; or they see it when they look.
    started = time.monotonic()
    caller.call("enqueue", "q", "1")
    caller.call("publish", "t", "1")
    caller.call("lock_release", "l", held["token"])
    caller.call("result_save", "r", "1")
    assert [future.result(PATIENCE) for future in waiting] == [1, 1, True, 1]
    assert time.monotonic() - started < 4  # Before the first look on no occasion.
