"""An application beside the kit: a table of orders, and the SQLAlchemy transactions that write to it.

One body serves both flavours here too: a session or connection of an async engine looks like a sync one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import MetaData, insert, select
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from .flavours import Blocking, unwrapped

KINDS = ("Session", "scoped_session", "Connection")
"""The kinds of SQLAlchemy transactions passed as ``tx=``; in asyncio, the async twin of each."""


class Base(DeclarativeBase):
    """The base class of the application's models."""


class Order(Base):
    """A row of the application."""

    __tablename__ = "suite_order"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)


def create_orders(engine: Any) -> None:
    """Create the table, empty even if an earlier test left it behind."""
    drop_orders(engine)
    _run(engine, Base.metadata, "create_all")


def drop_orders(engine: Any) -> None:
    """Drop the table."""
    _run(engine, Base.metadata, "drop_all")


def placed(engine: Any) -> list[str]:
    """Return the names of the committed orders."""
    with opened(engine, "Connection") as connection:
        return list(connection.execute(select(Order.name).order_by(Order.id)).scalars())


def place(tx: Any, name: str) -> None:
    """Write an order in a transaction of any kind."""
    tx.execute(insert(Order).values(name=name))


@contextmanager
def opened(engine: Any, kind: str = "Session", **options: Any) -> Iterator[Any]:
    """Yield an object that can begin a transaction, and close it at the end.  *options* are those of the session."""
    options = {"bind": unwrapped(engine), **options}
    tx: Any
    if kind == "Connection":
        tx = engine.connect()
    elif not isinstance(engine, Blocking):
        tx = Session(**options) if kind == "Session" else scoped_session(sessionmaker(**options))
    elif kind == "Session":
        tx = Blocking(AsyncSession(**options), engine._loop)
    else:
        scoped = async_scoped_session(async_sessionmaker(**options), scopefunc=lambda: None)
        tx = Blocking(scoped, engine._loop)
    try:
        yield tx
    finally:
        tx.close()


def _run(engine: Any, metadata: MetaData, name: str) -> None:
    with opened(engine, "Connection") as connection:
        if isinstance(connection, Blocking):
            connection.run_sync(getattr(metadata, name))
        else:
            getattr(metadata, name)(connection)
        connection.commit()
