"""Telling whoever has started the worker that it is ready: by a file, and as systemd wants it."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path


class Readiness:
    """A file that is there while the worker is ready, and the datagrams of ``sd_notify``.

    A worker is ready from its first claim until it ends, except while runs that do not end hold all of its slots.
    """

    def __init__(self, file: str | None, environment: Mapping[str, str] = os.environ) -> None:
        self._file = None if file is None else Path(file)
        self._claims = False
        self._full = False
        self._address = environment.get("NOTIFY_SOCKET")
        usec = environment.get("WATCHDOG_USEC", "")
        ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._every = int(usec) / 2_000_000 if self._address and usec.isdecimal() and ours else None

    def ready(self) -> None:
        """The worker takes tasks."""
        self._claims = True
        self._show()
        self._notify("READY=1")

    def stopping(self) -> None:
        """The worker takes none any more."""
        self._claims = False
        self._show()
        self._notify("STOPPING=1")

    def stuck(self, runs: int, slots: int) -> None:
        """So many of the slots are held by runs that do not end although they were stopped."""
        self._full = runs >= slots
        self._show()
        self._notify(f"STATUS={runs} of {slots} slots are held by tasks that do not end")

    async def watch(self) -> None:
        """Tell systemd's watchdog, as long as the event loop turns."""
        while self._every is not None:
            self._notify("WATCHDOG=1")
            await asyncio.sleep(self._every)

    def _show(self) -> None:
        if self._file is None:
            return
        if self._claims and not self._full:
            self._file.write_text(f"{os.getpid()}\n", "utf-8")
        else:
            self._file.unlink(missing_ok=True)

    def _notify(self, message: str) -> None:
        if self._address is None:
            return
        # An address that begins with @ is in Linux' abstract name space, which is written with a NUL.
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(message.encode(), address)
