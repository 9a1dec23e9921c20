"""Random calls on a queue, compared with the model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

import eventkit
from eventkit.retry import Exponential
from eventkit.testing import advance
from eventkit.values import NewTask, Task, TaskInfo

from .model_queue import LAPSED, Clock, ModelTask, QueueModel, Wish
from .replaying import HISTORY, Replay

TICK = 100
"""Seconds in a tick: far more than a run takes, so real time never decides what is due."""


class Boom(Exception):
    """An error raised in a transaction to roll it back."""


class Ground:
    """The database that the runs of a machine share; each run has names of its own in it."""

    def __init__(self, connect: Callable[..., Any], url: str) -> None:
        self._connect = connect
        self._url = url
        self.kit = connect(url)
        self.runs = 0

    def reopen(self) -> None:
        """Close the kit and connect again."""
        self.kit.close()
        self.kit = self._connect(self._url)

    def anchor(self) -> datetime:
        """Return the current time of the database's clock."""
        queue = self.kit.queue("the clock")
        id = queue.enqueue(None).id
        moment: datetime = queue.get(id).enqueued_at
        queue.purge()
        return moment

    def pass_time(self, ticks: int) -> None:
        """Let *ticks* pass."""
        advance(self.kit, ticks * TICK)

    @contextmanager
    def transaction(self, commit: bool) -> Iterator[Any]:
        """Run the body in a transaction that commits, or that an exception rolls back."""
        try:
            with self.kit.transaction() as tx:
                yield tx
                if not commit:
                    raise Boom
        except Boom:
            pass


def seconds(ticks: int | None) -> int | None:
    """Return a duration of ticks in seconds."""
    return None if ticks is None else ticks * TICK


def tick(moment: datetime | None, anchor: datetime, now: int) -> int | None:
    """Return the tick of *moment*, at tick *now* of a run that began at *anchor*."""
    return None if moment is None else now + (moment - anchor) // timedelta(seconds=TICK)


Arguments = st.SearchStrategy[dict[str, Any]]
Call = tuple[str, dict[str, Any]]


def _one(choices: list[Any]) -> st.SearchStrategy[Any]:
    """Draw one of the choices."""
    return st.integers(0, len(choices) - 1).map(lambda place: choices[place])


def _any(**arguments: list[Any]) -> Arguments:
    """Draw any combination of the arguments."""
    return _one([dict(zip(arguments, values, strict=True)) for values in product(*arguments.values())])


KEYS = ["a", "b", "c"]
_WISHES = _one(
    [
        Wish(None, *choice)
        for choice in product(
            [0, 0, 0, 0, -1, 1, 2],  # due
            [0, 0, 1, -1],  # priority
            [None, None, 1, 2],  # max_attempts
            [None, None, 0, 1, 2, 3],  # expires
            [None, None, *KEYS],  # key
            [{}, {"trace": "1"}],  # headers
        )
    ]
)
BATCHES = st.lists(_WISHES, max_size=6)
_WHICH = [0, 0, 0, 1, 1, 2, 3, 5, 8]
"""The index of a task: mostly the first ones, which are held or new."""
_SOME = [[], [0], [0, 1], [1, 0], [0, 0], [0, 5], [2, 1, 0]]
TICKS = st.sampled_from([1, 1, 2, 3, 9])
_SETTINGS: dict[str, list[Any]] = {
    "max_attempts": [None, 1, 2],
    "lease": [None, 1, 2],
    "max_size": [None, None, 2, 5],
    "rate": [(None, None), (1, None), (1, 3)],
    "max_running": [None, None, 1, 3],
    "keep_done": [None, 0, 2],
    "key_ttl": [None, 0, 1, 3],
    "dead_letter_to": [None, True],
}
SETTINGS = st.lists(_one([(name, value) for name, values in _SETTINGS.items() for value in values]), max_size=5)
"""The names and values of settings; a ``rate`` comes with a burst."""

PUT_IN = {
    "enqueue": st.fixed_dictionaries({"wish": _WISHES, "exact": st.booleans()}),
    "enqueue_many": st.fixed_dictionaries({"wishes": BATCHES, "plain": st.sampled_from([False, False, True])}),
    "spoil": _any(),
}
TAKE_OUT = {
    "claim": _any(limit=[1, 2, 3, 4], lease=[None, None, 1, 2]),
    "receive": _any(limit=[1, 2, 3]),
}
WORK = {
    "work": _any(batch=[1, 2, 3], count=[1, 2, 3, 4]),
    "handle": _any(which=_WHICH, error=[None, eventkit.Retry(TICK, "text"), eventkit.Permanent("text")]),
}
FINISH = {
    "ack": _any(which=_WHICH, result=[None, {"done": True}]),
    "ack_many": _any(chosen=_SOME),
    "retry": _any(which=_WHICH, delay=[None, None, 0, 1, 2], error=[None, "text"]),
    "fail": _any(which=_WHICH),
    "release": _any(which=_WHICH),
    "extend": _any(which=_WHICH, lease=[1, 2, 3]),
}
_CANCEL = {"cancel": _any(which=_WHICH, running=[False, True])}
CLEAR = _CANCEL | {
    "purge": _any(state=["scheduled", "ready", "running", "dead", "done"]),
    "purge_dead": _any(age=[None, 0, 1, 2]),
    "requeue": _any(chosen=[None, *_SOME]),
    "dead": _any(limit=[1, 2, 9]),
    "sweep": _any(),
    "try_keys": _any(),
}
INTERRUPT = {"reopen": _any(), "pause": _any(), "resume": _any()}

# The order of moments within one tick cannot be read in a transaction, so no existing task becomes due there
# and none is enqueued for an explicit moment.
IN_TRANSACTION = PUT_IN | TAKE_OUT | FINISH | _CANCEL
IN_TRANSACTION["enqueue"] = st.fixed_dictionaries({"wish": _WISHES, "exact": st.just(False)})
IN_TRANSACTION["retry"] = _any(which=_WHICH, delay=[1, 2], error=[None, "text"])

_WEIGHTS = {"enqueue_many": 2, "claim": 4, "resume": 4, "try_keys": 3}
"""The methods that let others do something are drawn more often."""


def scripts(methods: dict[str, Arguments]) -> st.SearchStrategy[list[Call]]:
    """Return a strategy for lists of calls of the methods."""
    calls = {name: st.tuples(st.just(name), arguments) for name, arguments in methods.items()}
    names = st.sampled_from([name for name in methods for _ in range(_WEIGHTS.get(name, 1))])
    return st.lists(names.flatmap(calls.__getitem__), max_size=4)


Row = dict[str, Any]

_RECORDED = {"scheduled": "waiting", "ready": "waiting", "running": "running"}
"""The words of the history for these states."""


class ComparedQueue(RuleBasedStateMachine):
    """A queue and the queue of its dead tasks, which hold the same tasks as their models after every step."""

    def __init__(self, ground: Ground) -> None:
        super().__init__()
        self.ground = ground
        ground.runs += 1
        self.keeps_history = ground.runs % 2 == 0
        self.names = (f"model {ground.runs}", f"dead {ground.runs}")
        self.payloads = 0
        self.held: list[tuple[Task[Any], int]] = []
        """Every claim ever made, rolled back or not, with the model's number for it."""

    def start(self) -> None:
        """Make an empty queue."""
        self.attach()
        clock = Clock()
        self.model = QueueModel(clock, QueueModel(clock))
        self.anchor = self.ground.anchor()
        self.read = self.ground.kit.stream(HISTORY).head()
        self.replay = Replay(*self.names)
        self.queue.configure(retry=Exponential(base=TICK, jitter=0))
        if self.keeps_history:
            self.queue.configure(history=True)
            self.dead_queue.configure(history=True)
        self.model.configure({"retry": 1})

    def attach(self) -> None:
        """Make handles of the current kit."""
        self.queue, self.dead_queue = (self.ground.kit.queue(name) for name in self.names)

    def teardown(self) -> None:
        """Empty the queues, so that the next run does not carry them along."""
        for name in self.names:
            self.ground.kit.queue(name).drop(force=True)

    @invariant()
    def same_tasks(self) -> None:
        """Check that every task equals its model."""
        assert self.model.dead_queue is not None
        for queue, model in ((self.queue, self.model), (self.dead_queue, self.model.dead_queue)):
            infos = queue.tasks(limit=1000)
            model.take_over({info.id: (info.payload, info.finished_ms or info.run_ms) for info in infos})
            assert not model.copies, "a dead task was not copied"
            seen = [self.seen(info) for info in infos]
            assert seen == [self.expected(model, task) for _, task in sorted(model.tasks.items())]

        self.compare_numbers()
        if self.keeps_history:
            self.compare_histories()

    def compare_histories(self) -> None:
        """Check that the history agrees with the model; a task that the model lacks is done or gone."""
        assert self.model.dead_queue is not None
        events = self.ground.kit.stream(HISTORY).read(self.read)
        self.replay.follow(events)
        self.read = events[-1].offset if events else self.read
        recorded = {id: one for id, one in self.replay.tasks.items() if one[0] not in ("done", "gone")}
        tasks = [*self.model.tasks.values(), *self.model.dead_queue.tasks.values()]
        assert recorded == {
            task.id: (_RECORDED.get(task.state, task.state), task.attempt) for task in tasks if task.state != "done"
        }

    def compare_numbers(self) -> None:
        """Check that the counts of the queue equal those of the model."""
        model, stats = self.model, self.queue.stats()
        for state in ("scheduled", "ready", "running", "dead", "done"):
            assert getattr(stats, state) == len(model.in_state(state)), state
        oldest = min((task.due for task in model.best()), default=None)
        age = None if stats.oldest_ready_age is None else int(stats.oldest_ready_age // TICK)
        assert age == (None if oldest is None else model.clock.now - oldest)
        assert stats.paused is model.paused
        assert self.queue.size() == model.size()
        assert tick(self.queue.next_due(), self.anchor, model.clock.now) == model.next_due()
        assert [info.id for info in self.queue.peek(3)] == [task.id for task in model.best()[:3]]

    def seen(self, info: TaskInfo[Any]) -> Row:
        """Return a task of the database in the model's terms."""
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
            "worker": info.worker if info.state == "running" else None,
            "reason": info.reason,
            "error": info.error if info.error in (None, "text") else LAPSED,
            "result": info.result,
            "finished": tick(info.finished_at, anchor, now),
        }

    @staticmethod
    def expected(model: QueueModel, task: ModelTask) -> Row:
        """Return a task of the model, in the same form."""
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
            "leased until": task.wakes if state == "running" else None,
            "worker": task.worker if state == "running" else None,
            "reason": model.reason(task),
            "error": task.error,
            "result": task.result,
            "finished": task.finished,
        }

    def compare_claimed(self, tasks: list[Task[Any]], models: list[ModelTask]) -> None:
        """Check that the claimed tasks are the model's, in its order."""
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
        """Return a claimed task, and the model's if the claim still holds; held tasks come first."""
        pairs = [(task, self.model.held(task.id, claim)) for task, claim in reversed(self.held)]
        pairs.sort(key=lambda pair: pair[1] is None)
        return [pairs[min(which, len(pairs) - 1)]] if pairs else []

    def some_id(self, which: int) -> int:
        """Return the id of a task, or sometimes of none."""
        ids = [0, *sorted(self.model.tasks)]
        return ids[-1 - min(which, len(ids) - 1)]

    def numbered(self, wish: Wish) -> Wish:
        """Return the wish with a payload of its own."""
        self.payloads += 1
        return replace(wish, payload=self.payloads)

    def task(self, wish: Wish, exact: bool) -> NewTask:
        """Return the task to enqueue for a wish: with moments if *exact*, else with durations."""
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
        """Return a copy of the model."""
        return self.model.copy()
