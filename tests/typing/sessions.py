"""Types of collecting sessions as type checkers see them.  Checked by mypy and pyright, never run."""

from datetime import timedelta
from typing import Any, assert_type

from payloads import Alert, Email, Order
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from eventkit import AsyncEventKit, EventKit, NewEvent, NewTask
from eventkit.sqlalchemy import CollectedChannel, CollectedQueue, CollectedStream, Collector, bind, collect, emits


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
