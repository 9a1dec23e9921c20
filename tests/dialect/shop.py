"""A shop's table, for the tests of the dialect."""

import datetime

import apsw
import sqlalchemy as sa
from sqlalchemy import orm


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


def names(engine: sa.Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(sa.select(Order.name).order_by(Order.id)))
