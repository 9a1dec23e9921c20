"""The memory of a process with one listener."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

from .processes import Remote
from .report import Table, verdict
from .settings import Settings

_BAR = 60.0


def measure(settings: Settings) -> Iterator[Table]:
    """Measure a process that has connected and waits in `listen`, and one that has only started."""
    table = Table(
        "Memory",
        ("process", "resident", "bar", "reached"),
        note="The process migrates a new database itself, with SQLAlchemy and Alembic.",
    )
    with Remote(Nothing) as nothing:
        table.add(["Python, with the code that starts it here", _megabytes(nothing.call("resident")), "–", "–"])
    url = f"sqlite:///{settings.folder('memory')}/"
    for flavour, listener in (("sync", Listener), ("async", AsyncListener)):
        for place in ("a new database", "an existing database"):
            with Remote(listener, f"{url}{flavour}.db") as remote:
                resident = remote.call("resident")
            bar = f"≤ {_BAR:.0f} MB"
            table.add([f"{flavour} kit, {place}", _megabytes(resident), bar, verdict(resident <= _BAR)])
    yield table


class Nothing:
    """A process that has not imported eventkit."""

    def resident(self) -> float:
        """Return the resident memory in megabytes."""
        return _resident()


class Listener:
    """A process with a sync kit and one listener."""

    def __init__(self, url: str) -> None:
        import eventkit

        self._kit = eventkit.connect(url)
        messages: Any = self._kit.channel("channel").listen()
        threading.Thread(target=list, args=(messages,), daemon=True).start()
        time.sleep(0.3)

    def resident(self) -> float:
        """Return the resident memory in megabytes."""
        return _resident()

    def close(self) -> None:
        """Close the kit."""
        self._kit.close()


class AsyncListener:
    """A process with an async kit and one listener."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._kit: Any = self._runner.run(self._start(url))

    async def _start(self, url: str) -> Any:
        import eventkit

        kit = await eventkit.connect_async(url)
        self._waiting = asyncio.create_task(self._wait(kit))
        await asyncio.sleep(0.3)
        return kit

    async def _wait(self, kit: Any) -> None:
        async for _ in kit.channel("channel").listen():
            pass

    def resident(self) -> float:
        """Return the resident memory in megabytes."""
        return _resident()

    def close(self) -> None:
        """Close the kit."""
        self._runner.run(self._kit.close())
        self._runner.close()


def _resident() -> float:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS:"))


def _megabytes(number: float) -> str:
    return f"{number:.1f} MB"
