"""The life of a worker: signals, readiness, presence in the database, and waiting for an unavailable database."""

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from ..errors import Unavailable
from ..operations.coordination import EVERY, Beat, SignOff
from ..protocols import AsyncConnection
from .metrics import Metrics
from .settings import WorkerSettings

logger = logging.getLogger("eventkit.worker")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stopping(stop: Callable[[], None], kill: Callable[[], bool]) -> Iterator[None]:
    """Within the body, the first signal calls *stop*, and the second one *kill* before the process ends immediately.

    *kill* returns whether anything was left to stop: if not, the process ends as the first signal asked.

    The handlers are Python's and not the event loop's, so that a second signal also ends a worker whose loop is blocked
    by a function.  They are always set, because the first process of a container ignores signals without a handler.
    """
    asked = False

    def receive(number: int, frame: object) -> None:
        nonlocal asked
        name = signal.Signals(number).name
        if not asked:
            asked = True
            logger.info("%s: finishing running tasks; a second signal stops at once", name)
            stop()
            return
        code = 0
        if kill():
            logger.warning("%s again: stopping at once; running tasks run again when their leases have run out", name)
            code = 128 + number
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)

    before = {}
    try:
        with contextlib.suppress(ValueError):  # Python allows handlers only in the main thread.
            for number in SIGNALS:
                before[number] = signal.signal(number, receive)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Readiness:
    """A file that exists while the worker is ready, and the datagrams of ``sd_notify``.

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
        """Report that the worker accepts tasks."""
        self._claims = True
        self._show()
        self._notify("READY=1")

    def stopping(self) -> None:
        """Report that the worker accepts no more tasks."""
        self._claims = False
        self._show()
        self._notify("STOPPING=1")

    def stuck(self, runs: int, slots: int) -> None:
        """Report the number of slots held by runs that do not end although they were stopped."""
        self._full = runs >= slots
        self._show()
        self._notify(f"STATUS={runs} of {slots} slots are held by tasks that do not end")

    async def watch(self) -> None:
        """Notify systemd's watchdog while the event loop runs."""
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


class Presence:
    """The worker's row in the database: its queues, its slots, and how many of them are taken."""

    def __init__(self, connection: AsyncConnection, name: str, queues: list[str], metrics: Metrics) -> None:
        self._connection = connection
        self._name = name
        self._queues = queues
        self._slots, self._running = metrics.slots.of(), metrics.running.of()

    async def run(self) -> None:
        """Report every ten seconds."""
        while True:
            slots, running = int(self._slots.value), int(self._running.value)
            await self._connection.execute(Beat(self._name, self._queues, slots, running))
            await asyncio.sleep(EVERY)

    async def leave(self) -> None:
        """Delete the worker's row."""
        await self._connection.execute(SignOff(self._name))


T = TypeVar("T")


class Recovery:
    """Retries of calls until the database answers, with pauses that double."""

    def __init__(self, settings: WorkerSettings, metrics: Metrics) -> None:
        self._initial = settings.db_retry_initial_ms / 1000
        self._longest = settings.db_retry_max_ms / 1000
        self._most = settings.db_retry_max_attempts
        self._failures = metrics.failures.of()
        self._up = metrics.up.of()
        self._up.value = 1
        self._logged: set[type[Unavailable]] = set()

    async def through(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the answer of *call*, retrying while the database is unavailable; raise after too many attempts."""
        failed = 0
        while True:
            try:
                answer = await call()
            except Unavailable as error:
                failed += 1
                self._failures.value += 1
                if self._most and failed > self._most:
                    raise
                pause = self.pause(failed)
                self._up.value = 0
                # A server that has no connections left needs another remedy than one that was restarted.
                if type(error) not in self._logged:
                    self._logged.add(type(error))
                    logger.warning("the database is unavailable, retrying in %.1f s: %s", pause, error)
                await asyncio.sleep(pause)
            else:
                if self._logged:
                    self._up.value = 1
                    self._logged.clear()
                    logger.info("the database is available again")
                return answer

    def pause(self, failed: int) -> float:
        """Return the seconds to wait after so many failures, randomized so that workers do not retry all at once."""
        longest = min(self._longest, self._initial * 2.0 ** min(failed - 1, 1000))
        return longest * random.uniform(0.5, 1.0) if failed > 1 else longest
