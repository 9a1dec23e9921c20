"""Linux's inotify, as far as the watcher needs it: three system calls through ctypes."""

import ctypes
import os

MODIFIED = 0x2
MOVED_OR_UNLINKED = 0x4 | 0x400 | 0x800
"""Attributes changed (among them the link count), deleted, moved."""

_libc = ctypes.CDLL(None, use_errno=True)


def open_descriptor() -> int:
    """A descriptor that becomes readable when something watched happens."""
    descriptor: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        _raise("inotify_init1")
    return descriptor


def watch(descriptor: int, path: str, mask: int) -> None:
    """Let *descriptor* tell of *mask* on the file now at *path*."""
    if _libc.inotify_add_watch(descriptor, os.fsencode(path), mask) < 0:
        _raise(f"inotify_add_watch({path})")


def drain(descriptor: int) -> None:
    """Read and forget what has happened so far."""
    try:
        while len(os.read(descriptor, 65536)) == 65536:
            pass
    except BlockingIOError:
        pass


def _raise(call: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, f"{call}: {os.strerror(number)}")
