"""Telling whoever has started the worker that it is ready: by a file, and as systemd wants it."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path


class Readiness:
    """A file that is there while the worker is ready, and the datagrams of ``sd_notify``."""

    def __init__(self, file: str | None, environment: Mapping[str, str] = os.environ) -> None:
        self._file = None if file is None else Path(file)
        self._address = environment.get("NOTIFY_SOCKET")
        usec = environment.get("WATCHDOG_USEC", "")
        ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._every = int(usec) / 2_000_000 if self._address and usec.isdecimal() and ours else None

    def ready(self) -> None:
        """The worker takes tasks."""
        if self._file is not None:
            self._file.write_text(f"{os.getpid()}\n", "utf-8")
        self._notify("READY=1")

    def stopping(self) -> None:
        """The worker takes none any more."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)
        self._notify("STOPPING=1")

    async def watch(self) -> None:
        """Tell systemd's watchdog, as long as the event loop turns."""
        while self._every is not None:
            self._notify("WATCHDOG=1")
            await asyncio.sleep(self._every)

    def _notify(self, message: str) -> None:
        if self._address is None:
            return
        # An address that begins with @ is in Linux' abstract name space, which is written with a NUL.
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(message.encode(), address)
