"""Claims of a worker, and what ends a run before its function does: J1, J2, J3."""

import asyncio
import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import databases
import eventkit_postgres.connection
import eventkit_sqlite.connection_async
import pytest
import working
from databases import on_both
from working import error_of, gone, state, until

from eventkit import App, EventKit, Notification, Task, TaskContext
from eventkit.app import AsyncTaskContext
from eventkit.conformance import proves
from eventkit.operations.channel import FindNow
from eventkit.operations.claim import Claim
from eventkit.testing import advance

url, kit = databases.url, databases.kit


@proves("J3")
def test_only_what_has_a_slot_is_claimed(kit: EventKit, url: str) -> None:
    app = App(url)
    let_go = threading.Event()

    @app.task
    def wait() -> None:
        let_go.wait(20)

    kit.queue("default").enqueue_many([{"task": "wait"}] * 10)
    with working.working(app, concurrency=3, prefetch=2):
        until(lambda: kit.queue("default").stats().running == 5)
        time.sleep(0.1)
        assert kit.queue("default").stats().running == 5
        let_go.set()
        until(lambda: kit.queue("default").size() == 0)


@proves("J3")
def test_queues_have_their_turns_by_weight(kit: EventKit, url: str) -> None:
    app, runs = App(url), list[str]()

    @app.task(queue="heavy")
    async def heavy() -> None:
        runs.append("heavy")

    @app.task(queue="light")
    async def light() -> None:
        runs.append("light")

    kit.queue("heavy").enqueue_many([{"task": "heavy"}] * 60)
    kit.queue("light").enqueue_many([{"task": "light"}] * 60)
    with working.working(app, concurrency=1, queues=[("heavy", 3), "light"]):
        until(lambda: len(runs) == 120)
    assert 25 <= runs[:40].count("heavy") <= 35


@proves("J3")
@on_both
def test_limits_of_queues_hold_for_all_workers(kit: EventKit, url: str) -> None:
    app, running, most = App(url), set[int](), [0]

    @app.task(queue="narrow", max_running=2)
    async def narrow(number: int) -> None:
        running.add(number)
        most[0] = max(most[0], len(running))
        await asyncio.sleep(0.02)
        running.discard(number)

    kit.queue("narrow").enqueue_many([{"task": "narrow", "args": {"number": number}} for number in range(12)])
    with working.working(app, concurrency=10, name="one"), working.working(app, concurrency=10, name="two"):
        until(lambda: kit.queue("narrow").size() == 0)
    assert most == [2]


@proves("J3", "Q23")
@on_both
def test_a_declared_limit_over_several_queues_holds_for_all_workers(kit: EventKit, url: str) -> None:
    """The worker stores it when it starts; and it claims no more at once than its `max_claim`."""
    app, running, most, claims = App(url), set[int](), [0], list[int]()
    app.cluster_limit("gpu", 2, queues=["train", "infer"])

    async def work(number: int) -> None:
        running.add(number)
        most[0] = max(most[0], len(running))
        await asyncio.sleep(0.02)
        running.discard(number)

    train, infer = (app.task(name=name, queue=name)(work) for name in ("train", "infer"))
    for number in range(12):
        (train, infer)[number % 2].enqueue(number)
    with working.working(app, concurrency=10, name="one"), working.working(app, concurrency=10, name="two"):
        until(lambda: kit.queue("train").size() + kit.queue("infer").size() == 0)
    assert most == [2]
    app.task(name="note", queue="notes")(lambda: claims.append(kit.queue("notes").stats().running))
    kit.queue("notes").enqueue_many([{"task": "note"}] * 9)
    with working.working(app, queues="notes", max_claim=2, concurrency=10):
        until(lambda: len(claims) == 9)
    app.close()


@proves("J5")
@on_both
def test_a_worker_ends_when_its_queues_are_empty(kit: EventKit, url: str) -> None:
    """It also runs what its tasks enqueue, and waits for tasks of other workers; not for later and paused ones."""
    app, runs = App(url), list[str]()

    @app.task
    def chain(left: int) -> None:
        runs.append("chain")
        if left:
            chain.enqueue(left - 1)

    @app.task(max_attempts=2, backoff=[0])
    async def flaky() -> None:
        runs.append("flaky")
        raise ValueError("on purpose")

    chain.enqueue(3)
    flaky.enqueue()
    later = chain.options(delay=3600).enqueue(0)
    kit.queue("default").enqueue({"task": "chain", "args": {"left": 0}}, priority=9)
    [elsewhere] = kit.queue("default").claim("dead worker", lease=1)
    kit.queue("paused").enqueue({"task": "chain", "args": {"left": 0}})
    kit.queue("paused").pause()
    assert app.worker(queues=["default", "paused"], until_empty=True, lease=5).run() == 0
    assert sorted(runs) == ["chain"] * 5 + ["flaky"] * 2
    assert kit.queue("default").get(elsewhere.id) is None
    assert (later.status(), kit.queue("paused").size()) == ("scheduled", 1)
    app.close()


@proves("J1")
def test_a_task_that_expired_while_it_waited_is_not_run(kit: EventKit, url: str) -> None:
    app, runs = App(url), list[str]()

    @app.task
    def occupy() -> None:
        time.sleep(0.6)

    @app.task
    def late() -> None:
        runs.append("late")

    kit.queue("default").enqueue({"task": "occupy"}, priority=1)
    id = kit.queue("default").enqueue({"task": "late"}, expires=0.3).id
    with working.working(app, concurrency=1, prefetch=5):
        until(lambda: state(kit, id) == "dead")
    info = kit.queue("default").get(id)
    assert info is not None
    assert info.reason == "expired"
    assert runs == []


@proves("J2")
@on_both
def test_leases_are_kept_while_tasks_run(kit: EventKit, url: str) -> None:
    """This includes tasks claimed ahead, and blocking functions."""
    app, runs = App(url), list[str]()
    let_go = threading.Event()

    @app.task
    async def slow() -> None:
        runs.append("async")
        await asyncio.to_thread(let_go.wait, working.PATIENCE)

    @app.task
    def slow_blocking() -> None:
        runs.append("blocking")
        let_go.wait(working.PATIENCE)

    queue = kit.queue("default")
    ids = [queue.enqueue({"task": name}).id for name in ("slow", "slow_blocking", "slow")]

    def ends() -> list[int]:
        return [info.lease_expires_ms or 0 for id in ids if (info := queue.get(id))]

    with working.working(app, lease=4, concurrency=2, prefetch=1):
        until(lambda: all(state(kit, id) == "running" for id in ids))
        first = ends()
        until(lambda: all(end > before for end, before in zip(ends(), first, strict=True)))
        let_go.set()
        until(lambda: all(gone(kit, id) for id in ids))
    assert sorted(runs) == ["async", "async", "blocking"]


@proves("Q22")
@pytest.mark.usefixtures("slow_database")
@on_both
def test_a_claimed_task_whose_lease_has_lapsed_is_not_begun(kit: EventKit, url: str) -> None:
    """A lease counts from the claim, however late its answer arrives: once it lapses, another worker has the task."""
    app, runs = App(url), list[int]()
    let_go = threading.Event()

    @app.task
    async def work(number: int) -> None:
        runs.append(number)
        if number == 0:
            # While the event loop is blocked, no lease is extended, and no code runs between this task and the next.
            let_go.wait(working.PATIENCE)

    queue = kit.queue("default")
    queue.enqueue_many([{"task": "work", "args": {"number": number}} for number in range(3)])
    with working.working(app, lease=1, concurrency=1, prefetch=2):
        until(lambda: runs)
        taken = list[Task[Any]]()
        while len(taken) < 3:
            taken += queue.claim("other", 3, wait=working.PATIENCE)
        assert len(queue.ack_many(taken)) == 3
        let_go.set()
        id = queue.enqueue({"task": "work", "args": {"number": 3}}).id
        until(lambda: gone(kit, id))
    assert runs == [0, 3]


@proves("J2")
@on_both
def test_a_run_that_loses_its_lease_is_stopped(kit: EventKit, url: str) -> None:
    """Another worker has the task then, or will have it."""
    app, ends = App(url), list[str]()

    @app.task
    async def slow(ctx: AsyncTaskContext) -> None:
        if ctx.attempt > 1:
            return
        try:
            ends.append("begun")
            await asyncio.sleep(20)
        finally:
            ends.append("ended")

    with working.working(app, lease=3):
        id = kit.queue("default").enqueue({"task": "slow"}).id
        until(lambda: ends == ["begun"])
        advance(kit, 10)
        until(lambda: ends == ["begun", "ended"] and gone(kit, id))


@proves("J2")
@pytest.mark.parametrize("blocking", [False, True])
def test_what_takes_too_long_has_failed(kit: EventKit, url: str, blocking: bool) -> None:
    app, ends = App(url), list[str]()
    let_go = threading.Event()

    @app.task(timeout=0.1, max_attempts=1)
    async def slow() -> None:
        try:
            await asyncio.sleep(20)
        finally:
            ends.append("ended")

    @app.task(timeout=0.1, max_attempts=1)
    def slow_blocking(ctx: TaskContext) -> None:
        until(lambda: ctx.cancelled)
        let_go.wait(20)
        ends.append("ended")

    with working.working(app, concurrency=1):
        id = kit.queue("default").enqueue({"task": "slow_blocking" if blocking else "slow"}).id
        assert error_of(kit, id) == "timed out after 0.1 s"
        let_go.set()
        until(lambda: ends == ["ended"])


def cancellable(url: str) -> tuple[App, list[str]]:
    """Return an app with tasks that last until they are cancelled, and the list of their steps."""
    app, steps = App(url), list[str]()

    @app.task
    async def slow() -> None:
        steps.append("begun")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            steps.append("cancelled")
            raise

    @app.task
    def slow_blocking(ctx: TaskContext) -> None:
        steps.append("begun")
        until(lambda: ctx.cancelled)
        steps.append("cancelled")
        ctx.raise_if_cancelled()

    return app, steps


@proves("J2")
@pytest.mark.parametrize("task", ["slow", "slow_blocking"])
@on_both
def test_cancelling_reaches_the_function(kit: EventKit, url: str, task: str) -> None:
    app, steps = cancellable(url)
    with working.working(app) as worker:
        id = kit.queue("default").enqueue({"task": task}).id
        until(lambda: steps == ["begun"])
        assert kit.queue("default").cancel(id, running=True)
        until(lambda: steps == ["begun", "cancelled"])
        until(lambda: worker.metrics.ended.of("default", task, "cancelled").value == 1)
    assert kit.queue("default").dead() == []


@pytest.fixture
def slow_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delay the listeners' start, and the answers to claims, as on a busy machine."""
    for connection in (eventkit_sqlite.connection_async, eventkit_postgres.connection):
        execute = connection.AsyncConnection.execute

        async def late(self: Any, operation: Any, tx: Any = None, execute: Any = execute) -> Any:
            if isinstance(operation, FindNow):
                await asyncio.sleep(0.5)
            answer = await execute(self, operation, tx)
            if isinstance(operation, Claim) and answer:
                await asyncio.sleep(0.5)
            return answer

        monkeypatch.setattr(connection.AsyncConnection, "execute", late)


@proves("J2")
@pytest.mark.usefixtures("slow_database")
@on_both
def test_what_a_worker_claims_first_can_be_cancelled(kit: EventKit, url: str) -> None:
    """The worker hears cancellations before its first claim."""
    app, steps = cancellable(url)
    id = kit.queue("default").enqueue({"task": "slow"}).id
    with working.working(app, shutdown_timeout=0):
        until(lambda: steps == ["begun"])
        assert kit.queue("default").cancel(id, running=True)
        until(lambda: steps == ["begun", "cancelled"])
        assert gone(kit, id)


@proves("J5")
@pytest.mark.usefixtures("slow_database")
@on_both
def test_a_worker_is_ready_once_its_listeners_are_attached(kit: EventKit, url: str, tmp_path: Path) -> None:
    """Every notification sent after the readiness file exists is heard."""
    app, heard = App(url), list[str]()

    @app.listener("first", "second")
    async def hear(notification: Notification[str]) -> None:
        heard.append(notification.channel)

    with working.working(app, readiness_file=str(tmp_path / "ready")):
        until((tmp_path / "ready").exists)
        for channel in ("second", "first"):
            kit.channel(channel).notify("now")
        until(lambda: sorted(heard) == ["first", "second"])
    assert not (tmp_path / "ready").exists()


@proves("J2", "J5", "J9")
def test_a_function_that_ignores_its_time_limit_keeps_its_slot(kit: EventKit, url: str, tmp_path: Path) -> None:
    """The run is reported and its lease ends; the slot is counted; without a free slot the worker is not ready."""
    app, ready, enough = App(url), tmp_path / "ready", threading.Event()

    @app.task(timeout=0.1, max_attempts=2, backoff=[3600])
    async def stubborn() -> str:
        while not enough.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        return "too late"

    @app.task
    async def other() -> None: ...

    queue = kit.queue("default")
    limited = queue.enqueue({"task": "stubborn"}).id
    with working.working(app, concurrency=2, readiness_file=str(ready)) as worker:
        until(lambda: state(kit, limited) == "scheduled")
        info = queue.get(limited)
        assert info is not None
        assert (info.error, info.code, info.attempt) == ("timed out after 0.1 s", "TIMEOUT", 1)
        until(lambda: worker.metrics.stuck.of().value == 1)
        assert ready.exists()
        cancelled = queue.enqueue({"task": "stubborn"}).id
        until(lambda: state(kit, cancelled) == "running")
        assert queue.cancel(cancelled, running=True)
        until(lambda: not ready.exists())
        assert worker.metrics.stuck.of().value == 2
        waiting = queue.enqueue({"task": "other"}).id
        time.sleep(0.2)
        assert state(kit, waiting) == "ready"
        enough.set()
        until(lambda: gone(kit, waiting))
        assert ready.exists()
        until(lambda: worker.metrics.stuck.of().value == 0)
    assert state(kit, limited) == "scheduled"
    assert kit.results.get(limited) is None
