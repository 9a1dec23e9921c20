"""A model of a queue and its tasks, which gives the correct answer to each call."""

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from eventkit.values import Enqueued

LAPSED = "the lease ran out"
"""A stand-in for the error text that a backend gives to a task whose lease ran out."""

LAST = 2**62
"""The sort position of a task whose position within its tick is not known: behind the others."""


@dataclass
class Clock:
    """The time, in ticks."""

    now: int = 0


@dataclass
class Wish:
    """A task to enqueue; *due* and *expires* are ticks from now."""

    payload: Any
    due: int = 0
    priority: int = 0
    max_attempts: int | None = None
    expires: int | None = None
    key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class ModelTask:
    """A task.  *wakes* is the tick of its next change by time; *place* orders tasks that are due in the same tick."""

    id: int
    wish: Wish
    enqueued: int
    due: int
    expires: int | None
    state: str
    wakes: int | None
    attempt: int = 0
    lapsed: bool = False
    claim: int = 0
    lease: int = 0
    worker: str | None = None
    reason: str | None = None
    error: str | None = None
    result: Any = None
    finished: int | None = None
    place: int = LAST


@dataclass
class Settings:
    """The settings that `configure` stores, in ticks and tasks a tick; *retry* is the base of an exponential policy."""

    max_attempts: int | None = None
    lease: int | None = None
    retry: int | None = None
    max_size: int | None = None
    rate: int | None = None
    burst: int | None = None
    max_running: int | None = None
    keep_done: int | None = None
    key_ttl: int | None = None
    dead_letter_to: str | None = None


_DAY_IN_TICKS = 864
_claims = count(1)


class QueueModel:
    """One queue; *dead_queue* is the queue that its dead tasks may be copied to."""

    def __init__(self, clock: Clock, dead_queue: "QueueModel | None" = None) -> None:
        self.clock = clock
        self.dead_queue = dead_queue
        self.settings = Settings()
        self.paused = False
        self.tasks: dict[int, ModelTask] = {}
        self.copies: list[ModelTask] = []
        """Copies of dead tasks whose ids are not known yet."""
        self._reserved: dict[str, tuple[int, int]] = {}
        self._tokens: int | None = None
        self._refilled = 0
        self._used: set[int] = set()

    def copy(self) -> "QueueModel":
        """Return a copy of the queue, to restore when a transaction is rolled back."""
        other = copy(self)
        other.dead_queue = None if self.dead_queue is None else self.dead_queue.copy()
        other.settings = copy(self.settings)
        other.tasks = {id: copy(task) for id, task in self.tasks.items()}
        other.copies = list(self.copies)
        other._reserved = dict(self._reserved)
        other._used = set(self._used)
        return other

    # Answers.

    def state(self, task: ModelTask) -> str:
        """Return the state of the task by the clock, even if the database has not moved it there yet."""
        now = self.clock.now
        if task.wakes is None or task.wakes > now:
            return task.state
        if task.expires is not None and task.expires <= now:
            return "dead"
        if task.state == "running" and task.attempt >= self.max_attempts(task):
            return "dead"
        return "ready"

    def reason(self, task: ModelTask) -> str | None:
        """Return why the task is dead by the clock, even if the database has not moved it there yet."""
        if task.state == "dead" or self.state(task) != "dead":
            return task.reason
        return "expired" if task.expires is not None and task.expires <= self.clock.now else "exhausted"

    def max_attempts(self, task: ModelTask) -> int:
        """Return how many attempts the task may have."""
        return task.wish.max_attempts or self.settings.max_attempts or 3

    def in_state(self, state: str) -> list[ModelTask]:
        """Return the tasks in these states by the clock, by id."""
        return [task for _, task in sorted(self.tasks.items()) if self.state(task) == state]

    def best(self) -> list[ModelTask]:
        """Return the ready tasks, best first."""
        return sorted(self.in_state("ready"), key=lambda task: (-task.wish.priority, task.due, task.place, task.id))

    def dead(self) -> list[ModelTask]:
        """Return the dead tasks, newest first, including those that no claim or sweep has found yet."""
        self.sweep()
        dead = [task for task in self.tasks.values() if task.state == "dead"]
        return sorted(dead, key=lambda task: (task.finished, task.place, task.id), reverse=True)

    def size(self) -> int:
        """Return the size for the bound; a task that died by the clock counts until a claim or sweep finds it."""
        return sum(task.state in ("scheduled", "ready", "running") for task in self.tasks.values())

    def next_due(self) -> int | None:
        """Return the tick at which the next task is due, which may have passed."""
        due = [task.due for task in self.tasks.values() if task.state == "ready"]
        wakes = [task.wakes for task in self.tasks.values() if task.state in ("scheduled", "running")]
        return min([*due, *(moment for moment in wakes if moment is not None)], default=None)

    def refuses(self, wishes: list[Wish]) -> bool:
        """Return whether the queue has no room for the batch."""
        bound = self.settings.max_size
        if bound is None:
            return False
        keys = {wish.key for wish in wishes if wish.key is not None and self._holder(wish.key) is None}
        new = len(keys) + sum(wish.key is None for wish in wishes)
        return len(wishes) > bound or (new > 0 and self.size() + new > bound)

    # Changes.

    def enqueue(self, wishes: list[Wish], ids: Iterable[int]) -> list[Enqueued]:
        """Add the tasks that are new under *ids*."""
        new = iter(ids)
        return [self._enqueue(wish, new) for wish in wishes]

    def _enqueue(self, wish: Wish, ids: Iterator[int]) -> Enqueued:
        if wish.key is not None and (holder := self._holder(wish.key)) is not None:
            return Enqueued(holder, False)
        id = next(ids, None)
        assert id is not None, "the key is free, so the task is new"
        assert id not in self._used, "no id is used again once it was committed"
        self._used.add(id)
        now = self.clock.now
        due = now + wish.due
        expires = None if wish.expires is None else now + wish.expires
        state = "scheduled" if due > now else "ready"
        wakes = _earlier(due, expires) if due > now else expires
        self.tasks[id] = ModelTask(id, wish, now, due, expires, state, wakes)
        return Enqueued(id, True)

    def _holder(self, key: str) -> int | None:
        for task in self.tasks.values():
            if task.wish.key == key and task.state != "done":
                return task.id
        id, until = self._reserved.get(key, (0, 0))
        return id if until > self.clock.now else None

    def claim(self, worker: str, limit: int, lease: int | None = None) -> list[ModelTask]:
        """Lease the best tasks."""
        now = self.clock.now
        settings = self.settings
        default = 3 if settings.lease is None else settings.lease
        if settings.max_running is not None:
            running = sum(task.state == "running" and (task.wakes or 0) > now for task in self.tasks.values())
            limit = min(limit, settings.max_running - running)
        tokens = self._tokens_now()
        if tokens is not None:
            limit = min(limit, tokens)
        self.sweep()
        chosen = [] if self.paused else self.best()[: max(0, limit)]
        for task in chosen:
            task.state, task.claim, task.worker = "running", next(_claims), worker
            task.attempt += 1
            task.lease = default if lease is None else lease
            task.wakes = now + task.lease
        if chosen and tokens is not None:
            self._tokens, self._refilled = tokens - len(chosen), now
        return chosen

    def _tokens_now(self) -> int | None:
        if self.settings.rate is None:
            return None
        depth = self.settings.burst or 1
        if self._tokens is None:
            return depth
        return min(depth, self._tokens + (self.clock.now - self._refilled) * self.settings.rate)

    def receive(self, limit: int) -> list[ModelTask]:
        """Lease the best tasks and delete them."""
        chosen = self.claim("receive", limit)
        self._remove(chosen)
        return chosen

    def held(self, id: int, claim: int) -> ModelTask | None:
        """Return the task if the claim still holds it."""
        task = self.tasks.get(id)
        if task is None or task.claim != claim or task.state != "running" or (task.wakes or 0) <= self.clock.now:
            return None
        return task

    def ack(self, task: ModelTask, result: Any = None) -> None:
        """Finish a held task."""
        if self.settings.keep_done is None:
            self._remove([task])
            return
        self._reserve(task)
        task.state, task.result, task.finished, task.wakes = "done", result, self.clock.now, None

    def retry(self, task: ModelTask, delay: int | None, error: str | None) -> None:
        """Return a held task to the queue, or mark it dead."""
        if task.attempt >= self.max_attempts(task):
            self.mark_dead(task, "exhausted", error)
            return
        if delay is None:
            assert self.settings.retry is not None
            delay = min(self.settings.retry << (task.attempt - 1), 3)
        task.due, task.place = self.clock.now + delay, LAST
        task.state = "scheduled" if delay else "ready"
        task.wakes = _earlier(task.due, task.expires) if delay else task.expires
        task.error, task.lapsed = error, False

    def mark_dead(self, task: ModelTask, reason: str, error: str | None) -> None:
        """Mark a task dead."""
        now = self.clock.now
        task.state, task.reason, task.error, task.finished, task.wakes = "dead", reason, error, now, None
        task.place = LAST
        if self.settings.dead_letter_to is not None and self.dead_queue is not None:
            wish = Wish(task.wish.payload, priority=task.wish.priority, headers=task.wish.headers)
            self.dead_queue.copies.append(ModelTask(0, wish, now, now, None, "ready", None))

    def release(self, task: ModelTask) -> None:
        """Return a held task as if it had not been claimed."""
        task.state, task.wakes = "ready", task.expires
        task.attempt -= 1

    def cancel(self, id: int, running: bool) -> bool:
        """Delete a task."""
        task = self.tasks.get(id)
        if task is None or self.state(task) not in ("scheduled", "ready", *(["running"] if running else [])):
            return False
        self._remove([task])
        return True

    def sweep(self) -> int:
        """Move the tasks that changed by the clock, and return how many."""
        moved = [task for task in self.tasks.values() if task.wakes is not None and task.wakes <= self.clock.now]
        for task in moved:
            error = LAPSED if task.state == "running" else task.error
            task.lapsed = task.lapsed or task.state == "running"
            if reason := self.reason(task):
                self.mark_dead(task, reason, error)
            else:
                task.state, task.wakes, task.error = "ready", task.expires, error
        return len(moved)

    def purge(self, state: str, age: int = -LAST) -> int:
        """Delete the tasks in a state, or only those that finished at least *age* ticks ago."""
        self.sweep()
        chosen = [task for task in self.tasks.values() if task.state == state]
        chosen = [task for task in chosen if task.finished is None or task.finished <= self.clock.now - age]
        self._remove(chosen)
        return len(chosen)

    def requeue(self, ids: list[int] | None) -> int:
        """Make dead tasks ready again."""
        self.sweep()
        chosen = [task for task in self.tasks.values() if task.state == "dead" and (ids is None or task.id in ids)]
        for task in chosen:
            task.state, task.attempt, task.due, task.place = "ready", 0, self.clock.now, LAST
            task.lapsed = False
            task.wakes = task.expires = task.finished = task.worker = task.reason = task.error = None
        return len(chosen)

    def configure(self, changes: dict[str, Any]) -> None:
        """Change some settings; a new rate or burst fills the bucket."""
        before = (self.settings.rate, self.settings.burst)
        most = self.settings.max_attempts or 3
        for name, value in changes.items():
            setattr(self.settings, name, value)
        if before != (self.settings.rate, self.settings.burst):
            self._tokens = None
        if (self.settings.max_attempts or 3) < most:
            for task in self.in_state("scheduled") + self.in_state("ready"):
                if task.state != "running" and task.attempt >= self.max_attempts(task):
                    self.mark_dead(task, "exhausted", task.error)

    def take_over(self, places: dict[int, tuple[Any, int]]) -> None:
        """Take over the state of the database, which has *places* (payload, and moment for the order) by id."""
        for id in sorted(places.keys() - self.tasks.keys()):
            task = next(task for task in self.copies if task.wish.payload == places[id][0])
            self.copies.remove(task)
            task.id = id
            self.tasks[id] = task
            self._used.add(id)
        keep, now = self.settings.keep_done, self.clock.now
        for task in self.in_state("done"):
            if task.id not in places and (keep is None or (task.finished or 0) + keep <= now):
                del self.tasks[task.id]
        for id, (_, place) in places.items():
            self.tasks[id].place = place

    def _remove(self, tasks: list[ModelTask]) -> None:
        for task in tasks:
            if task.state != "done":
                self._reserve(task)
            del self.tasks[task.id]

    def _reserve(self, task: ModelTask) -> None:
        ttl = _DAY_IN_TICKS if self.settings.key_ttl is None else self.settings.key_ttl
        if task.wish.key is not None and task.enqueued + ttl > self.clock.now:
            self._reserved[task.wish.key] = (task.id, task.enqueued + ttl)


def _earlier(moment: int, other: int | None) -> int:
    return moment if other is None else min(moment, other)
