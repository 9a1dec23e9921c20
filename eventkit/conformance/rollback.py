"""Transactions that come to nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eventkit import EventKit


class _Undo(Exception):
    """Raised to have a transaction rolled back."""


@contextmanager
def rolled_back(kit: EventKit) -> Iterator[Any]:
    """A transaction for ``tx=`` that is rolled back at the end of the body."""
    try:
        with kit.transaction() as tx:
            yield tx
            raise _Undo
    except _Undo:
        pass
