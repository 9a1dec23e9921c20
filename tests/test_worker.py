"""Outcomes of the tasks that a worker runs: J1, J4."""

import asyncio
import contextvars
from typing import Any

import databases
import pytest
import working
from databases import on_both
from working import declared, error_of, gone, until

from eventkit import App, AsyncApp, EventKit, Permanent, TaskContext, TaskFailed
from eventkit.app import AsyncTaskContext
from eventkit.conformance import proves

url, kit = databases.url, databases.kit

variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)


@proves("J1")
@pytest.mark.parametrize("waits", [False, True])
@on_both
def test_async_functions_run(kit: EventKit, url: str, waits: bool) -> None:
    """Functions that wait and functions that end in one step run, and what is returned is the result."""
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
