"""Random calls on a queue, each compared with the model."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

import eventkit
from eventkit.values import NewTask

from .model_queue import ModelTask, Wish
from .queue_calls import (
    BATCHES,
    CLEAR,
    FINISH,
    IN_TRANSACTION,
    INTERRUPT,
    KEYS,
    PUT_IN,
    SETTINGS,
    TAKE_OUT,
    TICK,
    TICKS,
    WORK,
    Call,
    ComparedQueue,
    scripts,
    seconds,
)


class QueueMachine(ComparedQueue):
    """A state machine in which every answer of the queue equals its model's."""

    @initialize(wishes=BATCHES, settings=SETTINGS)
    def begin(self, wishes: list[Wish], settings: list[tuple[str, Any]]) -> None:
        """Begin with some settings and some tasks."""
        self.start()
        self.configure(settings)
        self.enqueue_many(wishes, plain=False)

    @rule(calls=scripts(PUT_IN))
    def put_in(self, calls: list[Call]) -> None:
        """Enqueue some tasks."""
        self.play(calls)

    @rule(calls=scripts(TAKE_OUT))
    def take_out(self, calls: list[Call]) -> None:
        """Claim or receive some tasks."""
        self.play(calls)

    @rule(calls=scripts(WORK))
    def take_out_and_finish(self, calls: list[Call]) -> None:
        """Tasks, one after another."""
        self.play(calls)

    @rule(calls=scripts(FINISH))
    def finish(self, calls: list[Call]) -> None:
        """Finish a task, even if its lease has lapsed."""
        self.play(calls)

    @rule(calls=scripts(CLEAR))
    def clear(self, calls: list[Call]) -> None:
        """Something that a person would do."""
        self.play(calls)

    @rule(calls=scripts(INTERRUPT))
    def interrupt(self, calls: list[Call]) -> None:
        """Reopen the kit, or pause or resume the queue."""
        self.play(calls)

    # Enqueueing.

    def enqueue(self, wish: Wish, exact: bool, tx: Any = None) -> None:
        """Enqueue one task."""
        wish = self.numbered(wish)
        refused = self.model.refuses([wish])
        task = self.task(wish, exact)
        arguments = {name: getattr(task, name) for name in NewTask.__struct_fields__ if name != "queue"}
        try:
            answer = self.queue.enqueue(arguments.pop("payload"), **arguments, tx=tx)
        except eventkit.QueueFull:
            assert refused
            return
        assert not refused
        assert self.model.enqueue([wish], [answer.id] if answer.created else []) == [answer]

    def enqueue_many(self, wishes: list[Wish], plain: bool, tx: Any = None) -> None:
        """Enqueue a batch, all or none; *plain* passes bare payloads."""
        wishes = [self.numbered(Wish(None) if plain else wish) for wish in wishes]
        refused = self.model.refuses(wishes)
        items = [wish.payload if plain else self.task(wish, exact=False) for wish in wishes]
        try:
            answers = self.queue.enqueue_many(items, tx=tx)
        except eventkit.QueueFull:
            assert refused
            return
        assert not refused
        assert self.model.enqueue(wishes, [answer.id for answer in answers if answer.created]) == answers

    def spoil(self, tx: Any = None) -> None:
        """Check that a batch with a value that is not JSON leaves no task."""
        try:
            self.queue.enqueue_many([1, NewTask(float("nan"))], tx=tx)
        except ValueError:
            return
        raise AssertionError("NaN was accepted")

    # Claiming.

    def claim(self, limit: int, lease: int | None, tx: Any = None) -> None:
        """Claim a batch."""
        tasks = self.queue.claim("worker", limit, lease=seconds(lease), tx=tx)
        self.compare_claimed(tasks, self.model.claim("worker", limit, lease))
        self.held += [(task, self.model.tasks[task.id].claim) for task in tasks]

    def receive(self, limit: int, tx: Any = None) -> None:
        """Claim a batch and delete it."""
        self.compare_claimed(self.queue.receive(limit, tx=tx), self.model.receive(limit))

    def work(self, batch: int, count: int) -> None:
        """Close an iterator, which releases the tasks it claimed and did not yield."""
        with self.ground.transaction(commit=False) as tx:
            count = min(count, len(self.queue.claim("counting worker", 100, tx=tx)))
        if not count:
            return
        claimed: list[ModelTask] = []
        with self.queue.work("worker", batch=batch) as tasks:
            for _ in range(count):
                task = next(tasks)
                claimed = claimed or self.model.claim("worker", batch)
                self.compare_claimed([task], [claimed.pop(0)])
                self.held.append((task, self.model.tasks[task.id].claim))
        for left in claimed:
            self.model.release(left)

    # Finishing, also of tasks whose lease has long lapsed.

    def ack(self, which: int, result: Any, tx: Any = None) -> None:
        """Ack a task."""
        for task, held in self.pick(which):
            assert self.queue.ack(task, result=result, tx=tx) is (held is not None)
            if held:
                self.model.ack(held, result)

    def ack_many(self, chosen: list[int], tx: Any = None) -> None:
        """Ack several tasks, some perhaps twice."""
        pairs = [pair for which in chosen for pair in self.pick(which)]
        ours = {held.id: held for _, held in pairs if held}
        assert self.queue.ack_many([task for task, _ in pairs], tx=tx) == sorted(ours)
        for held in ours.values():
            self.model.ack(held)

    def retry(self, which: int, delay: int | None, error: str | None, tx: Any = None) -> None:
        """Retry a task, or mark it dead."""
        for task, held in self.pick(which):
            assert self.queue.retry(task, delay=seconds(delay), error=error, tx=tx) is (held is not None)
            if held:
                self.model.retry(held, delay, error)

    def fail(self, which: int, tx: Any = None) -> None:
        """Fail a task."""
        for task, held in self.pick(which):
            assert self.queue.fail(task, "text", tx=tx) is (held is not None)
            if held:
                self.model.mark_dead(held, "failed", "text")

    def release(self, which: int, tx: Any = None) -> None:
        """Release a task."""
        for task, held in self.pick(which):
            assert self.queue.release(task, tx=tx) is (held is not None)
            if held:
                self.model.release(held)

    def extend(self, which: int, lease: int, tx: Any = None) -> None:
        """Extend a lease."""
        for task, held in self.pick(which):
            assert self.queue.extend(task, lease * TICK, tx=tx) is (held is not None)
            if held:
                held.wakes = self.model.clock.now + lease

    def handle(self, which: int, error: Exception | None) -> None:
        """Run `handling` with a body that ends well, or raises one of its requests."""
        for task, held in self.pick(which):
            with self.queue.handling(task):
                if error is not None:
                    raise error
            if held and error is None:
                self.model.ack(held)
            elif held and isinstance(error, eventkit.Retry):
                self.model.retry(held, 1, "text")
            elif held:
                self.model.mark_dead(held, "failed", "text")

    # Administration.

    def cancel(self, which: int, running: bool, tx: Any = None) -> None:
        """Cancel a task."""
        id = self.some_id(which)
        assert self.queue.cancel(id, running, tx=tx) is self.model.cancel(id, running)

    def purge(self, state: str) -> None:
        """Purge tasks."""
        assert self.queue.purge(state) == self.model.purge(state)

    def dead(self, limit: int) -> None:
        """List the newest dead tasks."""
        assert [info.id for info in self.queue.dead(limit)] == [task.id for task in self.model.dead()[:limit]]

    def purge_dead(self, age: int | None) -> None:
        """Purge dead tasks."""
        expected = self.model.purge("dead") if age is None else self.model.purge("dead", age)
        assert self.queue.purge_dead(seconds(age)) == expected

    def requeue(self, chosen: list[int] | None) -> None:
        """Requeue some dead tasks, or all."""
        ids = None if chosen is None else [self.some_id(which) for which in chosen]
        assert self.queue.requeue(ids) == self.model.requeue(ids)

    def try_keys(self) -> None:
        """Find the keys that are taken, and the ids that hold them, in a transaction that is rolled back."""
        model = self.remember()
        with self.ground.transaction(commit=False) as tx:
            self.enqueue_many([Wish(None, key=key) for key in KEYS], plain=False, tx=tx)
        self.model = model

    def sweep(self) -> None:
        """Sweep: move the tasks that a claim would move."""
        assert self.queue.sweep() == self.model.sweep()

    def pause(self) -> None:
        """Pause the queue."""
        self.queue.pause()
        self.model.paused = True

    def resume(self) -> None:
        """Resume the queue."""
        self.queue.resume()
        self.model.paused = False

    @rule(settings=SETTINGS)
    def configure(self, settings: list[tuple[str, Any]]) -> None:
        """Change some settings."""
        changes = dict(settings)
        if "dead_letter_to" in changes:
            changes["dead_letter_to"] = self.names[1] if changes["dead_letter_to"] else None
        if "rate" in changes:
            changes["rate"], changes["burst"] = changes["rate"]
        self.model.configure(changes)
        durations = {name: seconds(changes[name]) for name in ("lease", "keep_done", "key_ttl") if name in changes}
        rate = {"rate": 1 / TICK} if changes.get("rate") else {}
        self.queue.configure(**changes | durations | rate)

    @rule()
    def let_a_tick_pass(self) -> None:
        """Let one tick pass; most moments are only one or two ticks away."""
        self.let_time_pass(1)

    @rule(ticks=TICKS)
    def let_time_pass(self, ticks: int) -> None:
        """Let several ticks pass."""
        self.ground.pass_time(ticks)
        self.model.clock.now += ticks

    def reopen(self) -> None:
        """Connect a new kit."""
        self.ground.reopen()
        self.attach()

    # Transactions.

    @rule(
        before=scripts(IN_TRANSACTION),
        inside=scripts(IN_TRANSACTION),
        after=scripts(IN_TRANSACTION),
        keep=st.booleans(),
        commit=st.booleans(),
    )
    def transaction(self, before: list[Call], inside: list[Call], after: list[Call], keep: bool, commit: bool) -> None:
        """Check that work rolled back, whole or to a savepoint, leaves no trace."""
        whole = self.remember()
        with self.ground.transaction(commit) as tx:
            self.play(before, tx)
            tx.execute("SAVEPOINT model")
            part = self.remember()
            self.play(inside, tx)
            if not keep:
                tx.execute("ROLLBACK TO SAVEPOINT model")
                self.model = part
            tx.execute("RELEASE SAVEPOINT model")
            self.play(after, tx)
        if not commit:
            self.model = whole

    def play(self, script: list[Call], tx: Any = None) -> None:
        """Make some calls, in one transaction or each in its own."""
        for name, arguments in script:
            getattr(self, name)(**arguments, **{} if tx is None else {"tx": tx})
