"""Types of streams, channels and subscriptions as type checkers see them.  Checked by mypy and pyright, never run."""

from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from typing import assert_type

from payloads import Alert, Order

from eventkit import Event, EventStream, NewEvent, Notification, NotificationChannel
from eventkit.protocols import AsyncEventStream, AsyncNotificationChannel, AsyncSubscription, Subscription
from eventkit.values import ChannelSettings, Consumer, StreamSettings


def streams(orders: EventStream[Order]) -> None:
    assert_type(orders.name, str)
    assert_type(orders.publish(Order(42), key="42", headers={"a": "b"}, dedup="x", tx=None), int)
    assert_type(orders.publish_many([Order(42), NewEvent(Order(43), key="43")]), list[int])
    assert_type(orders.read(after=0, limit=10), list[Event[Order]])
    assert_type(orders.read()[0].payload, Order)
    assert_type(orders.read()[0].created_at, datetime)
    assert_type(orders.subscribe("search", start=datetime.now(UTC)), Subscription[Event[Order]])
    orders.subscribe("search", start="now")  # type: ignore[arg-type]
    orders.read(on_truncated="ignore")  # type: ignore[arg-type]
    assert_type(orders.offset("search"), int)
    assert_type(orders.save_offset("search", 42), bool)
    orders.seek("search", 0)
    assert_type(orders.head(), int)
    assert_type(orders.offset_at(datetime.now(UTC)), int)
    assert_type(orders.consumers(), list[Consumer])
    assert_type(orders.prune(older_than=timedelta(days=7), keep_count=100), int)
    orders.configure(keep=timedelta(days=7), keep_count=None, keep_unconsumed=False)
    assert_type(orders.settings(), StreamSettings)
    assert_type(orders.settings().keep, float | None)
    with orders.subscribe("search") as events:
        for event in events:
            assert_type(event, Event[Order])


def channels(alerts: NotificationChannel[Alert]) -> None:
    assert_type(alerts.name, str)
    assert_type(alerts.notify({"text": "fire"}), int)
    assert_type(alerts.listen(start="earliest"), Subscription[Notification[Alert]])
    alerts.listen(start="committed")  # type: ignore[arg-type]
    assert_type(iter(alerts.listen()), Generator[Notification[Alert]])
    assert_type(next(alerts.listen()).payload, Alert)
    assert_type(alerts.prune(keep_count=10), int)
    assert_type(alerts.configure(keep=None, keep_count=10), None)
    assert_type(alerts.settings(), ChannelSettings)


async def async_streams(orders: AsyncEventStream[Order]) -> None:
    assert_type(orders.name, str)
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
    assert_type(await orders.prune(older_than=timedelta(days=7), keep_count=100), int)
    assert_type(await orders.configure(keep=60, keep_count=None), None)
    assert_type(await orders.settings(), StreamSettings)
    async with orders.subscribe("search") as events:
        async for event in events:
            assert_type(event, Event[Order])


async def async_channels(alerts: AsyncNotificationChannel[Alert]) -> None:
    assert_type(alerts.name, str)
    assert_type(await alerts.notify({"text": "fire"}), int)
    assert_type(alerts.listen(), AsyncSubscription[Notification[Alert]])
    assert_type(await alerts.listen(), AsyncSubscription[Notification[Alert]])
    assert_type((await anext(alerts.listen())).payload, Alert)
    assert_type(await alerts.prune(keep_count=10), int)
    assert_type(await alerts.configure(keep=None, keep_count=10), None)
    assert_type(await alerts.settings(), ChannelSettings)
