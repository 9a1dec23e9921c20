"""The outcome of failing tasks, and their effect on the worker: J1, J5."""

import asyncio
import logging

import databases
import pytest
import working
from working import declared, error_of, gone, state, until

from eventkit import App, EventKit, Permanent, Retry, Snooze
from eventkit.conformance import proves
from eventkit.worker import Worker

url, kit = databases.url, databases.kit


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
        error_of(kit, id)
        unknown = kit.queue("default").enqueue({"task": "unknown"}).id
        error_of(kit, unknown)
    for number, name in ((id, "fail_blocking"), (unknown, "")):
        [record] = [record for record in caplog.records if getattr(record, "task_id", None) == number]
        assert (record.task_name, record.queue, record.attempt) == (name, "default", 1)  # type: ignore[attr-defined]
