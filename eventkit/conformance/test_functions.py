"""The SQL functions, alone and beside the handles."""

import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from eventkit import EventKit, Exponential, Truncated
from eventkit.testing import advance

from .calling import Caller, Plain, fields
from .clauses import proves
from .processes import PATIENCE, background
from .replaying import history


@proves("P2")
def test_events_are_published_and_read(kit: EventKit, caller: Caller) -> None:
    """Functions publish, read and save an offset."""
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
def test_a_reader_behind_a_pruned_gap_gets_an_error(kit: EventKit, caller: Caller) -> None:
    """The function reports the same gap as the handle's `Truncated`."""
    stream = kit.stream("t")
    first, *_, last = stream.publish_many([1, 2, 3])
    stream.prune(keep_count=1)
    with pytest.raises(Truncated):
        stream.read(first)
    with pytest.raises(Exception, match="pruned"):
        caller.call("read", "t", first)
    assert [event["offset"] for event in caller.call("read", "t")] == [last]


@proves("P2")
def test_a_task_from_end_to_end(kit: EventKit, caller: Caller) -> None:
    """Functions enqueue a task with all options, claim it as JSON, and finish it with a result."""
    queue = kit.queue("q")
    queue.enqueue(1, priority=3, expires=90, max_attempts=5, key="a", headers={"trace": "1"})
    id = caller.call("enqueue", "q", "1", 3, None, None, 5, 90, None, "b", '{"trace": "1"}')
    assert caller.call("enqueue", "q", "2", None, None, None, None, None, None, "b") == id
    by_handle, by_function = queue.tasks()
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
    assert [task.id for task in queue.tasks()] == [at]
    expired = caller.call("enqueue", "q", "5", 0, None, None, None, -60)
    assert queue.claim("w") == []
    assert [(task.id, task.reason) for task in queue.dead()] == [(expired, "expired")]


@proves("P2", "Q7", "Q13")
def test_functions_keep_the_limits_for_producers(kit: EventKit, caller: Caller) -> None:
    queue = kit.queue("q")
    queue.configure(max_bytes=9, strict_keys=True, enqueue_rate=0.01, enqueue_burst=2)
    id = caller.call("enqueue", "q", '{"a": 1}', 0, None, None, None, None, None, "k")
    for payload, key, error in (('"0123456789"', None, "max_bytes"), ("2", "k", "another payload")):
        with pytest.raises(Exception, match=error):
            caller.call("enqueue", "q", payload, 0, None, None, None, None, None, key)
    assert caller.call("enqueue", "q", '{"a":1.0}', 0, None, None, None, None, None, "k") == id
    caller.call("enqueue", "q", "3")
    with pytest.raises(Exception, match="enqueue_rate: try again in"):
        caller.call("enqueue", "q", "4")
    assert queue.size() == 2


@proves("P2")
def test_a_handle_finishes_what_a_function_claimed(kit: EventKit, caller: Caller) -> None:
    """Functions also finish what a handle claimed: the queue and the token are the same."""
    queue = kit.queue("q")
    queue.enqueue_many([1, 2])
    [task] = queue.claim("w")
    assert caller.call("fail", json.dumps({"id": task.id, "queue": "q", "token": str(task.token)}), "bad")
    assert not queue.ack(task)
    [dead] = queue.dead()
    assert (dead.reason, dead.error) == ("failed", "bad")
    stale = json.dumps({"id": dead.id, "queue": "q", "token": "7"})
    assert not caller.call("ack", stale)
    assert not caller.call("retry", stale)
    assert not caller.call("fail", stale, "x")
    assert not caller.call("extend", stale, 1)


@proves("P2")
def test_locks_limits_and_results(kit: EventKit, caller: Caller) -> None:
    """Functions see what handles hold, count or save, and the other way round."""
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
    assert not kit.limit("calls", count=2, per=86_400).acquire()

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
    """A rollback undoes every call, and other transactions see it only after the commit."""
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
    """A full queue takes no task of any kind, and the message names the remedy."""
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
    "headers that are no texts": ("publish", ["t", "1", None, '{"a": 1}'], "headers are an object of strings"),
    "headers that are no object": ("notify", ["c", "1", "[]"], "headers are an object of strings"),
    "a limit below one": ("claim", ["q", "w", 0], "limit is a whole number from 1"),
    "an offset below zero": ("save_offset", ["t", "c", -1], "offset is a whole number from 0"),
    "no attempts": ("enqueue", ["q", "1", 0, None, None, 0], "max_attempts is a whole number from 1"),
    "a negative lease": ("claim", ["q", "w", 1, -1], "lease is at least 0"),
    "no ttl": ("lock_acquire", ["l", 0], "ttl is at least 0.001"),
    "two hundred years": ("result_save", ["r", "1", 6e9], "up to a hundred years"),
    "no task": ("ack", ["{}"], "a task is an object with id"),
    "no error": ("fail", ['{"id": 1, "queue": "q", "token": "1"}', None], "error is a (str|text)"),
}


@proves("P2", "G8", "G10")
def test_a_mistake_is_an_error_of_the_statement(kit: EventKit, caller: Caller) -> None:
    """Functions refuse what the handles refuse, with the same words, and write nothing."""
    for name, arguments, message in BAD.values():
        with pytest.raises(Exception, match=message):
            caller.call(name, *arguments)
    assert (kit.stream("t").read(), kit.queue("q").size(), kit.results.get("r")) == ([], 0, None)


@proves("P2", "G8", "G10")
def test_what_is_good_is_taken(kit: EventKit, caller: Caller) -> None:
    """Functions accept the values that handles accept at the limits of the checks."""
    payloads = ["\0", "\\ud800", "😀", 2**53 + 1, -0.0, 1e308, "1e999 " + "[" * 70, [[[]]] * 70, {"z": 1, "a": None}]
    for payload in payloads:
        caller.call("publish", "a: b 😀", json.dumps(payload))
    caller.call("publish", "a: b 😀", '"' + "x" * 524_286 + '"')
    caller.call("publish", "a: b 😀", "[" * 64 + "]" * 64)
    read = [event.payload for event in kit.stream("a: b 😀").read()]
    assert [json.dumps(payload) for payload in read[:-2]] == [json.dumps(payload) for payload in payloads]
    assert [event["payload"] for event in caller.call("read", "a: b 😀")] == read


@proves("P2", "W1")
def test_a_call_wakes(kit: EventKit, caller: Caller) -> None:
    """Waiters for a task, an event, a lock or a result wake."""
    held = caller.call("lock_acquire", "l")
    waiting = [
        background(lambda: kit.queue("q").claim("w", wait=PATIENCE)[0].payload),
        background(lambda: next(iter(kit.stream("t").subscribe())).payload),
        background(lambda: kit.lock("l").acquire(wait=PATIENCE)),
        background(lambda: kit.results.wait("r", PATIENCE)),
    ]
    time.sleep(0.3)  # Give the waiters time to fall asleep; those that have not see the change when they look.
    started = time.monotonic()
    caller.call("enqueue", "q", "1")
    caller.call("publish", "t", "1")
    caller.call("lock_release", "l", held["token"])
    caller.call("result_save", "r", "1")
    assert [future.result(PATIENCE) for future in waiting] == [1, 1, True, 1]
    assert time.monotonic() - started < 4  # Less than the fallback poll.


TICK = 20
"""Seconds between the moments at which tasks change: far more than the calls on both sides take."""

SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"keep_done": 60 * TICK, "key_ttl": 5 * TICK},
    {"max_running": 2, "max_attempts": 2},
    {"rate": 1 / TICK, "burst": 3, "dead_letter_to": "graveyard"},
    {"max_size": 4, "history": True},
)

ACTS = ("enqueue", "enqueue", "claim", "claim", "finish", "finish", "finish", "cancel", "advance")

VARYING = {"id", "queue", "run_ms", "enqueued_ms", "expires_ms", "lease_expires_ms", "claimed_ms", "finished_ms"}


class Both:
    """A queue used by handles, and another used by functions."""

    def __init__(self, kit: EventKit, caller: Caller | Plain, chance: random.Random, settings: dict[str, Any]) -> None:
        self.kit = kit
        self.caller = caller
        self.chance = chance
        self.handle, self.other = kit.queue("handle"), kit.queue("function")
        for queue in (self.handle, self.other):
            queue.configure(retry=Exponential(base=2 * TICK, jitter=0, cap=500 * TICK), **settings)
        self.ids: dict[int, int] = {}
        self.claimed: list[tuple[Any, str]] = []

    def call(self, name: str, *arguments: Any) -> Any:
        """Return the answer of a function."""
        return self.caller.call(name, *arguments)

    def enqueue(self) -> None:
        """Enqueue a task with any options."""
        pick = self.chance.choice
        priority, delay, most = pick((0, 0, 5)), pick((None, None, 3 * TICK)), pick((None, 1))
        key, expires = pick((None, None, "a", "b")), pick((None, None, 8 * TICK))
        mine = _or_full(
            lambda: self.handle.enqueue(1, priority=priority, delay=delay, max_attempts=most, expires=expires, key=key)
        )
        theirs = _or_full(
            lambda: self.call("enqueue", "function", "1", priority, delay, None, most, expires, None, key)
        )
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert mine.created == (theirs not in self.ids.values())
            self.ids[mine.id] = theirs

    def claim(self) -> None:
        """Claim some tasks for some time."""
        limit, lease = self.chance.choice((1, 3)), self.chance.choice((None, 4 * TICK))
        tasks, found = self.handle.claim("w", limit, lease=lease), self.call("claim", "function", "w", limit, lease)
        assert [(self.ids[t.id], t.attempt, t.max_attempts, t.key, t.lease_ms, t.lapsed) for t in tasks] == [
            (t["id"], t["attempt"], t["max_attempts"], t["key"], t["lease_ms"], t["lapsed"]) for t in found
        ]
        self.claimed += zip(tasks, map(json.dumps, found), strict=True)

    def finish(self) -> None:
        """Finish a task in any way, whether the worker still holds it or not."""
        if not self.claimed:
            return
        task, text = self.chance.choice(self.claimed[-4:])
        act, delay = self.chance.choice(("ack", "retry", "fail", "extend")), self.chance.choice((None, 0, 2 * TICK))
        if act == "ack":
            ours, theirs = self.handle.ack(task), self.call("ack", text)
        elif act == "retry":
            ours, theirs = self.handle.retry(task, delay=delay, error="e"), self.call("retry", text, delay, "e")
        elif act == "fail":
            ours, theirs = self.handle.fail(task, "f"), self.call("fail", text, "f")
        else:
            ours, theirs = self.handle.extend(task, 6 * TICK), self.call("extend", text, 6 * TICK)
        assert ours == bool(theirs)

    def cancel(self) -> None:
        """Cancel a task that exists or existed."""
        if self.ids:
            mine, theirs = self.chance.choice([*self.ids.items()])
            running = self.chance.random() < 0.5
            assert self.handle.cancel(mine, running) == bool(self.call("cancel", "function", theirs, running))

    def advance(self) -> None:
        """Let some time pass."""
        advance(self.kit, self.chance.choice((1, 5)) * TICK)

    def compare(self) -> None:
        """Check that both queues hold the same tasks, apart from times and ids."""
        for one, two in zip(self.handle.tasks(), self.other.tasks(), strict=True):
            assert self.ids[one.id] == two.id
            assert {k: v for k, v in fields(one).items() if k not in VARYING} == {
                k: v for k, v in fields(two).items() if k not in VARYING
            }
            assert abs((one.run_ms - one.enqueued_ms) - (two.run_ms - two.enqueued_ms)) < TICK * 900
        counted, stats = fields(self.handle.stats()), self.call("stats", "function")
        ages = counted.pop("oldest_ready_age"), stats.pop("oldest_ready_age")
        assert (ages[0] is None) == (ages[1] is None)
        assert counted == stats


def _or_full(call: Callable[[], Any]) -> Any:
    """Return the answer; None if the queue is full."""
    try:
        return call()
    except Exception as error:
        if "has reached its max_size" not in str(error):
            raise
        return None


def _words(kit: EventKit, queue: str) -> list[tuple[Any, ...]]:
    """Return the history of a queue, without times."""
    return [
        tuple(step[field] for field in ("id", "kind", "attempt", "worker", "priority", "reason", "error"))
        for step in history(kit, queue)
    ]


@proves("P2")
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: ",".join(settings) or "defaults")
def test_functions_and_handles_do_the_same(kit: EventKit, caller: Caller, settings: dict[str, Any]) -> None:
    """The same random calls, by handles on one queue and by functions on another, have the same answers and effects."""
    do_the_same(kit, caller, settings)


@proves("P3")
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: ",".join(settings) or "defaults")
def test_plain_sql_and_handles_do_the_same(kit: EventKit, plain: Plain, settings: dict[str, Any]) -> None:
    """The same random calls, by handles and by plain SQL, have the same answers and effects."""
    do_the_same(kit, plain, settings)


def do_the_same(kit: EventKit, caller: Caller | Plain, settings: dict[str, Any]) -> None:
    """Make random calls on two queues with the same settings, and compare the queues after each."""
    both = Both(kit, caller, random.Random(repr(settings)), settings)
    for _ in range(50):
        getattr(both, both.chance.choice(ACTS))()
        both.compare()
    for_handles, for_functions = (_words(kit, queue) for queue in ("handle", "function"))
    assert [(both.ids[id], *rest) for id, *rest in for_handles] == for_functions
    assert bool(for_handles) == ("history" in settings)
    copies = len(both.handle.dead()) + len(both.other.dead()) if "dead_letter_to" in settings else 0
    assert kit.queue("graveyard").size() == copies
