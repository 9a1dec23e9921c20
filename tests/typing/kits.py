"""Types of kits and backends as type checkers see them.  Checked by mypy and pyright, never run."""

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, assert_type

from payloads import Alert, Email, Order, send

import eventkit
from eventkit import AsyncEventKit, EventKit, EventStream, Inbox, Notification, NotificationChannel, Outbox, TaskQueue
from eventkit.protocols import (
    AsyncEventStream,
    AsyncNotificationChannel,
    AsyncSubscription,
    AsyncTaskQueue,
    Backend,
    Subscription,
)


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


def what_a_type_checker_refuses(kit: EventKit, emails: TaskQueue[Email], orders: EventStream[Order]) -> None:
    emails.enqueue(Order(42))  # type: ignore[arg-type]
    orders.publish("42")  # type: ignore[arg-type]
    kit.queue("emails").enqueue({}, dealy=30)  # type: ignore[call-arg]
    orders.subscribe(consumer=42)  # type: ignore[arg-type]


def backends() -> None:
    import eventkit_sqlite

    backend: Backend = eventkit_sqlite
    assert_type(backend.capabilities, frozenset[str])
