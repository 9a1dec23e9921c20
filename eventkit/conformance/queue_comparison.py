"""A queue beside its model: what is compared, and how the one's words become the other's."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine, invariant

from eventkit.records import NewTask, Task, TaskInfo
from eventkit.retry import Exponential

from .machines import TICK, Ground, seconds, tick
from .model_queue import QueueModel
from .model_task import LAPSED, Clock, ModelTask, Wish
from .replaying import HISTORY, Replay

Row = dict[str, Any]

_TOLD = {"scheduled": "waiting", "ready": "waiting", "leased": "running"}
"""What the history calls these states."""


class ComparedQueue(RuleBasedStateMachine):
    """A queue and the queue of its dead letters, which hold the same tasks as their models after every step."""

    def __init__(self, ground: Ground) -> None:
        super().__init__()
        self.ground = ground
        ground.runs += 1
        self.keeps_history = ground.runs % 2 == 0
        self.names = (f"model {ground.runs}", f"letters {ground.runs}")
        self.payloads = 0
        self.held: list[tuple[Task[Any], int]] = []
        """What was claimed ever, rolled back or not, with the model's number for the claim."""

    def start(self) -> None:
        """An empty queue."""
        self.attach()
        clock = Clock()
        self.model = QueueModel(clock, QueueModel(clock))
        self.anchor = self.ground.anchor()
        self.read = self.ground.kit.stream(HISTORY).head()
        self.replay = Replay(*self.names)
        self.queue.configure(retry=Exponential(base=TICK, jitter=0))
        if self.keeps_history:
            self.queue.configure(history=True)
            self.letters.configure(history=True)
        self.model.configure({"retry": 1})

    def attach(self) -> None:
        """Take handles of the kit there is."""
        self.queue, self.letters = (self.ground.kit.queue(name) for name in self.names)

    def teardown(self) -> None:
        """Leave nothing for the next run to carry along."""
        for name in self.names:
            self.ground.kit.queue(name).drop(force=True)

    @invariant()
    def same_tasks(self) -> None:
        """Every task is what the model says."""
        assert self.model.letters is not None
        for queue, model in ((self.queue, self.model), (self.letters, self.model.letters)):
            infos = queue.list(limit=1000)
            model.take_over({info.id: (info.payload, info.finished_ms or info.run_ms) for info in infos})
            assert not model.copies, "a dead letter was not copied"
            seen = [self.seen(info) for info in infos]
            assert seen == [self.expected(model, task) for _, task in sorted(model.tasks.items())]

        self.compare_numbers()
        if self.keeps_history:
            self.compare_histories()

    def compare_histories(self) -> None:
        """The events tell of every task what the model knows; what it has no more is done or gone."""
        assert self.model.letters is not None
        events = self.ground.kit.stream(HISTORY).read(self.read)
        self.replay.follow(events)
        self.read = events[-1].offset if events else self.read
        told = {id: one for id, one in self.replay.tasks.items() if one[0] not in ("done", "gone")}
        tasks = [*self.model.tasks.values(), *self.model.letters.tasks.values()]
        assert told == {
            task.id: (_TOLD.get(task.state, task.state), task.attempt) for task in tasks if task.state != "done"
        }

    def compare_numbers(self) -> None:
        """The queue counts as the model does."""
        model, stats = self.model, self.queue.stats()
        for state in ("scheduled", "ready", "leased", "dead", "done"):
            assert getattr(stats, state) == len(model.in_state(state)), state
        oldest = min((task.due for task in model.best()), default=None)
        age = None if stats.oldest_ready_age is None else int(stats.oldest_ready_age // TICK)
        assert age == (None if oldest is None else model.clock.now - oldest)
        assert stats.paused is model.paused
        assert self.queue.size() == model.size()
        assert tick(self.queue.next_due(), self.anchor, model.clock.now) == model.next_due()
        assert [info.id for info in self.queue.peek(3)] == [task.id for task in model.best()[:3]]

    def seen(self, info: TaskInfo[Any]) -> Row:
        """A task of the database in the model's words."""
        anchor, now = self.anchor, self.model.clock.now
        return {
            "id": info.id,
            "state": info.state,
            "payload": info.payload,
            "key": info.key,
            "headers": info.headers,
            "priority": info.priority,
            "attempt": info.attempt,
            "max_attempts": info.max_attempts,
            "due": tick(info.run_at, anchor, now),
            "enqueued": tick(info.enqueued_at, anchor, now),
            "expires": tick(info.expires_at, anchor, now),
            "leased until": tick(info.lease_expires_at, anchor, now),
            "worker": info.worker if info.state == "leased" else None,
            "reason": info.reason,
            "error": info.error if info.error in (None, "text") else LAPSED,
            "result": info.result,
            "finished": tick(info.finished_at, anchor, now),
        }

    @staticmethod
    def expected(model: QueueModel, task: ModelTask) -> Row:
        """A task of the model, in the same form."""
        state = model.state(task)
        return {
            "id": task.id,
            "state": state,
            "payload": task.wish.payload,
            "key": task.wish.key,
            "headers": task.wish.headers,
            "priority": task.wish.priority,
            "attempt": task.attempt,
            "max_attempts": model.max_attempts(task),
            "due": task.due,
            "enqueued": task.enqueued,
            "expires": task.expires,
            "leased until": task.wakes if state == "leased" else None,
            "worker": task.worker if state == "leased" else None,
            "reason": model.reason(task),
            "error": task.error,
            "result": task.result,
            "finished": task.finished,
        }

    def compare_claimed(self, tasks: list[Task[Any]], models: list[ModelTask]) -> None:
        """The tasks that were handed out are the model's, in its order."""
        assert [task.id for task in tasks] == [model.id for model in models]
        now = self.model.clock.now
        for task, model in zip(tasks, models, strict=True):
            assert task.payload == model.wish.payload
            assert (task.key, task.headers, task.priority) == (model.wish.key, model.wish.headers, model.wish.priority)
            assert (task.attempt, task.max_attempts) == (model.attempt, self.model.max_attempts(model))
            assert task.lapsed is model.lapsed
            assert tick(task.run_at, self.anchor, now) == model.due
            assert tick(task.enqueued_at, self.anchor, now) == model.enqueued
            assert tick(task.expires_at, self.anchor, now) == model.expires
            assert tick(task.lease_expires_at, self.anchor, now) == now + model.lease

    def pick(self, which: int) -> list[tuple[Task[Any], ModelTask | None]]:
        """A task that was claimed once, and the model's if the claim still holds; those that are held come first."""
        pairs = [(task, self.model.held(task.id, claim)) for task, claim in reversed(self.held)]
        pairs.sort(key=lambda pair: pair[1] is None)
        return [pairs[min(which, len(pairs) - 1)]] if pairs else []

    def some_id(self, which: int) -> int:
        """The id of a task, or sometimes of none."""
        ids = [0, *sorted(self.model.tasks)]
        return ids[-1 - min(which, len(ids) - 1)]

    def numbered(self, wish: Wish) -> Wish:
        """The wish with a payload of its own."""
        self.payloads += 1
        return replace(wish, payload=self.payloads)

    def task(self, wish: Wish, exact: bool) -> NewTask:
        """What to enqueue for a wish: with moments where *exact*, else with durations."""
        expires: Any = seconds(wish.expires)
        if exact and wish.expires is not None:
            expires = self.anchor + timedelta(seconds=TICK * wish.expires)
        return NewTask(
            wish.payload,
            delay=seconds(wish.due) if wish.due and not exact else None,
            run_at=self.anchor + timedelta(seconds=TICK * wish.due) if wish.due and exact else None,
            priority=wish.priority,
            max_attempts=wish.max_attempts,
            expires=expires,
            key=wish.key,
            headers=wish.headers,
        )

    def remember(self) -> QueueModel:
        """The model as it is now."""
        return self.model.copy()
