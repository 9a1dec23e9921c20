"""Kits that are never closed, and kits across fork()."""

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
    """A connection that can be marked as inherited by a child process."""

    def forked(self) -> None:
        """Make every later call raise `Closed`."""
        ...


_tracked: WeakSet[Inheritable] = WeakSet()
_abandoned: deque[Callable[[], object]] = deque()
_releasing = threading.Lock()


def closed() -> Closed:
    """Return the error for a closed kit."""
    return Closed("the kit is closed: connect again")


def closed_or_forked(process: int) -> Closed:
    """Return the error for a kit that was opened in *process*, and closed there or inherited here through fork()."""
    if os.getpid() == process:
        return closed()
    return Closed("the kit was opened before fork(): connect only after it, or start the child with spawn")


def track(connection: Inheritable, place: str, release: Callable[[], object]) -> Callable[[], object]:
    """Notify *connection* when this process forks, and *release* what it holds if it is collected without ``close()``.

    Return a function for ``close()`` to call.  *release* must not refer to the connection.
    """
    _tracked.add(connection)
    collected = finalize(connection, _collected, place, release)
    collected.atexit = False
    return collected.detach


def release_abandoned() -> None:
    """Release the resources of collected kits, or wait until another thread has done so."""
    with _releasing:
        while _abandoned:
            _abandoned.popleft()()


def _collected(place: str, release: Callable[[], object]) -> None:
    _abandoned.append(release)
    # threading.Thread takes locks, which the interrupted thread may hold.
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
