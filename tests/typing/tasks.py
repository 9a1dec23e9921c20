"""Types of declared tasks as type checkers see them.  Checked by mypy and pyright, never run."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, assert_type

from payloads import Alert, Email, Order
from sqlalchemy.orm import Session

import eventkit
from eventkit import AsyncEventKit, Event, EventKit, NewTask, Notification, Progress, Task, TaskContext, TaskHandle
from eventkit.app import AsyncTaskContext, AsyncTaskHandle
from eventkit.testing import Ran, assert_enqueued, assert_published, drain, drain_async
from eventkit.values import TaskInfo, TaskState

app = eventkit.App("sqlite:///shop.db")
async_app = eventkit.AsyncApp("sqlite:///shop.db")


blueprint = eventkit.Blueprint()
app.include(blueprint)
async_app.include(blueprint)  # type: ignore[arg-type]


@blueprint.task
def task_of_blueprint(to: str) -> int:
    return len(to)


@blueprint.outbox("webhooks", ordered=True)
async def deliver(message: eventkit.Message[Order]) -> None:
    assert_type(message.payload, Order)


def blueprints() -> None:
    assert_type(task_of_blueprint.enqueue("ann"), TaskHandle[int])
    task_of_blueprint.enqueue(1)  # type: ignore[arg-type]


@app.task
def plain_task(to: str, subject: str = "Hello") -> int:
    return len(to + subject)


@app.every("@every 30s")
@app.task(queue="emails", max_attempts=5, timeout=30, backoff=[1, 5], key="{to}", rate=5, on_crash="fail")
@app.cron("0 3 * * *", tz="Europe/Berlin", args={"to": "ann"})
async def awaited_task(ctx: AsyncTaskContext, to: str) -> Email:
    assert_type(ctx.kit, AsyncEventKit)
    async with ctx.transaction() as tx:
        await ctx.kit.queue("emails").enqueue(1, tx=tx)
    assert_type(await ctx.progress(0.5, "half"), None)
    return Email(to)


@async_app.task
def task_of_async_app(ctx: TaskContext, number: int) -> float:
    assert_type(ctx.kit, EventKit)
    assert_type(ctx.task, Task[Any])
    assert_type(ctx.cancelled, bool)
    return number / 2


@async_app.task(isolation="process", on_success=[print], on_failure=print)
async def awaited_task_of_async_app() -> None: ...


@app.task(batch=100, queue="index")
def batched_task(rows: list[Order]) -> None: ...


@app.task
def any_names(delay: float, tx: str, payload: Any) -> None: ...


@app.task
def any_first(payload: Any, count: int) -> int:
    return count


@app.subscriber("orders", consumer="search", max_attempts=6, then="skip")
async def subscriber(event: Event[Order]) -> None:
    assert_type(event.payload, Order)


@app.listener("alerts")
def listener(notification: Notification[Alert]) -> None: ...


def tasks(kit: EventKit, session: Session) -> None:
    app.bind(kit)
    assert_type(plain_task("ann"), int)
    plain_task(7)  # type: ignore[arg-type]
    handle = plain_task.options(delay=30, expires=timedelta(hours=1), tx=session).enqueue("ann", subject="Hi")
    assert_type(handle, TaskHandle[int])
    assert_type(handle.id, int)
    assert_type(handle.created, bool)
    assert_type(handle.result(timeout=10), int)
    assert_type(handle.status(), TaskState | Literal["gone"])
    assert_type(handle.cancel(running=True), bool)
    assert_type(handle.progress(), Progress | None)
    assert_type(plain_task.options(delay=5).new(to="ann"), NewTask)
    assert_type(plain_task.enqueue_many([{"to": "ann"}, plain_task.new(to="ann")]), list[TaskHandle[int]])
    assert_type(plain_task.handle(7), TaskHandle[int])
    assert_type(awaited_task.enqueue(to="ann").result(timeout=10), Email)
    plain_task.options(delay="soon")  # type: ignore[arg-type]
    plain_task.options(soon=True)  # type: ignore[call-arg]
    plain_task.enqueue(7)  # type: ignore[arg-type]
    plain_task.enqueue("ann", delay=30)  # type: ignore[call-arg]
    plain_task.enqueue()  # type: ignore[call-arg]
    plain_task.new(of="ann")  # type: ignore[call-arg]
    plain_task.options(delay=30).enqueue(to=7)  # type: ignore[arg-type]
    awaited_task.enqueue(to=7)  # type: ignore[arg-type]
    awaited_task.options(key="k").new(7)  # type: ignore[arg-type]
    batched_task.enqueue(Order(7))
    batched_task.enqueue([Order(7)])  # type: ignore[arg-type]
    batched_task([Order(7)])
    any_names.options(delay=5, tx=session).enqueue(delay=0.5, tx="a", payload=None)
    any_first.enqueue({"any": "payload"}, 7)
    assert_type(plain_task.declaration.queue, str)
    heard: Callable[[Notification[Alert]], None] = app.listener("alerts")(listener)
    app.listener("alerts")(heard)
    assert_type(app.worker(concurrency=20).run(), int)
    assert_type(drain(app), list[Ran])
    assert_type(assert_enqueued(kit, plain_task, {"to": "ann"}, count=1), list[TaskInfo[Any]])
    assert_type(assert_published(kit, "orders", key="42"), list[Event[Any]])


async def async_tasks(kit: AsyncEventKit, context: AsyncTaskContext) -> None:
    async_app.bind(kit)
    assert_type(await awaited_task(context, "ann"), Email)
    assert_type(await awaited_task_of_async_app(), None)
    handle = await task_of_async_app.options(wait=5).enqueue(7)
    assert_type(handle, AsyncTaskHandle[float])
    assert_type(await handle.result(timeout=10), float)
    assert_type(await handle.status(), TaskState | Literal["gone"])
    await task_of_async_app.enqueue("seven")  # type: ignore[arg-type]
    assert_type(await task_of_async_app.enqueue_many([{"number": 7}]), list[AsyncTaskHandle[float]])
    assert_type(await drain_async(async_app), list[Ran])
    assert_type(await assert_enqueued(kit, "emails"), list[TaskInfo[Any]])
