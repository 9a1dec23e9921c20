"""The life of a worker: its settings, signals, readiness, presence, and waiting for an unavailable database."""

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec

from .. import checks
from ..app.app import Application
from ..checks import Duration
from ..errors import Unavailable
from ..operations.coordination import EVERY, Beat
from ..protocols import AsyncConnection, AsyncEventKit, EventKit
from .metrics import Metrics
from .pools import Processes, Threads

logger = logging.getLogger("eventkit.worker")

P = ParamSpec("P")
T = TypeVar("T")


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a `Worker`, which ``docs/workers.md`` describes.  Durations are seconds unless named ``_ms``."""

    url: str | None = None
    name: str | None = None
    queues: Any = None
    concurrency: int = 20
    prefetch: int = 0
    max_claim: int = 1000
    until_empty: bool = False
    processes: int | None = None
    lease: Duration | None = None
    shutdown_timeout: Duration = 30
    db_retry_initial_ms: int = 500
    db_retry_max_ms: int = 30_000
    db_retry_max_attempts: int = 0
    notify_poll_interval_ms: int = 5_000
    readiness_file: str | None = None


def settings_of(given: dict[str, Any]) -> WorkerSettings:
    """Return *given* as settings; raise one ``ValueError`` with all errors."""
    known = dict(zip(WorkerSettings.__struct_fields__, WorkerSettings.__struct_defaults__, strict=True))
    if unknown := [name for name in given if name not in known]:
        raise TypeError(f"a worker has no setting {', '.join(unknown)}; the settings are: {', '.join(known)}")
    wrong: dict[str, str] = {}
    for name, value in given.items():
        if value is not None or known[name] is not None:
            try:
                checked = _CHECKS[name](value)
                if name == "queues":  # An iterator can be read only once.
                    given = {**given, name: checked}
            except (TypeError, ValueError) as error:
                wrong[name] = str(error)
    settings = WorkerSettings(**{name: value for name, value in given.items() if name not in wrong})
    first, longest = settings.db_retry_initial_ms, settings.db_retry_max_ms
    if first > longest and not wrong.keys() & {"db_retry_initial_ms", "db_retry_max_ms"}:
        wrong["both"] = f"db_retry_initial_ms is at most db_retry_max_ms, but {first} is above {longest}"
    if wrong:
        raise ValueError("\n- ".join([f"{len(wrong)} of the worker's settings are invalid:", *wrong.values()]))
    return settings


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} is a str, not {type(value).__name__}")


def _whole(name: str, least: int, most: int) -> Callable[[Any], int]:
    return partial(checks.count, name, least=least, most=most)


def _span(name: str, least: int, most: int, value: Any) -> None:
    if not least * 1000 <= checks.milliseconds(name, value) <= most * 1000:
        seconds = value.total_seconds() if isinstance(value, timedelta) else value
        raise ValueError(f"{name} is from {least:,} to {most:,} seconds, not {seconds!r}")


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "url": partial(_text, "url"),
    "name": partial(checks.name, "worker"),
    "queues": checks.weights,
    "concurrency": _whole("concurrency", 1, 10_000),
    "prefetch": _whole("prefetch", 0, 10_000),
    "max_claim": _whole("max_claim", 1, 10_000),
    "until_empty": partial(checks.flag, "until_empty"),
    "processes": _whole("processes", 1, 1_024),
    "lease": partial(_span, "lease", 1, 86_400),
    "shutdown_timeout": partial(_span, "shutdown_timeout", 0, 86_400),
    "db_retry_initial_ms": _whole("db_retry_initial_ms", 100, 60_000),
    "db_retry_max_ms": _whole("db_retry_max_ms", 500, 300_000),
    "db_retry_max_attempts": _whole("db_retry_max_attempts", 0, 10_000),
    "notify_poll_interval_ms": _whole("notify_poll_interval_ms", 1_000, 300_000),
    "readiness_file": partial(_text, "readiness_file"),
}
"""The check of each setting: its type, and its range."""


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
            for number in (signal.SIGTERM, signal.SIGINT):
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


class Recovery:
    """Retries of calls until the database answers, with pauses that double."""

    def __init__(self, settings: WorkerSettings, metrics: Metrics) -> None:
        self._settings = settings
        self._failures = metrics.failures.of()
        self._up = metrics.up.of()
        self._up.value = 1
        self._logged: set[type[Unavailable]] = set()

    async def through(self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the answer of *call*, retrying while the database is unavailable; raise after too many attempts."""
        failed = 0
        while True:
            try:
                answer = await call(*args, **kwargs)
            except Unavailable as error:
                failed += 1
                self._failures.value += 1
                if self._settings.db_retry_max_attempts and failed > self._settings.db_retry_max_attempts:
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
        initial, most = self._settings.db_retry_initial_ms / 1000, self._settings.db_retry_max_ms / 1000
        longest = min(most, initial * 2.0 ** min(failed - 1, 1000))
        return longest * random.uniform(0.5, 1.0) if failed > 1 else longest


class Shared:
    """The means that all services of a worker share; those of its database are set when it has connected."""

    connection: AsyncConnection
    kit: AsyncEventKit
    blocking: EventKit | None = None
    threads: Threads

    def __init__(self, app: Application, settings: WorkerSettings, stop: Callable[[], None]) -> None:
        self.app = app
        self.settings = settings
        self.url = settings.url or app.url
        self.weights = checks.weights(app.queues) if settings.queues is None else dict(settings.queues)
        self.name = settings.name or checks.default_worker()
        self.lease_ms = None if settings.lease is None else checks.milliseconds("lease", settings.lease)
        self.metrics = Metrics()
        self.recovery = Recovery(settings, self.metrics)
        self.readiness = Readiness(settings.readiness_file)
        self.processes = Processes(settings.processes or os.cpu_count() or 1, self.url)
        self.stop = stop


async def present(shared: Shared) -> None:
    """Write the worker's row in the database every ten seconds: its queues, its slots, and how many are taken."""
    slots, running = shared.metrics.slots.of(), shared.metrics.running.of()
    while True:
        beat = Beat(shared.name, sorted(shared.weights), int(slots.value), int(running.value))
        await shared.connection.execute(beat)
        await asyncio.sleep(EVERY)
