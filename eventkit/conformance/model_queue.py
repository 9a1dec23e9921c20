"""A task queue in plain Python, for comparison with a real one.

It says what each call answers and what becomes of the tasks.  Time is a number of ticks and passes only by
`Clock.now`.  What the contract leaves to the database is taken over from it: the ids, the order of moments
within one tick, and whether a done task is still there once its time is over.
"""

from collections.abc import Iterable, Iterator
from copy import copy
from itertools import count
from typing import Any

from eventkit.records import Enqueued

from .model_task import LAPSED, LAST, Clock, ModelTask, Settings, Wish

_DAY_IN_TICKS = 864
_claims = count(1)


class QueueModel:
    """One queue; *letters* is the queue that its dead letters may be copied to."""

    def __init__(self, clock: Clock, letters: "QueueModel | None" = None) -> None:
        self.clock = clock
        self.letters = letters
        self.settings = Settings()
        self.paused = False
        self.tasks: dict[int, ModelTask] = {}
        self.copies: list[ModelTask] = []
        """Copies of dead letters whose ids are not known yet."""
        self._reserved: dict[str, tuple[int, int]] = {}
        self._tokens: int | None = None
        self._refilled = 0
        self._used: set[int] = set()

    def copy(self) -> "QueueModel":
        """The queue as it is now, for when a transaction is rolled back."""
        other = copy(self)
        other.letters = None if self.letters is None else self.letters.copy()
        other.settings = copy(self.settings)
        other.tasks = {id: copy(task) for id, task in self.tasks.items()}
        other.copies = list(self.copies)
        other._reserved = dict(self._reserved)
        other._used = set(self._used)
        return other

    # What it tells.

    def state(self, task: ModelTask) -> str:
        """What the task is by the clock, whether or not it has been moved there."""
        now = self.clock.now
        if task.wakes is None or task.wakes > now:
            return task.state
        if task.expires is not None and task.expires <= now:
            return "dead"
        if task.state == "leased" and task.attempt >= self.max_attempts(task):
            return "dead"
        return "ready"

    def reason(self, task: ModelTask) -> str | None:
        """Why the task is dead by the clock, whether or not it has been moved there."""
        if task.state == "dead" or self.state(task) != "dead":
            return task.reason
        return "expired" if task.expires is not None and task.expires <= self.clock.now else "exhausted"

    def max_attempts(self, task: ModelTask) -> int:
        """How many runs the task may have."""
        return task.wish.max_attempts or self.settings.max_attempts or 3

    def in_state(self, state: str) -> list[ModelTask]:
        """The tasks that are in a state by the clock, by id."""
        return [task for _, task in sorted(self.tasks.items()) if self.state(task) == state]

    def best(self) -> list[ModelTask]:
        """What is ready, best first."""
        return sorted(self.in_state("ready"), key=lambda task: (-task.wish.priority, task.due, task.place, task.id))

    def dead(self) -> list[ModelTask]:
        """The dead letters, those among them that nobody has found yet, newest first."""
        self.sweep()
        dead = [task for task in self.tasks.values() if task.state == "dead"]
        return sorted(dead, key=lambda task: (task.finished, task.place, task.id), reverse=True)

    def size(self) -> int:
        """What counts towards the bound: a task that died by the clock does until a claim or a sweep finds it."""
        return sum(task.state in ("scheduled", "ready", "leased") for task in self.tasks.values())

    def next_due(self) -> int | None:
        """When something is due, or was."""
        due = [task.due for task in self.tasks.values() if task.state == "ready"]
        wakes = [task.wakes for task in self.tasks.values() if task.state in ("scheduled", "leased")]
        return min([*due, *(moment for moment in wakes if moment is not None)], default=None)

    def refuses(self, wishes: list[Wish]) -> bool:
        """Whether there is no room for the batch."""
        bound = self.settings.max_size
        if bound is None:
            return False
        keys = {wish.key for wish in wishes if wish.key is not None and self._holder(wish.key) is None}
        new = len(keys) + sum(wish.key is None for wish in wishes)
        return len(wishes) > bound or (new > 0 and self.size() + new > bound)

    # What it does.

    def enqueue(self, wishes: list[Wish], ids: Iterable[int]) -> list[Enqueued]:
        """Add tasks, those that are new under *ids*."""
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
            running = sum(task.state == "leased" and (task.wakes or 0) > now for task in self.tasks.values())
            limit = min(limit, settings.max_running - running)
        tokens = self._tokens_now()
        if tokens is not None:
            limit = min(limit, tokens)
        self.sweep()
        chosen = [] if self.paused else self.best()[: max(0, limit)]
        for task in chosen:
            task.state, task.claim, task.worker = "leased", next(_claims), worker
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
        """The task, if the claim still holds it."""
        task = self.tasks.get(id)
        if task is None or task.claim != claim or task.state != "leased" or (task.wakes or 0) <= self.clock.now:
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
        """Put a held task back, or bury it."""
        if task.attempt >= self.max_attempts(task):
            self.bury(task, "exhausted", error)
            return
        if delay is None:
            assert self.settings.retry is not None
            delay = min(self.settings.retry << (task.attempt - 1), 3)
        task.due, task.place = self.clock.now + delay, LAST
        task.state = "scheduled" if delay else "ready"
        task.wakes = _earlier(task.due, task.expires) if delay else task.expires
        task.error, task.lapsed = error, False

    def bury(self, task: ModelTask, reason: str, error: str | None) -> None:
        """Make a task a dead letter."""
        now = self.clock.now
        task.state, task.reason, task.error, task.finished, task.wakes = "dead", reason, error, now, None
        task.place = LAST
        if self.settings.dead_letter_to is not None and self.letters is not None:
            wish = Wish(task.wish.payload, priority=task.wish.priority, headers=task.wish.headers)
            self.letters.copies.append(ModelTask(0, wish, now, now, None, "ready", None))

    def release(self, task: ModelTask) -> None:
        """Put a held task back as if it had not been claimed."""
        task.state, task.wakes = "ready", task.expires
        task.attempt -= 1

    def cancel(self, id: int, running: bool) -> bool:
        """Delete a task."""
        task = self.tasks.get(id)
        if task is None or self.state(task) not in ("scheduled", "ready", *(["leased"] if running else [])):
            return False
        self._remove([task])
        return True

    def sweep(self) -> int:
        """Move what has changed by the clock; how many."""
        moved = [task for task in self.tasks.values() if task.wakes is not None and task.wakes <= self.clock.now]
        for task in moved:
            error = LAPSED if task.state == "leased" else task.error
            task.lapsed = task.lapsed or task.state == "leased"
            if reason := self.reason(task):
                self.bury(task, reason, error)
            else:
                task.state, task.wakes, task.error = "ready", task.expires, error
        return len(moved)

    def purge(self, state: str, age: int = -LAST) -> int:
        """Delete what is in a state, and finished *age* ticks ago if that is said."""
        self.sweep()
        chosen = [task for task in self.tasks.values() if task.state == state]
        chosen = [task for task in chosen if task.finished is None or task.finished <= self.clock.now - age]
        self._remove(chosen)
        return len(chosen)

    def requeue(self, ids: list[int] | None) -> int:
        """Give dead tasks a new life."""
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
                if task.state != "leased" and task.attempt >= self.max_attempts(task):
                    self.bury(task, "exhausted", task.error)

    def take_over(self, places: dict[int, tuple[Any, int]]) -> None:
        """Learn from the database, which has *places* (payload, and moment for the order) by id."""
        for id in sorted(places.keys() - self.tasks.keys()):
            letter = next(letter for letter in self.copies if letter.wish.payload == places[id][0])
            self.copies.remove(letter)
            letter.id = id
            self.tasks[id] = letter
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
