"""Settings of a worker, and the outcomes of the tasks that it runs: J1, J4, J5, J7."""

import asyncio
import contextvars
import logging
from datetime import timedelta
from typing import Any

import databases
import pytest
import working
from databases import on_both
from working import declared, error_of, gone, state, until

from eventkit import App, AsyncApp, EventKit, Permanent, Retry, Snooze, TaskContext, TaskFailed
from eventkit.app import AsyncTaskContext
from eventkit.conformance import proves
from eventkit.worker import Worker
from eventkit.worker.lifecycle import Shared, settings_of

url, kit = databases.url, databases.kit

variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)


@proves("J1")
@pytest.mark.parametrize("waits", [False, True])
@on_both
def test_async_functions_run(kit: EventKit, url: str, waits: bool) -> None:
    """Functions that wait and functions that end in one step run, and their return values are the results."""
    app, done = declared(url)
    with working.working(app, concurrency=5):
        doubled = kit.queue("default").enqueue_many([{"task": "double", "args": {"number": n}} for n in range(10)])
        assert [kit.results.wait(one.id, working.PATIENCE) for one in doubled] == [n * 2 for n in range(10)]
        for number in range(20):
            kit.queue("default").enqueue({"task": "note", "args": {"item": number, "waits": waits}})
        until(lambda: len(done) == 20 and kit.queue("default").size() == 0)
    assert sorted(done) == [*range(20)]


@proves("J1")
def test_functions_that_block_run_in_threads(kit: EventKit, url: str) -> None:
    app, done = declared(url)
    with working.working(app):
        kit.queue("default").enqueue_many([{"task": "block", "args": {"item": number}} for number in range(5)])
        until(lambda: kit.queue("default").size() == 0)
    assert sorted(done) == [(number, False) for number in range(5)]


@proves("J1")
@on_both
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
def test_a_run_has_context_variables_and_an_asyncio_task_of_its_own(kit: EventKit, url: str) -> None:
    """Its first step runs there too, so that timeouts which begin there find the right task."""
    app, seen, ends = App(url), list[int](), list[str]()

    @app.task
    async def change(waits: bool) -> None:
        seen.append(variable.get())
        variable.set(1)
        if waits:
            await asyncio.sleep(0.001)
            assert variable.get() == 1

    @app.task
    async def patient() -> None:
        try:
            async with asyncio.timeout(0.05):
                await asyncio.sleep(20)
        except TimeoutError:
            ends.append("timeout")

    queue = kit.queue("default")
    with working.working(app, concurrency=1):
        queue.enqueue_many([{"task": "change", "args": {"waits": waits}} for waits in (False, True, False, True)])
        queue.enqueue_many([{"task": "patient"}] * 3)
        until(lambda: queue.size() == 0)
    assert (seen, ends) == ([0] * 4, ["timeout"] * 3)


@proves("J1")
def test_a_batch_is_one_call(kit: EventKit, url: str) -> None:
    app, calls = App(url), list[list[int]]()

    @app.task(queue="many", batch=10, max_attempts=1)
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

    @app.task(max_attempts=1)
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
def test_tasks_enqueue_tasks_and_wait_for_them(kit: EventKit, url: str) -> None:
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
@on_both
def test_schedules_are_fired_by_the_worker(kit: EventKit, url: str) -> None:
    app, runs = App(url), list[str]()

    @app.every("@every 1s")
    @app.task
    async def tick() -> None:
        runs.append("tick")

    with working.working(app):
        until(lambda: len(runs) >= 2)


@proves("J1")
@pytest.mark.parametrize("waits", [False, True])
def test_what_fails_is_tried_again_as_declared(kit: EventKit, url: str, waits: bool) -> None:
    app, done = declared(url)
    with working.working(app):
        id = kit.queue("default").enqueue({"task": "fail", "args": {"waits": waits}}, max_attempts=9).id
        first, second, *rest = error_of(kit, id).splitlines()
    assert (first, rest[-1]) == ("Traceback (most recent call last):", "ValueError: on purpose")
    assert str(working.__file__) in second, "the frames of the worker are left out"
    assert done == ["run"] * 3
    info = kit.queue("default").get(id)
    assert info is not None
    assert (info.attempt, info.reason) == (3, "exhausted")


@proves("J1", "A4", "Q11")
def test_failures_are_isolated(kit: EventKit, url: str) -> None:
    """An exception, a BaseException or an invalid payload on the queue does not affect other tasks."""
    app, done = declared(url)

    class Odd(BaseException):
        pass

    @app.task(max_attempts=1)
    async def odd(waits: bool) -> None:
        if waits:
            await asyncio.sleep(0)
        raise Odd

    @app.task(max_attempts=1)
    async def cancelled_itself() -> None:
        raise asyncio.CancelledError

    @app.task
    async def unsayable() -> object:
        return object()

    @app.task(max_attempts=1)
    async def iterated() -> None:
        raise StopAsyncIteration

    queue = kit.queue("default")
    with working.working(app):
        nonsense = [queue.enqueue(payload).id for payload in ("text", None, {"task": 7}, {"args": {}}, {"to": "ann"})]
        unknown = queue.enqueue({"task": "unknown"}).id
        undecodable = [
            queue.enqueue({"task": "double", "args": args}).id for args in ({"number": "x"}, {}, {"other": 1}, [1], 7)
        ]
        odds = [queue.enqueue({"task": "odd", "args": {"waits": waits}}).id for waits in (False, True)]
        cancelled, silent = queue.enqueue({"task": "cancelled_itself"}).id, queue.enqueue({"task": "unsayable"}).id
        blocked, ended = queue.enqueue({"task": "fail_blocking"}).id, queue.enqueue({"task": "iterated"}).id
        for id in nonsense:
            assert error_of(kit, id).startswith("NOT_A_TASK")
        assert error_of(kit, unknown).startswith("RESOLUTION_ERROR")
        for id in (*undecodable, silent):
            assert error_of(kit, id).startswith("SERIALIZATION_ERROR")
        for id in (*odds, cancelled, blocked, ended):
            assert "Error" in error_of(kit, id) or "Odd" in error_of(kit, id) or "Stop" in error_of(kit, id)
        id = queue.enqueue({"task": "note", "args": {"item": "after"}}).id
        until(lambda: gone(kit, id))
    assert done == ["after"]
    assert {task.id for task in queue.dead() if task.reason == "poison"} == {*nonsense}


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


@proves("J5")
def test_the_worker_is_stopped_by_a_function_that_wants_to_exit(kit: EventKit, url: str) -> None:
    """The failure is recorded first."""
    app = App(url)

    @app.task(max_attempts=1)
    async def leave() -> None:
        raise SystemExit(3)

    id = kit.queue("default").enqueue({"task": "leave"}).id
    asyncio.run(asyncio.wait_for(Worker(app).serve(), working.PATIENCE))
    assert "SystemExit" in error_of(kit, id)


@proves("J1")
def test_log_records_name_the_task(kit: EventKit, url: str, caplog: pytest.LogCaptureFixture) -> None:
    """This includes a task that is not declared."""
    app, _ = declared(url)
    with caplog.at_level(logging.INFO, "eventkit"), working.working(app):
        id = kit.queue("default").enqueue({"task": "fail_blocking"}).id
        assert str(working.__file__) in error_of(kit, id).splitlines()[1], "the frames of the worker are left out"
        unknown = kit.queue("default").enqueue({"task": "unknown"}).id
        error_of(kit, unknown)
    for number, name in ((id, "fail_blocking"), (unknown, "")):
        [record] = [record for record in caplog.records if getattr(record, "task_id", None) == number]
        assert (record.task_name, record.queue, record.attempt) == (name, "default", 1)  # type: ignore[attr-defined]


WRONG: dict[str, Any] = {
    "concurrency": 0,
    "prefetch": -1,
    "processes": 0,
    "shutdown_timeout": -1,
    "lease": 0.5,
    "db_retry_initial_ms": 99,
    "db_retry_max_ms": 300_001,
    "db_retry_max_attempts": 10_001,
    "notify_poll_interval_ms": 999,
    "name": "",
    "queues": ["a", ("a", 2)],
    "url": 7,
}


@proves("J7")
def test_all_wrong_settings_are_reported_at_once() -> None:
    """The error names each setting, before the worker connects."""
    with pytest.raises(ValueError, match="are invalid") as caught:
        App("nonsense://").worker(**WRONG)
    lines = str(caught.value).split("\n")
    assert lines[0] == f"{len(WRONG)} of the worker's settings are invalid:"
    assert len(lines) == len(WRONG) + 1
    for name, line in zip(WRONG, lines[1:], strict=True):
        assert {"name": "worker", "queues": "queue 'a'"}.get(name, name) in line
        with pytest.raises(ValueError, match="1 of the worker's settings are invalid"):
            settings_of({name: WRONG[name]})


@proves("J7")
def test_settings_that_contradict_each_other_or_are_unknown_are_refused() -> None:
    """A contradiction is reported beside all other errors."""
    with pytest.raises(ValueError, match="db_retry_initial_ms is at most db_retry_max_ms"):
        settings_of({"db_retry_initial_ms": 60_000})
    with pytest.raises(ValueError, match="2 of the worker's settings .*\n- concurrency .*\n- db_retry_initial_ms "):
        settings_of({"concurrency": 0, "db_retry_initial_ms": 60_000})
    with pytest.raises(TypeError, match="no setting concurency; the settings are: .*concurrency"):
        App("nonsense://").worker(concurency=3)


@proves("J7")
def test_valid_settings_are_accepted() -> None:
    app = App("nonsense://")
    app.task(queue="c")(nothing)
    given = {"lease": timedelta(minutes=1), "queues": ["a", ("b", 2)], "processes": None}
    shared = Shared(app, settings_of(given), lambda: None)
    assert shared.lease_ms == 60_000
    assert shared.weights == {"a": 1, "b": 2}
    assert Shared(app, settings_of({}), lambda: None).weights == {"c": 1}
    assert shared.processes.free >= 1


def nothing() -> None: ...
