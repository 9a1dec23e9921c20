"""Kits across fork(): a child must not use, close or unlock what belongs to its parent.

A connection that is closed in a child can checkpoint a log that the parent is writing (SQLite keeps locks by
process and state by connection), or say goodbye to the parent's server on the socket that both have.  The
child's kits refuse to work, and their connections are kept for as long as the child lives.
"""

import ctypes
import os
from typing import Protocol
from weakref import WeakSet

from .errors import Closed


class Inheritable(Protocol):
    """A connection that can be told that it is in a child."""

    def forked(self) -> None:
        """Refuse to work from now on."""
        ...


_tracked: WeakSet[Inheritable] = WeakSet()


def closed() -> Closed:
    """The error for a kit that is closed."""
    return Closed("the kit is closed: connect again")


def closed_or_forked(process: int) -> Closed:
    """The error for a kit that was opened in *process*, and closed there or inherited here through fork()."""
    if os.getpid() == process:
        return closed()
    return Closed("the kit was opened before fork(): connect only after it, or start the child with spawn")


def track(connection: Inheritable) -> None:
    """Tell *connection* when this process forks."""
    _tracked.add(connection)


def _in_child() -> None:
    for connection in list(_tracked):
        connection.forked()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


os.register_at_fork(after_in_child=_in_child)
