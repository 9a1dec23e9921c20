"""The delay from a commit in one process to the handler in another."""

import asyncio
import random
import select
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
from eventkit_sqlite import watcher
from eventkit_sqlite.library import open_connection
from eventkit_sqlite.statements import STATEMENTS

import eventkit
from eventkit.operations.stream import ReadEvents

from .bare import decode
from .processes import Remote
from .report import Table, milliseconds, verdict
from .settings import Settings

_MEDIAN, _P99 = 0.00012, 0.0015
_BLOCKS = 10


def measure(settings: Settings) -> Iterator[Table]:
    """Measure the delays of single messages to a sleeping receiver."""
    number = settings.count(1000, least=_BLOCKS) // _BLOCKS
    table = Table(
        "Cross-process wake",
        (
            "receiver",
            "in",
            "median since the commit returned",
            "p99",
            "median since before the call",
            "p99",
            "bar (since the commit returned)",
            "reached",
        ),
        note=(
            f"{number * _BLOCKS} messages a row, sent by the other process after pauses of 5 to 20 ms, so that the "
            f"waiter sleeps; the rows take turns, {number} messages at a time. *bare* is a loop of inotify, "
            "`PRAGMA data_version` and the statement that reads the events. The clock is CLOCK_MONOTONIC, which "
            "processes share. A handler may run before the publisher's call returns, which counts as less "
            "than zero."
        ),
    )
    rows = [row for row in _ROWS if not settings.quick or (row.way, row.watch) == ("subscribe", "inotify")]
    delays: dict[Row, list[tuple[float, float]]] = {row: [] for row in rows}
    with ExitStack() as stack:
        pairs = {row: _pair(stack, settings, row) for row in rows}
        for receiver, _ in pairs.values():
            receiver.ready()
        for _ in range(_BLOCKS):
            for row, (receiver, publisher) in pairs.items():
                sent = publisher.call("publish", number)
                arrived = receiver.call("arrivals", number)
                delays[row] += [
                    ((moment - returned) / 1e9, (moment - called) / 1e9)
                    for (called, returned), moment in zip(sent, arrived, strict=True)
                ]
    for row in rows:
        since_return, since_call = (sorted(values) for values in zip(*delays[row], strict=True))
        median, p99 = statistics.median(since_return), _p99(since_return)
        judged = row.watch == "inotify" and row.waiter is not BareWaiter
        reached = verdict(median <= _MEDIAN and p99 <= _P99)
        table.add(
            [
                row.name,
                row.way,
                f"**{milliseconds(median)}**",
                milliseconds(p99),
                milliseconds(statistics.median(since_call)),
                milliseconds(_p99(since_call)),
                *(("≤ 0.12 ms, p99 ≤ 1.5 ms", reached) if judged else ("–", "–")),
            ]
        )
    yield table


def _pair(stack: ExitStack, settings: Settings, row: "Row") -> tuple[Remote, Remote]:
    folder = settings.folder(f"waking-{row.name}-{row.way}".replace(" ", "-"))
    url = f"sqlite:///{folder}/kit.db?watch={row.watch}"
    receiver = stack.enter_context(Remote(row.waiter, url, row.way))
    return receiver, stack.enter_context(Remote(Publisher, url, row.way))


class Publisher:
    """A publisher to receivers that wait in *way*."""

    def __init__(self, url: str, way: str) -> None:
        self._kit = eventkit.connect(url)
        calls: dict[str, Any] = {
            "subscribe": self._kit.stream("wake").publish,
            "work": self._kit.queue("wake").enqueue,
            "listen": self._kit.channel("wake").notify,
        }
        self._send = calls[way]

    def publish(self, number: int) -> list[tuple[int, int]]:
        """Send *number* messages, and return when each call began and returned."""
        moments = []
        for _ in range(number):
            time.sleep(random.uniform(0.005, 0.020))
            before = time.monotonic_ns()
            self._send(None)
            moments.append((before, time.monotonic_ns()))
        return moments

    def close(self) -> None:
        """Close the kit."""
        self._kit.close()


class Receiver:
    """A receiver that records when each message arrived; *wait* runs in a thread and calls `arrived`."""

    def __init__(self, url: str, way: str) -> None:
        self._arrivals: list[int] = []
        self._ready = threading.Event()
        threading.Thread(target=self._wait, args=(url, way), daemon=True).start()
        if not self._ready.wait(30):
            raise TimeoutError("no receiver waits after 30 s")
        time.sleep(0.1)

    def arrivals(self, number: int) -> list[int]:
        """Return when each of *number* messages arrived, and forget them."""
        deadline = time.monotonic() + 30
        while len(self._arrivals) < number:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self._arrivals)} of {number} messages arrived within 30 s")
            time.sleep(0.01)
        arrivals, self._arrivals = self._arrivals, []
        return arrivals

    def _wait(self, url: str, way: str) -> None:
        raise NotImplementedError


class Waiter(Receiver):
    """A receiver that waits in a thread."""

    def _wait(self, url: str, way: str) -> None:
        with eventkit.connect(url) as kit:
            messages = _messages(kit, way)
            self._ready.set()
            for _ in messages:
                self._arrivals.append(time.monotonic_ns())


class AsyncWaiter(Receiver):
    """A receiver that waits in an event loop."""

    def _wait(self, url: str, way: str) -> None:
        asyncio.run(self._wait_in_loop(url, way))

    async def _wait_in_loop(self, url: str, way: str) -> None:
        async with eventkit.connect_async(url) as kit:
            messages = await _messages(kit, way)
            self._ready.set()
            async for _ in messages:
                self._arrivals.append(time.monotonic_ns())


class BareWaiter(Receiver):
    """A receiver for a stream with only inotify and apsw, in one thread."""

    def _wait(self, url: str, way: str) -> None:
        eventkit.connect(url).close()
        path = url.removeprefix("sqlite:///").partition("?")[0]
        connection = open_connection("apsw", path, "NORMAL", 5)
        sql = STATEMENTS[ReadEvents.heading].sql
        version: Any = connection.execute("PRAGMA data_version").fetchall()
        log = watcher.open_descriptor()
        watcher.watch(log, path + "-wal", watcher.MODIFIED)
        poll = select.poll()
        poll.register(log, select.POLLIN)
        after = 0
        self._ready.set()
        while True:
            # The log is written just before the commit is visible, so polling continues for a while; a commit that
            # takes longer is found by a poll every few milliseconds.
            until = time.monotonic() + 0.001 if poll.poll(5) else 0.0
            watcher.drain(log)
            while (now := connection.execute("PRAGMA data_version").fetchall()) == version:
                if time.monotonic() > until:
                    break
            if now == version:
                continue
            version = now
            for row in connection.execute(sql, ("wake", after, 1000)).fetchall():
                after = row[0]
                decode(row[2])
                self._arrivals.append(time.monotonic_ns())


class Row(msgspec.Struct, frozen=True):
    """A receiver to measure."""

    name: str
    waiter: type[Receiver]
    way: str
    watch: str = "inotify"


_ROWS = (
    Row("bare", BareWaiter, "subscribe"),
    *(Row("sync kit", Waiter, way) for way in ("subscribe", "work", "listen")),
    *(Row("async kit", AsyncWaiter, way) for way in ("subscribe", "work", "listen")),
    Row("sync kit, polling", Waiter, "subscribe", "poll"),
    Row("async kit, polling", AsyncWaiter, "subscribe", "poll"),
)


def _messages(kit: Any, way: str) -> Any:
    handles = {
        "subscribe": lambda: kit.stream("wake").subscribe(),
        "work": lambda: kit.queue("wake").work(),
        "listen": lambda: kit.channel("wake").listen(),
    }
    return handles[way]()


def _p99(values: list[float]) -> float:
    """Return the value that 99 % of the sorted *values* do not exceed."""
    return values[max(0, -(-len(values) * 99 // 100) - 1)]
