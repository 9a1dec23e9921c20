"""What becomes of tasks that a worker runs: J1 to J4."""

import asyncio
import contextvars
import logging
import threading
import time
from typing import Any

import pytest
import working
from working import error_of, gone, state, until

from eventkit import App, AsyncApp, AsyncTaskContext, EventKit, Permanent, Retry, Snooze, TaskContext, TaskFailed
from eventkit.conformance import proves
from eventkit.testing import advance
from eventkit.worker import Worker

url, kit = working.url, working.kit

variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)


def make(url: str) -> tuple[App, list[Any]]:
    """An app with a task of each kind, and what they have done."""
    app, done = App(url), list[Any]()

    @app.task
    async def note(item: Any, waits: bool = False) -> None:
        done.append(item)
        if waits:
            await asyncio.sleep(0.01)

    @app.task
    def block(item: Any) -> None:
        done.append((item, threading.current_thread() is threading.main_thread()))

    @app.task
    async def double(number: int) -> int:
        return number * 2

    @app.task(retries=2, backoff=[0])
    async def fail(waits: bool = False) -> None:
        done.append("run")
        if waits:
            await asyncio.sleep(0)
        raise ValueError("on purpose")

    @app.task(retries=0)
    def fail_blocking() -> None:
        raise ValueError("on purpose")

    return app, done


@proves("J1")
@pytest.mark.parametrize("waits", [False, True])
def test_async_functions_run(kit: EventKit, url: str, waits: bool) -> None:
    """Those that wait for something, and those that end in one step."""
    app, done = make(url)
    with working.working(app, concurrency=5):
        for number in range(20):
            kit.queue("default").enqueue({"task": "note", "args": {"item": number, "waits": waits}})
        until(lambda: len(done) == 20 and kit.queue("default").size() == 0)
    assert sorted(done) == [*range(20)]


@proves("J1")
def test_functions_that_block_run_in_threads(kit: EventKit, url: str) -> None:
    app, done = make(url)
    with working.working(app):
        kit.queue("default").enqueue_many([{"task": "block", "args": {"item": number}} for number in range(5)])
        until(lambda: kit.queue("default").size() == 0)
    assert sorted(done) == [(number, False) for number in range(5)]


@proves("J1")
def test_what_is_returned_is_the_result(kit: EventKit, url: str) -> None:
    app, _ = make(url)
    with working.working(app):
        ids = [
            enqueued.id
            for enqueued in kit.queue("default").enqueue_many(
                [{"task": "double", "args": {"number": number}} for number in range(10)]
            )
        ]
        assert [kit.results.wait(id, working.PATIENCE) for id in ids] == [number * 2 for number in range(10)]


@proves("J1")
@pytest.mark.parametrize("waits", [False, True])
def test_what_fails_is_tried_again_as_declared(kit: EventKit, url: str, waits: bool) -> None:
    app, done = make(url)
    with working.working(app):
        id = kit.queue("default").enqueue({"task": "fail", "args": {"waits": waits}}, max_attempts=9).id
        assert "ValueError: on purpose" in error_of(kit, id)
    assert done == ["run"] * 3
    info = kit.queue("default").get(id)
    assert info is not None
    assert info.attempt == 3


@proves("J1")
def test_failures_are_isolated(kit: EventKit, url: str) -> None:
    """Neither an exception, nor one that is no Exception, nor nonsense on the queue hurts the rest."""
    app, done = make(url)

    class Odd(BaseException):
        pass

    @app.task(retries=0)
    async def odd(waits: bool) -> None:
        if waits:
            await asyncio.sleep(0)
        raise Odd

    @app.task(retries=0)
    async def cancelled_itself() -> None:
        raise asyncio.CancelledError

    @app.task
    async def unsayable() -> object:
        return object()

    @app.task(retries=0)
    async def iterated() -> None:
        raise StopAsyncIteration

    queue = kit.queue("default")
    with working.working(app):
        nonsense = [queue.enqueue(payload).id for payload in ("text", None, {"task": 7}, {"args": {}})]
        unknown = queue.enqueue({"task": "nobody"}).id
        undecodable = [
            queue.enqueue({"task": "double", "args": args}).id for args in ({"number": "x"}, {}, {"other": 1}, [1], 7)
        ]
        odds = [queue.enqueue({"task": "odd", "args": {"waits": waits}}).id for waits in (False, True)]
        cancelled, silent = queue.enqueue({"task": "cancelled_itself"}).id, queue.enqueue({"task": "unsayable"}).id
        blocked, ended = queue.enqueue({"task": "fail_blocking"}).id, queue.enqueue({"task": "iterated"}).id
        for id in nonsense:
            assert error_of(kit, id).startswith("SERIALIZATION_ERROR")
        assert error_of(kit, unknown).startswith("RESOLUTION_ERROR")
        for id in (*undecodable, silent):
            assert error_of(kit, id).startswith("SERIALIZATION_ERROR")
        for id in (*odds, cancelled, blocked, ended):
            assert "Error" in error_of(kit, id) or "Odd" in error_of(kit, id) or "Stop" in error_of(kit, id)
        id = queue.enqueue({"task": "note", "args": {"item": "after"}}).id
        until(lambda: gone(kit, id))
    assert done == ["after"]


@proves("J1")
@pytest.mark.parametrize("blocking", [False, True])
def test_exceptions_that_say_what_to_do(kit: EventKit, url: str, blocking: bool) -> None:
    app, runs = App(url), list[str]()

    def run(how: str) -> None:
        runs.append(how)
        if how == "permanent":
            raise Permanent("never")
        if how == "snooze":
            raise Snooze(3600)
        raise Retry(3600)

    async def run_async(how: str) -> None:
        run(how)

    app.task(name="run")(run if blocking else run_async)
    queue = kit.queue("default")
    with working.working(app):
        ids = {how: queue.enqueue({"task": "run", "args": {"how": how}}).id for how in ("permanent", "snooze", "retry")}
        assert error_of(kit, ids["permanent"]) == "never"
        until(lambda: state(kit, ids["snooze"]) == state(kit, ids["retry"]) == "scheduled")
        assert [queue.get(ids[how]).attempt for how in ("snooze", "retry")] == [0, 1]  # type: ignore[union-attr]
    assert sorted(runs) == ["permanent", "retry", "snooze"]


@proves("J1")
def test_a_context_acks_in_the_functions_own_transaction(kit: EventKit, url: str) -> None:
    app = App(url)

    @app.task
    async def awaited(ctx: AsyncTaskContext, breaks: bool) -> int:
        async with ctx.transaction() as tx:
            await ctx.kit.stream("effects").publish("awaited", tx=tx)
        if breaks:
            raise ValueError("too late")
        return 7

    @app.task
    def blocking(ctx: TaskContext) -> None:
        ctx.progress(0.5, "half")
        with ctx.transaction() as tx:
            ctx.kit.stream("effects").publish("blocking", tx=tx)

    queue = kit.queue("default")
    with working.working(app):
        id = queue.enqueue({"task": "awaited", "args": {"breaks": False}}).id
        assert kit.results.wait(id, working.PATIENCE) == 7
        ids = [
            id,
            queue.enqueue({"task": "awaited", "args": {"breaks": True}}).id,
            queue.enqueue({"task": "blocking"}).id,
        ]
        until(lambda: all(gone(kit, id) for id in ids))
    assert sorted(event.payload for event in kit.stream("effects").read()) == ["awaited", "awaited", "blocking"]
    assert kit.results.get(f"eventkit:progress:{ids[2]}") == {"fraction": 0.5, "note": "half"}


@proves("J1")
def test_context_variables_are_a_runs_own(kit: EventKit, url: str) -> None:
    app, seen = App(url), list[int]()

    @app.task
    async def change(waits: bool) -> None:
        seen.append(variable.get())
        variable.set(1)
        if waits:
            await asyncio.sleep(0.001)
            assert variable.get() == 1

    with working.working(app, concurrency=1):
        for waits in (False, True, False, True):
            kit.queue("default").enqueue({"task": "change", "args": {"waits": waits}})
        until(lambda: kit.queue("default").size() == 0)
    assert seen == [0] * 4


@proves("J1")
def test_a_function_has_an_asyncio_task_of_its_own(kit: EventKit, url: str) -> None:
    """Also for its first step, so that timeouts which begin there find the right one."""
    app, ends = App(url), list[str]()

    @app.task
    async def patient() -> None:
        try:
            async with asyncio.timeout(0.05):
                await asyncio.sleep(20)
        except TimeoutError:
            ends.append("timeout")

    with working.working(app, concurrency=10):
        kit.queue("default").enqueue_many([{"task": "patient"}] * 10)
        until(lambda: kit.queue("default").size() == 0)
    assert ends == ["timeout"] * 10


@proves("J1")
def test_a_batch_is_one_call(kit: EventKit, url: str) -> None:
    app, calls = App(url), list[list[int]]()

    @app.task(queue="many", batch=10, retries=0)
    async def add(numbers: list[int]) -> None:
        calls.append(numbers)
        if 13 in numbers:
            raise ValueError("unlucky")

    queue = kit.queue("many")
    queue.enqueue_many([{"task": "add", "args": {"numbers": number}} for number in range(25)])
    wrong = queue.enqueue({"task": "add", "args": {"numbers": "x"}}).id
    with working.working(app, concurrency=2):
        until(lambda: queue.size() == 0)
        assert error_of(kit, wrong, "many").startswith("SERIALIZATION_ERROR")
    assert sorted(map(len, calls)) == [5, 10, 10]
    assert sorted(task.payload["args"]["numbers"] for task in queue.dead() if task.id != wrong) == [*range(10, 20)]


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
@pytest.mark.parametrize("blocking", [False, True])
def test_what_takes_too_long_has_failed(kit: EventKit, url: str, blocking: bool) -> None:
    app, ends = App(url), list[str]()
    let_go = threading.Event()

    @app.task(timeout=0.1, retries=0)
    async def slow() -> None:
        try:
            await asyncio.sleep(20)
        finally:
            ends.append("ended")

    @app.task(timeout=0.1, retries=0)
    def slow_blocking(ctx: TaskContext) -> None:
        until(lambda: ctx.cancelled)
        let_go.wait(20)
        ends.append("ended")

    with working.working(app, concurrency=1):
        id = kit.queue("default").enqueue({"task": "slow_blocking" if blocking else "slow"}).id
        assert error_of(kit, id) == "timed out after 0.1 s"
        let_go.set()
        until(lambda: ends == ["ended"])


@proves("J2")
@pytest.mark.parametrize("blocking", [False, True])
def test_cancelling_reaches_the_function(kit: EventKit, url: str, blocking: bool) -> None:
    app, ends = App(url), list[str]()

    @app.task
    async def slow() -> None:
        ends.append("begun")
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    @app.task
    def slow_blocking(ctx: TaskContext) -> None:
        ends.append("begun")
        until(lambda: ctx.cancelled)
        ends.append("cancelled")
        ctx.raise_if_cancelled()

    with working.working(app) as worker:
        id = kit.queue("default").enqueue({"task": "slow_blocking" if blocking else "slow"}).id
        until(lambda: ends == ["begun"])
        assert kit.queue("default").cancel(id, running=True)
        until(lambda: ends == ["begun", "cancelled"])
        name = "slow_blocking" if blocking else "slow"
        until(lambda: worker.metrics.ended.of("default", name, "cancelled").value == 1)
    assert kit.queue("default").dead() == []


@proves("J2")
def test_whoever_loses_the_lease_is_stopped(kit: EventKit, url: str) -> None:
    """Somebody else has the task then, or will have it."""
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

    with working.working(app, lease=1):
        id = kit.queue("default").enqueue({"task": "slow"}).id
        until(lambda: ends == ["begun"])
        advance(kit, 10)
        until(lambda: ends == ["begun", "ended"] and gone(kit, id))


@proves("J2")
def test_leases_are_kept_while_tasks_run(kit: EventKit, url: str) -> None:
    """Also of those that were claimed ahead, and of functions that block."""
    app, runs = App(url), list[str]()

    @app.task
    async def slow() -> None:
        runs.append("async")
        await asyncio.sleep(2)

    @app.task
    def slow_blocking() -> None:
        runs.append("blocking")
        time.sleep(2)

    queue = kit.queue("default")
    with working.working(app, lease=1, concurrency=2, prefetch=1):
        ids = [queue.enqueue({"task": name}).id for name in ("slow", "slow_blocking", "slow")]
        until(lambda: all(gone(kit, id) for id in ids))
    assert sorted(runs) == ["async", "async", "blocking"]


@proves("J3")
def test_only_what_has_a_slot_is_claimed(kit: EventKit, url: str) -> None:
    app = App(url)
    let_go = threading.Event()

    @app.task
    def wait() -> None:
        let_go.wait(20)

    kit.queue("default").enqueue_many([{"task": "wait"}] * 10)
    with working.working(app, concurrency=3, prefetch=2):
        until(lambda: kit.queue("default").stats().leased == 5)
        time.sleep(0.1)
        assert kit.queue("default").stats().leased == 5
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


@proves("J1")
def test_hooks_are_called(kit: EventKit, url: str, caplog: pytest.LogCaptureFixture) -> None:
    app, heard = App(url), list[Any]()

    def worked(ctx: Any, result: Any) -> None:
        heard.append((ctx.task.payload["task"], result))

    @app.on_success
    async def worked_for_all(ctx: Any, result: Any) -> None:
        heard.append(("all", result))

    @app.on_failure
    def failed_for_all(ctx: Any, error: BaseException) -> None:
        heard.append(("failed", str(error)))
        raise RuntimeError("a hook that fails")

    @app.task(on_success=worked)
    async def good() -> int:
        return 7

    @app.task(retries=0)
    def bad() -> None:
        raise ValueError("bad")

    with working.working(app):
        kit.queue("default").enqueue({"task": "good"})
        until(lambda: len(heard) == 2)
        kit.queue("default").enqueue({"task": "bad"})
        until(lambda: len(heard) == 3)
    assert heard == [("good", 7), ("all", 7), ("failed", "bad")]
    assert any("a hook of bad failed" in record.getMessage() for record in caplog.records)


@proves("J1")
def test_tasks_enqueue_tasks_and_somebody_waits_for_them(kit: EventKit, url: str) -> None:
    app = AsyncApp(url)

    @app.task
    async def outer(number: int) -> int:
        handle = await inner.enqueue(number)
        return await handle.result(timeout=working.PATIENCE) + 1

    @app.task
    async def inner(number: int) -> int:
        if number < 0:
            raise Permanent("below zero")
        return number * 2

    with working.working(app):
        id = kit.queue("default").enqueue({"task": "outer", "args": {"number": 3}}).id
        assert kit.results.wait(id, working.PATIENCE) == 7
        id = kit.queue("default").enqueue({"task": "inner", "args": {"number": -3}}).id
        with pytest.raises(TaskFailed, match="below zero"):
            kit.results.wait(id, working.PATIENCE)


@proves("J4")
def test_schedules_are_fired_by_the_worker(kit: EventKit, url: str) -> None:
    app, runs = App(url), list[str]()

    @app.every("@every 1s")
    @app.task
    async def tick() -> None:
        runs.append("tick")

    with working.working(app):
        until(lambda: len(runs) >= 2)


@proves("J5")
def test_the_worker_is_stopped_by_a_function_that_wants_to_exit(kit: EventKit, url: str) -> None:
    """What it has failed of is recorded first."""
    app = App(url)

    @app.task(retries=0)
    async def leave() -> None:
        raise SystemExit(3)

    id = kit.queue("default").enqueue({"task": "leave"}).id
    asyncio.run(asyncio.wait_for(Worker(app).serve(), working.PATIENCE))
    assert "SystemExit" in error_of(kit, id)


@proves("J1")
def test_log_records_name_the_task(kit: EventKit, url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Also of one that nobody has declared."""
    app, _ = make(url)
    with caplog.at_level(logging.INFO, "eventkit"), working.working(app):
        id = kit.queue("default").enqueue({"task": "fail_blocking"}).id
        error_of(kit, id)
        unknown = kit.queue("default").enqueue({"task": "nobody"}).id
        error_of(kit, unknown)
    for number, name in ((id, "fail_blocking"), (unknown, "")):
        [record] = [record for record in caplog.records if getattr(record, "task_id", None) == number]
        assert (record.task_name, record.queue, record.attempt) == (name, "default", 1)  # type: ignore[attr-defined]


@proves("J1")
@pytest.mark.parametrize("task", ["fail", "fail_blocking"])
def test_an_error_begins_where_the_function_does(kit: EventKit, url: str, task: str) -> None:
    """The steps by which a worker calls it tell nobody anything."""
    app, _ = make(url)
    with working.working(app):
        id = kit.queue("default").enqueue({"task": task, "args": {"waits": True} if task == "fail" else {}}).id
        first, second, *_ = error_of(kit, id).splitlines()
    assert first == "Traceback (most recent call last):"
    assert __file__ in second
