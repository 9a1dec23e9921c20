"""Functions of SQL and handles, asked the same at random, answer and do the same (P2)."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from eventkit import EventKit, Exponential
from eventkit.testing import advance

from .calling import Caller, fields
from .clauses import proves
from .replaying import history

TICK = 20
"""Seconds between the moments at which anything may happen, far more than both sides take to be asked."""

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
    """One queue that handles are asked of, and one that functions are."""

    def __init__(self, kit: EventKit, caller: Caller, chance: random.Random, settings: dict[str, Any]) -> None:
        self.kit = kit
        self.caller = caller
        self.chance = chance
        self.handle, self.other = kit.queue("handle"), kit.queue("function")
        for queue in (self.handle, self.other):
            queue.configure(retry=Exponential(base=2 * TICK, jitter=0, cap=500 * TICK), **settings)
        self.ids: dict[int, int] = {}
        self.claimed: list[tuple[Any, str]] = []

    def call(self, name: str, *arguments: Any) -> Any:
        """The answer of a function."""
        return self.caller.call(name, *arguments)

    def enqueue(self) -> None:
        """A task, with whatever may be said of it."""
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
        """Some tasks, for some time."""
        limit, lease = self.chance.choice((1, 3)), self.chance.choice((None, 4 * TICK))
        tasks, found = self.handle.claim("w", limit, lease=lease), self.call("claim", "function", "w", limit, lease)
        assert [(self.ids[t.id], t.attempt, t.max_attempts, t.key, t.lease_ms, t.lapsed) for t in tasks] == [
            (t["id"], t["attempt"], t["max_attempts"], t["key"], t["lease_ms"], t["lapsed"]) for t in found
        ]
        self.claimed += zip(tasks, map(json.dumps, found), strict=True)

    def finish(self) -> None:
        """What a worker may say of a task, whether or not it is still its own."""
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
        """A task that there is, or was."""
        if self.ids:
            mine, theirs = self.chance.choice([*self.ids.items()])
            running = self.chance.random() < 0.5
            assert self.handle.cancel(mine, running) == bool(self.call("cancel", "function", theirs, running))

    def advance(self) -> None:
        """Some time."""
        advance(self.kit, self.chance.choice((1, 5)) * TICK)

    def compare(self) -> None:
        """Both queues hold the same tasks, up to the moments and what their databases call them."""
        for one, two in zip(self.handle.list(), self.other.list(), strict=True):
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
    """The answer; None if the queue is full."""
    try:
        return call()
    except Exception as error:
        if "has reached its max_size" not in str(error):
            raise
        return None


def _words(kit: EventKit, queue: str) -> list[tuple[Any, ...]]:
    """The history of a queue, without moments."""
    return [
        tuple(step[field] for field in ("id", "kind", "attempt", "worker", "priority", "reason", "error"))
        for step in history(kit, queue)
    ]


@proves("P2")
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: ",".join(settings) or "defaults")
def test_functions_and_handles_do_the_same(kit: EventKit, caller: Caller, settings: dict[str, Any]) -> None:
    """The same random calls, by handles on one queue and by functions on another, have the same answers and effects."""
    both = Both(kit, caller, random.Random(repr(settings)), settings)
    for _ in range(50):
        getattr(both, both.chance.choice(ACTS))()
        both.compare()
    for_handles, for_functions = (_words(kit, queue) for queue in ("handle", "function"))
    assert [(both.ids[id], *rest) for id, *rest in for_handles] == for_functions
    assert bool(for_handles) == ("history" in settings)
    copies = len(both.handle.dead()) + len(both.other.dead()) if "dead_letter_to" in settings else 0
    assert kit.queue("graveyard").size() == copies
