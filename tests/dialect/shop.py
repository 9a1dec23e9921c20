"""A shop's table, for the tests of the dialects."""

import datetime
from collections.abc import Callable
from typing import TypeVar

import apsw
import pytest
import sqlalchemy as sa
from sqlalchemy import orm

T = TypeVar("T")

only_blocking = pytest.mark.parametrize("scheme", ["sqlite+apsw"], indirect=True)
"""A mark for a test of what has no twin in asyncio."""


class Base(orm.DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(unique=True)
    at: orm.Mapped[datetime.datetime | None]
    day: orm.Mapped[datetime.date | None]


orders = sa.inspect(Order).local_table


def driver(connection: sa.Connection) -> apsw.Connection:
    return connection.connection.driver_connection


def asked(connection: sa.Connection, question: Callable[[apsw.Connection], T]) -> T:
    """Return the answer of the driver's connection, in the thread that uses it."""
    if connection.dialect.is_async:
        adapted = connection.connection.dbapi_connection
        return adapted.run_async(lambda driver: driver.async_run(question, driver))
    return question(driver(connection))


def in_transaction(connection: sa.Connection) -> bool:
    return asked(connection, lambda driver: driver.in_transaction)


def names(engine: sa.Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(sa.select(Order.name).order_by(Order.id)))
