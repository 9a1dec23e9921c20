"""What type checkers see of the public API.  Checked by mypy and pyright, never run."""

from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict, assert_type

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import eventkit
from eventkit import (
    AsyncEventKit,
    AsyncEventStream,
    AsyncInbox,
    AsyncLock,
    AsyncNotificationChannel,
    AsyncOutbox,
    AsyncResults,
    AsyncSchedules,
    AsyncTaskContext,
    AsyncTaskHandle,
    AsyncTaskQueue,
    ChannelSettings,
    Consumer,
    Enqueued,
    Event,
    EventKit,
    EventStream,
    Fire,
    Inbox,
    InboxSettings,
    Lock,
    Maintained,
    Message,
    NewEvent,
    NewTask,
    Notification,
    NotificationChannel,
    Outbox,
    OutboxStats,
    Overview,
    Progress,
    QueueSettings,
    QueueStats,
    Results,
    Schedule,
    Schedules,
    StreamSettings,
    Task,
    TaskContext,
    TaskHandle,
    TaskInfo,
    TaskQueue,
)
from eventkit.protocols import AsyncSubscription, Backend, Subscription
from eventkit.sqlalchemy import (
    CollectedChannel,
    CollectedQueue,
    CollectedStream,
    Collector,
    bind,
    collect,
    emits,
)
from eventkit.testing import Ran, assert_enqueued, assert_published, drain, drain_async


@dataclass
class Email:
    to: str


class Order(msgspec.Struct):
    id: int


class Alert(TypedDict):
    text: str


def send(message: Message[Email]) -> None:
    assert_type(message.payload.to, str)
    assert_type(message.message_id, str)
    assert_type(message.enqueued_at, datetime)


async def send_later(message: Message[Email]) -> bool:
    return bool(message.headers)


def schedules(kit: EventKit, moment: datetime) -> None:
    schedules = kit.schedules
    assert_type(schedules, Schedules)
    assert_type(schedules.add("s", "@hourly", "q", {"any": "payload"}, tz="Europe/Berlin", expires=timedelta(1)), None)
    assert_type(schedules.update("s", payload=None, expires=None, max_attempts=None, paused=True), bool)
    schedules.update("s", when=None)  # type: ignore[arg-type]
    assert_type(schedules.get("s"), Schedule | None)
    assert_type(schedules.list(), list[Schedule])
    assert_type(schedules.soonest(), datetime | None)
    assert_type(schedules.upcoming("s", 3), list[datetime])
    assert_type(schedules.next_after("@hourly", moment, tz="UTC"), datetime)
    [fire] = schedules.tick(moment)
    assert_type(fire, Fire)
    assert_type(fire.moment, datetime)
    assert_type(kit.run_scheduler(), None)
    assert_type(kit.maintain(), Maintained)
    assert_type(kit.overview(), Overview)
    assert_type(kit.run_maintenance(every=60), None)


async def async_schedules(kit: AsyncEventKit, moment: datetime) -> None:
    schedules = kit.schedules
    assert_type(schedules, AsyncSchedules)
    async with kit.transaction() as tx:
        assert_type(await schedules.add("s", "@hourly", "q", tx=tx), None)
        assert_type(await schedules.remove("s", tx=tx), bool)
    assert_type(await schedules.list(), list[Schedule])
    assert_type(await schedules.tick(), list[Fire])
    assert_type(schedules.next_after("@hourly", moment), datetime)
    assert_type(await kit.run_scheduler(), None)
    assert_type(await kit.maintain(), Maintained)
    assert_type(await kit.overview(), Overview)
    assert_type(await kit.run_maintenance(every=60), None)


def locks_limits_and_results(kit: EventKit, emails: TaskQueue[Email], task: Task[Email]) -> None:
    with kit.lock("l", ttl=timedelta(minutes=1)) as lock:
        assert_type(lock, Lock)
        assert_type(lock.fence, int | None)
    assert_type(lock.acquire(wait=5), bool)
    assert_type(lock.renew(), bool)
    assert_type(lock.release(), bool)
    assert_type(kit.rate_limit("r", 10, per=timedelta(minutes=1)), bool)
    assert_type(kit.token_bucket("b", 0.5, burst=10), bool)
    assert_type(kit.results, Results)
    assert_type(kit.results.save(7, None, ttl=60), None)
    kit.results.save(1.5, None)  # type: ignore[arg-type]
    assert_type(kit.results.get("name", default=0), Any)
    assert_type(kit.results.wait(7, timeout=timedelta(seconds=5)), Any)
    kit.results.wait(7)  # type: ignore[call-arg]
    assert_type(kit.results.sweep(), int)
    assert_type(emails.ack(task, result=None), bool)
    error = eventkit.TaskFailed(7, "failed", None)
    assert_type(error.reason, str)
    assert_type(error.error, str | None)


async def async_locks_limits_and_results(kit: AsyncEventKit) -> None:
    async with kit.lock("l") as lock:
        assert_type(lock, AsyncLock)
        assert_type(await lock.renew(), bool)
    with kit.lock("l"):  # type: ignore[attr-defined]
        pass
    assert_type(await kit.rate_limit("r", 10, per=60), bool)
    assert_type(await kit.token_bucket("b", 0.5), bool)
    async with kit.transaction() as tx:
        assert_type(await kit.results.save("name", [1], tx=tx), None)
    assert_type(kit.results, AsyncResults)
    assert_type(await kit.results.wait("name", 5), Any)
    assert_type(await kit.results.sweep(), int)


def outboxes(kit: EventKit) -> None:
    outbox = kit.outbox("webhooks", deliver=send, ordered=True, type=Email)
    with kit.transaction() as tx:
        assert_type(outbox.add(tx, Email("ann@example.com"), key="ann", headers={"kind": "greeting"}), str)
        outbox.add(tx, {"to": "ann@example.com"})  # type: ignore[arg-type]
        assert_type(kit.inbox("billing").once("id", tx), bool)
    assert_type(outbox.stats(), OutboxStats)
    assert_type(outbox.queue, TaskQueue[Email])
    assert_type(outbox.queue.dead(), list[TaskInfo[Email]])
    assert_type(kit.inbox("billing").prune(older_than=timedelta(days=1)), int)
    assert_type(kit.inbox("billing").configure(retain=None), None)
    assert_type(kit.inbox("billing").settings(), InboxSettings)


async def async_outboxes(kit: AsyncEventKit) -> None:
    outbox = kit.outbox("webhooks", deliver=send_later, ordered=True, type=Email)
    assert_type(outbox, AsyncOutbox[Email])
    assert_type(kit.outbox("webhooks", deliver=send, type=Email), AsyncOutbox[Email])
    assert_type(kit.inbox("billing"), AsyncInbox)
    async with kit.transaction() as tx:
        assert_type(await outbox.add(tx, Email("ann@example.com")), str)
        assert_type(await kit.inbox("billing").once("id", tx), bool)
    assert_type(await kit.inbox("billing").configure(retain=60), None)
    assert_type(await kit.inbox("billing").settings(), InboxSettings)
    assert_type(await outbox.stats(), OutboxStats)
    assert_type(outbox.queue, AsyncTaskQueue[Email])
    assert_type(outbox.stop(), None)
    assert_type(await outbox.run("courier", batch=10), None)


def kits(url: str) -> None:
    assert_type(eventkit.copy(url, url, progress=print), dict[str, int])
    assert_type(eventkit.connect(url), EventKit)
    with eventkit.connect(url, create=False) as kit:
        assert_type(kit, EventKit)
        assert_type(kit.stream("orders"), EventStream[Any])
        assert_type(kit.stream("orders", type=Order), EventStream[Order])
        assert_type(kit.queue("emails"), TaskQueue[Any])
        assert_type(kit.queue("emails", type=Email), TaskQueue[Email])
        assert_type(kit.channel("alerts"), NotificationChannel[Any])
        assert_type(kit.channel("alerts", type=Alert), NotificationChannel[Alert])
        assert_type(kit.outbox("webhooks"), Outbox[Any])
        assert_type(kit.outbox("webhooks", deliver=send, type=Email), Outbox[Email])
        assert_type(kit.inbox("billing"), Inbox)
        assert_type(kit.listen("a", "b"), Subscription[Notification[Any]])
        assert_type(kit.transaction(), AbstractContextManager[Any])


def streams(orders: EventStream[Order]) -> None:
    assert_type(orders.topic, str)
    assert_type(orders.publish(Order(42), key="42", headers={"a": "b"}, dedup="x", tx=None), int)
    assert_type(orders.publish_many([Order(42), NewEvent(Order(43), key="43")]), list[int])
    assert_type(orders.read(after=0, limit=10), list[Event[Order]])
    assert_type(orders.read()[0].payload, Order)
    assert_type(orders.read()[0].created_at, datetime)
    assert_type(orders.subscribe("search", start=datetime.now(UTC)), Subscription[Event[Order]])
    assert_type(orders.offset("search"), int)
    assert_type(orders.save_offset("search", 42), bool)
    orders.seek("search", 0)
    assert_type(orders.head(), int)
    assert_type(orders.offset_at(datetime.now(UTC)), int)
    assert_type(orders.consumers(), list[Consumer])
    assert_type(orders.prune(older_than=timedelta(days=7), max_keep=100), int)
    orders.configure(retain=timedelta(days=7), max_keep=None, keep_unconsumed=False)
    assert_type(orders.settings(), StreamSettings)
    assert_type(orders.settings().retain, float | None)
    with orders.subscribe("search") as events:
        for event in events:
            assert_type(event, Event[Order])


def queues(emails: TaskQueue[Email]) -> None:
    assert_type(emails.name, str)
    assert_type(emails.enqueue(Email("ann"), delay=30, priority=1, expires=timedelta(hours=1)), Enqueued)
    assert_type(emails.enqueue(Email("ann")).created, bool)
    assert_type(emails.enqueue_many([Email("ann"), NewTask(Email("bob"), delay=30)]), list[Enqueued])
    [task] = emails.claim("mailer", 1, lease=60, wait=1.5)
    assert_type(task, Task[Email])
    assert_type(task.payload, Email)
    assert_type(task.lease_expires_at, datetime)
    assert_type(emails.receive(10), list[Task[Email]])
    assert_type(emails.ack(task, result={"sent": True}), bool)
    assert_type(emails.new(Email("ann"), delay=timedelta(minutes=1), key="k"), NewTask)
    emails.new("no email")  # type: ignore[arg-type]
    assert_type(emails.ack(task, then=[emails.new(Email("bob"))]), bool)
    emails.ack(task, then=["no task"])  # type: ignore[list-item]
    assert_type(emails.ack_many([task], results={task.id: None}), list[int])
    assert_type(emails.ack_many([task]), list[int])
    assert_type(emails.retry(task, delay=1, error="later"), bool)
    assert_type(emails.fail(task, "never"), bool)
    assert_type(emails.release(task), bool)
    assert_type(emails.snooze(task, 60), bool)
    assert_type(emails.extend(task, 60), bool)
    assert_type(emails.cancel(42, running=True), bool)
    assert_type(emails.get(42), TaskInfo[Email] | None)
    assert_type(emails.list("dead"), list[TaskInfo[Email]])
    assert_type(emails.peek(), list[TaskInfo[Email]])
    assert_type(emails.dead(), list[TaskInfo[Email]])
    assert_type(emails.dead_by_error(), list[eventkit.DeadLetters])
    assert_type(emails.drop(force=True), bool)
    assert_type(emails.stats(), QueueStats)
    assert_type(emails.stats().oldest_ready_age, float | None)
    assert_type(emails.size(), int)
    assert_type(emails.next_due(), datetime | None)
    assert_type(emails.sweep(), int)
    assert_type(emails.purge("done"), int)
    assert_type(emails.purge_dead(older_than=60), int)
    assert_type(emails.requeue([1, 2]), int)
    emails.pause()
    emails.resume()
    emails.configure(max_attempts=5, retry=eventkit.Exponential(base=2), max_size=None)
    emails.configure(retry=[1, 5, 30], keep_dead=timedelta(days=90))
    assert_type(emails.settings(), QueueSettings)
    for work in emails.work("mailer", batch=10):
        with emails.handling(work) as handled:
            assert_type(handled, Task[Email])


def channels(alerts: NotificationChannel[Alert]) -> None:
    assert_type(alerts.name, str)
    assert_type(alerts.notify({"text": "fire"}), int)
    assert_type(alerts.listen(start="earliest"), Subscription[Notification[Alert]])
    assert_type(iter(alerts.listen()), Generator[Notification[Alert]])
    assert_type(next(alerts.listen()).payload, Alert)
    assert_type(alerts.prune(max_keep=10), int)
    assert_type(alerts.configure(retain=None, max_keep=10), None)
    assert_type(alerts.settings(), ChannelSettings)


async def async_kits(url: str) -> None:
    assert_type(await eventkit.connect_async(url), AsyncEventKit)
    async with eventkit.connect_async(url) as kit:
        assert_type(kit, AsyncEventKit)
        assert_type(kit.stream("orders"), AsyncEventStream[Any])
        assert_type(kit.stream("orders", type=Order), AsyncEventStream[Order])
        assert_type(kit.queue("emails"), AsyncTaskQueue[Any])
        assert_type(kit.queue("emails", type=Email), AsyncTaskQueue[Email])
        assert_type(kit.channel("alerts"), AsyncNotificationChannel[Any])
        assert_type(kit.channel("alerts", type=Alert), AsyncNotificationChannel[Alert])
        assert_type(kit.listen("a", "b"), AsyncSubscription[Notification[Any]])
        assert_type(kit.transaction(), AbstractAsyncContextManager[Any])


async def async_streams(orders: AsyncEventStream[Order]) -> None:
    assert_type(orders.topic, str)
    assert_type(await orders.publish(Order(42), key="42", headers={"a": "b"}, dedup="x", tx=None), int)
    assert_type(await orders.publish_many([Order(42), NewEvent(Order(43), key="43")]), list[int])
    assert_type(await orders.read(after=0, limit=10), list[Event[Order]])
    assert_type(orders.subscribe("search", start="latest"), AsyncSubscription[Event[Order]])
    assert_type(await orders.subscribe("search"), AsyncSubscription[Event[Order]])
    assert_type(await orders.offset("search"), int)
    assert_type(await orders.save_offset("search", 42), bool)
    await orders.seek("search", 0)
    assert_type(await orders.head(), int)
    assert_type(await orders.offset_at(datetime.now(UTC)), int)
    assert_type(await orders.consumers(), list[Consumer])
    assert_type(await orders.prune(older_than=timedelta(days=7), max_keep=100), int)
    assert_type(await orders.configure(retain=60, max_keep=None), None)
    assert_type(await orders.settings(), StreamSettings)
    async with orders.subscribe("search") as events:
        async for event in events:
            assert_type(event, Event[Order])


async def async_queues(emails: AsyncTaskQueue[Email]) -> None:
    assert_type(emails.name, str)
    assert_type(await emails.enqueue(Email("ann"), run_at=datetime.now(UTC), wait=5), Enqueued)
    assert_type(await emails.enqueue_many([Email("ann"), NewTask(Email("bob"), delay=30)]), list[Enqueued])
    [task] = await emails.claim("mailer", 1, lease=60, wait=1.5)
    assert_type(task, Task[Email])
    assert_type(await emails.receive(10), list[Task[Email]])
    assert_type(await emails.ack(task, result={"sent": True}), bool)
    assert_type(emails.new(Email("ann")), NewTask)
    assert_type(await emails.ack(task, then=[emails.new(Email("bob"))]), bool)
    assert_type(await emails.ack_many([task], results={task.id: 1}), list[int])
    assert_type(await emails.ack_many([task]), list[int])
    assert_type(await emails.retry(task, delay=1, error="later"), bool)
    assert_type(await emails.fail(task, "never"), bool)
    assert_type(await emails.release(task), bool)
    assert_type(await emails.snooze(task, timedelta(minutes=1)), bool)
    assert_type(await emails.extend(task, 60), bool)
    assert_type(await emails.cancel(42, running=True), bool)
    assert_type(await emails.get(42), TaskInfo[Email] | None)
    assert_type(await emails.list("dead"), list[TaskInfo[Email]])
    assert_type(await emails.peek(), list[TaskInfo[Email]])
    assert_type(await emails.dead(), list[TaskInfo[Email]])
    assert_type(await emails.dead_by_error(), list[eventkit.DeadLetters])
    assert_type(await emails.drop(force=True), bool)
    assert_type(await emails.stats(), QueueStats)
    assert_type(await emails.size(), int)
    assert_type(await emails.next_due(), datetime | None)
    assert_type(await emails.sweep(), int)
    assert_type(await emails.purge("done"), int)
    assert_type(await emails.purge_dead(older_than=60), int)
    assert_type(await emails.requeue([1, 2]), int)
    await emails.pause()
    await emails.resume()
    await emails.configure(max_attempts=5, retry="linear", max_size=None)
    assert_type(await emails.settings(), QueueSettings)
    async for work in emails.work("mailer", batch=10):
        async with emails.handling(work) as handled:
            assert_type(handled, Task[Email])


async def async_channels(alerts: AsyncNotificationChannel[Alert]) -> None:
    assert_type(alerts.name, str)
    assert_type(await alerts.notify({"text": "fire"}), int)
    assert_type(alerts.listen(), AsyncSubscription[Notification[Alert]])
    assert_type(await alerts.listen(), AsyncSubscription[Notification[Alert]])
    assert_type((await anext(alerts.listen())).payload, Alert)
    assert_type(await alerts.prune(max_keep=10), int)
    assert_type(await alerts.configure(retain=None, max_keep=10), None)
    assert_type(await alerts.settings(), ChannelSettings)


app = eventkit.App("sqlite:///shop.db")
async_app = eventkit.AsyncApp("sqlite:///shop.db")


@app.task
def plain_task(to: str, subject: str = "Hello") -> int:
    return len(to + subject)


@app.every("@every 30s")
@app.task(queue="emails", retries=4, timeout=30, backoff=[1, 5], key="{to}", rate=5, on_crash="fail", batch=1)
@app.cron("0 3 * * *", tz="Europe/Berlin", args={"to": "ann"})
async def awaited_task(to: str, ctx: AsyncTaskContext) -> Email:
    assert_type(ctx.kit, AsyncEventKit)
    async with ctx.transaction() as tx:
        await ctx.kit.queue("emails").enqueue(1, tx=tx)
    assert_type(await ctx.progress(0.5, "half"), None)
    return Email(to)


@async_app.task
def task_of_async_app(number: int, ctx: TaskContext) -> float:
    assert_type(ctx.kit, EventKit)
    assert_type(ctx.task, Task[Any])
    assert_type(ctx.cancelled, bool)
    return number / 2


@async_app.task(isolation="process", on_success=[print], on_failure=print)
async def awaited_task_of_async_app() -> None: ...


@app.subscriber("orders", consumer="search", retries=5, then="skip")
async def subscriber(event: Event[Order]) -> None:
    assert_type(event.payload, Order)


@app.listener("alerts")
def listener(notification: Notification[Alert]) -> None: ...


def tasks(kit: EventKit, session: Session) -> None:
    app.bind(kit)
    assert_type(plain_task("ann"), int)
    plain_task(7)  # type: ignore[arg-type]
    handle = plain_task.enqueue("ann", subject="Hi", delay=30, expires=timedelta(hours=1), tx=session)
    assert_type(handle, TaskHandle[int])
    assert_type(handle.id, int)
    assert_type(handle.created, bool)
    assert_type(handle.result(timeout=10), int)
    assert_type(handle.status(), str)
    assert_type(handle.cancel(running=True), bool)
    assert_type(handle.progress(), Progress | None)
    assert_type(plain_task.new(to="ann", delay=5), NewTask)
    assert_type(plain_task.enqueue_many([{"to": "ann"}, plain_task.new(to="ann")]), list[TaskHandle[int]])
    assert_type(plain_task.handle(7), TaskHandle[int])
    assert_type(awaited_task.enqueue(to="ann").result(timeout=10), Email)
    plain_task.enqueue("ann", delay="soon")  # type: ignore[arg-type]
    assert_type(plain_task.declaration.queue, str)
    heard: Callable[[Notification[Alert]], None] = app.listener("alerts")(listener)
    app.listener("alerts")(heard)
    assert_type(app.worker(concurrency=20).run(), int)
    assert_type(drain(app), list[Ran])
    assert_type(assert_enqueued(kit, plain_task, {"to": "ann"}, count=1), list[TaskInfo[Any]])
    assert_type(assert_published(kit, "orders", key="42"), list[Event[Any]])


async def async_tasks(kit: AsyncEventKit, context: AsyncTaskContext) -> None:
    async_app.bind(kit)
    assert_type(await awaited_task("ann", context), Email)
    assert_type(await awaited_task_of_async_app(), None)
    handle = await task_of_async_app.enqueue(7, wait=5)
    assert_type(handle, AsyncTaskHandle[float])
    assert_type(await handle.result(timeout=10), float)
    assert_type(await handle.status(), str)
    assert_type(await task_of_async_app.enqueue_many([{"number": 7}]), list[AsyncTaskHandle[float]])
    assert_type(await drain_async(async_app), list[Ran])
    assert_type(await assert_enqueued(kit, "emails"), list[TaskInfo[Any]])


def what_a_type_checker_refuses(kit: EventKit, emails: TaskQueue[Email], orders: EventStream[Order]) -> None:
    emails.enqueue(Order(42))  # type: ignore[arg-type]
    orders.publish("42")  # type: ignore[arg-type]
    kit.queue("emails").enqueue({}, dealy=30)  # type: ignore[call-arg]
    orders.subscribe(consumer=42)  # type: ignore[arg-type]


def sessions(kit: EventKit, async_kit: AsyncEventKit, session: Session, async_session: AsyncSession) -> None:
    bind(sessionmaker(), kit)
    bind(Session, kit, bind_arguments={"mapper": Order})
    bind(scoped_session(sessionmaker()), kit)
    bind(async_sessionmaker(), async_kit)
    bind(async_session, async_kit)
    assert_type(collect(session), Collector)
    assert_type(collect(async_session).stream("orders"), CollectedStream[Any])
    orders = collect(session).stream("orders", type=Order)
    assert_type(orders, CollectedStream[Order])
    orders.publish(Order(42), key="42", headers={"tenant": "acme"}, dedup="id")
    orders.publish_many([Order(1), NewEvent(Order(2), "key")])
    emails = collect(session).queue("emails", type=Email)
    assert_type(emails, CollectedQueue[Email])
    emails.enqueue(Email("ann"), delay=30, priority=5, expires=timedelta(hours=1), key="ann")
    emails.enqueue_many([Email("ann"), NewTask(Email("bob"), delay=30)])
    assert_type(collect(session).channel("alerts", type=Alert), CollectedChannel[Alert])
    collect(session).channel("alerts").notify({"text": "fire"}, headers={"tenant": "acme"})


@emits("orders", on=("insert",), payload=lambda row: {"id": row.id}, key=lambda row: str(row.id))
@emits("everything")
class Emitting:
    id: int


assert_type(Emitting(), Emitting)


def what_is_refused_of_sessions(
    session: Session, orders: CollectedStream[Order], emails: CollectedQueue[Email]
) -> None:
    orders.publish("42")  # type: ignore[arg-type]
    orders.publish(Order(42), tx=session)  # type: ignore[call-arg]
    emails.enqueue(Email("ann"), wait=5)  # type: ignore[call-arg]
    collect("session")  # type: ignore[arg-type]
    bind(session, "sqlite:///shop.db")  # type: ignore[arg-type]


def backends() -> None:
    import eventkit_sqlite

    backend: Backend = eventkit_sqlite
    assert_type(backend.capabilities, frozenset[str])
