"""Kits that are never closed, and kits across fork(): a child must not use, close or unlock what is its parent's.

A kit that is garbage-collected without ``close()`` has its threads ended and its connections closed all the same.
The garbage collector may run anywhere, inside any lock, so it only notes what is to be released; a short-lived
thread does it, or the next one that opens the same file.

A connection that is closed in a child can checkpoint a log that the parent is writing (SQLite keeps locks by
process and state by connection), or say goodbye to the parent's server on the socket that both have.  The
child's kits refuse to work, and their connections are kept for as long as the child lives.
"""

import _thread
import ctypes
import os
import threading
import warnings
from collections import deque
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet, finalize

from .errors import Closed


class Inheritable(Protocol):
    """A connection that can be told that it is in a child."""

    def forked(self) -> None:
        """Refuse to work from now on."""
        ...


_tracked: WeakSet[Inheritable] = WeakSet()
_abandoned: deque[Callable[[], object]] = deque()
_releasing = threading.Lock()


def closed() -> Closed:
    """The error for a kit that is closed."""
    return Closed("the kit is closed: connect again")


def closed_or_forked(process: int) -> Closed:
    """The error for a kit that was opened in *process*, and closed there or inherited here through fork()."""
    if os.getpid() == process:
        return closed()
    return Closed("the kit was opened before fork(): connect only after it, or start the child with spawn")


def track(connection: Inheritable, place: str, release: Callable[[], object]) -> Callable[[], object]:
    """Tell *connection* when this process forks, and *release* what it holds if it is collected without ``close()``.

    Return what ``close()`` has to call.  *release* must not refer to the connection.
    """
    _tracked.add(connection)
    collected = finalize(connection, _collected, place, release)
    collected.atexit = False
    return collected.detach


def release_abandoned() -> None:
    """Release what collected kits held, or wait until another thread has done so."""
    with _releasing:
        while _abandoned:
            _abandoned.popleft()()


def _collected(place: str, release: Callable[[], object]) -> None:
    _abandoned.append(release)
    # threading.Thread takes locks, which the collector may have interrupted.
    _thread.start_new_thread(release_abandoned, ())
    warnings.warn(
        f"the kit of {place} was garbage-collected without close(): use it in a with statement, "
        f"or call close() of the kit, or of the App that connected it",
        ResourceWarning,
        stacklevel=2,
    )


def _in_child() -> None:
    global _abandoned, _releasing
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_abandoned))
    _abandoned, _releasing = deque(), threading.Lock()
    for connection in list(_tracked):
        connection.forked()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


os.register_at_fork(after_in_child=_in_child)
