"""Django's connections as ``tx=``, for all backends.  Django is imported only where the application has loaded it."""

import sys
from typing import Any

from .errors import ForeignTransaction

NO_ASYNC = "Django has no asynchronous transactions: use a kit of eventkit.connect() in sync_to_async"


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
