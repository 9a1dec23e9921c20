"""Django's connections as ``tx=``.  Django is looked for only where it is loaded."""

import sys
from typing import Any
from urllib.parse import quote

from eventkit.errors import ForeignTransaction

NO_ASYNC = "Django has no asynchronous transactions: use a kit of eventkit.connect() in sync_to_async"


def is_django(tx: Any) -> bool:
    """Whether *tx* is ``django.db.connection``, or one of ``django.db.connections``."""
    if "django.db" not in sys.modules:
        return False
    from django.db.backends.base.base import BaseDatabaseWrapper  # type: ignore[import-untyped]
    from django.utils.connection import ConnectionProxy  # type: ignore[import-untyped]

    # A proxy may also stand for a cache.
    return isinstance(tx, BaseDatabaseWrapper) or (isinstance(tx, ConnectionProxy) and hasattr(tx, "vendor"))


def driver_of(tx: Any) -> Any:
    """The driver connection of Django's *tx*, which has a transaction open, on the thread that asks."""
    if tx.vendor != "sqlite":
        raise ForeignTransaction(
            f"tx= is Django's connection {tx.alias!r}, which is not an SQLite file ({tx.vendor}): use the "
            f"connection of django.db.connections that leads to the kit's database"
        )
    if tx.get_autocommit():
        raise ValueError(
            f"tx= is Django's connection {tx.alias!r} without an open transaction: make the call within "
            f"transaction.atomic(), or leave tx= out"
        )
    return tx.connection


def needs_the_standard_library(path: str) -> ForeignTransaction:
    """The error for Django beside a kit on apsw: Django has no other library."""
    return ForeignTransaction(
        f"this process has {path} open through apsw and Django uses Python's own sqlite3, and two SQLite libraries on "
        f"one file would lose committed rows without an error: connect the kit to sqlite+pysqlite:///{quote(path)}"
    )
