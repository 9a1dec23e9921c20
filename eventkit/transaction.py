"""SQLAlchemy's and Django's transactions as ``tx=``, for all backends.

Both libraries are imported only where the application has loaded them.
"""

import sys
from collections.abc import Generator
from typing import Any

from .errors import ForeignTransaction

OF_SEVERAL = '; of a session with several engines, pass tx=session.connection(bind_arguments={"mapper": Model})'

NO_ASYNC = "Django has no asynchronous transactions: use a kit of eventkit.connect() in sync_to_async"


def sqlalchemy_connection(tx: Any, awaited: bool, dialect: str, database: str) -> Generator[Any, Any, Any]:
    """Return the connection of SQLAlchemy's *tx*, with a transaction open; None if *tx* is not SQLAlchemy's.

    *dialect* is SQLAlchemy's name for the backend's database, and *database* the one for the user.
    """
    if ("sqlalchemy.ext.asyncio" if awaited else "sqlalchemy") not in sys.modules:
        return None
    from sqlalchemy.exc import UnboundExecutionError

    sessions, connection = _of_sqlalchemy(awaited)
    if isinstance(tx, sessions):
        try:
            tx = yield tx.connection()
        except UnboundExecutionError as error:
            raise ValueError(
                "tx= is a session with several engines, which does not say whose transaction is meant: pass "
                'tx=session.connection(bind_arguments={"mapper": Model}), with a model of the kit\'s database'
            ) from error
    if not isinstance(tx, connection):
        return None
    if tx.dialect.name != dialect:
        raise ForeignTransaction(
            f"tx= is a transaction on {tx.engine.url.render_as_string()}, which is not {database}: "
            f"use the session of the database that the kit is connected to{OF_SEVERAL}"
        )
    if tx.dialect.is_async and not awaited:
        raise TypeError(
            "tx= is a transaction of an async engine, which a kit of eventkit.connect() cannot await: "
            "await the call of a kit of eventkit.connect_async(), outside of run_sync()"
        )
    if not tx.in_transaction():
        yield tx.begin()
    return tx


def _of_sqlalchemy(awaited: bool) -> tuple[Any, Any]:
    """Return the types of sessions, and of a connection."""
    if awaited:
        from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

        return (AsyncSession, async_scoped_session), AsyncConnection
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session, scoped_session

    return (Session, scoped_session), Connection


def is_django(tx: Any) -> bool:
    """Return whether *tx* is ``django.db.connection``, or one of ``django.db.connections``."""
    if "django.db" not in sys.modules:
        return False
    from django.db.backends.base.base import BaseDatabaseWrapper  # type: ignore[import-untyped]
    from django.utils.connection import ConnectionProxy  # type: ignore[import-untyped]

    # A ConnectionProxy may also stand for a cache.
    return isinstance(tx, BaseDatabaseWrapper) or (isinstance(tx, ConnectionProxy) and hasattr(tx, "vendor"))


def driver_of(tx: Any, vendor: str, database: str) -> Any:
    """Return the driver connection of Django's *tx*, which has a transaction open, in the calling thread.

    *vendor* is Django's name for the backend's database, and *database* the one for the user.
    """
    if tx.vendor != vendor:
        raise ForeignTransaction(
            f"tx= is Django's connection {tx.alias!r}, which is not {database} ({tx.vendor}): use the connection of "
            f"django.db.connections that leads to the kit's database"
        )
    if tx.get_autocommit():
        raise ValueError(
            f"tx= is Django's connection {tx.alias!r} without an open transaction: make the call within "
            f"transaction.atomic(), or leave tx= out"
        )
    return tx.connection
