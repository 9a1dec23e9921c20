"""The service for tests: in this process, and as a process of its own."""

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

import eventkit


def database(request: pytest.FixtureRequest, folder: Path) -> str:
    """Return the URL of a database of the kind in the fixture's parameter."""
    if request.param == "sqlite":
        return f"sqlite:///{folder / 'served.db'}"
    return str(request.getfixturevalue("emptied_url"))


class Served:
    """An application in this process, and a client of it."""

    def __init__(self, runner: asyncio.Runner, kit: Any, client: httpx.AsyncClient) -> None:
        self.run = runner.run
        self.kit = kit
        self.client = client

    def __call__(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Return the answer to a request."""
        return self.run(self.client.request(method, path, **more))

    def ask(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of a call of the kit."""
        return self.run(call)


async def connected(url: str) -> eventkit.AsyncEventKit:
    return await eventkit.connect_async(url)


class Started:
    """``eventkit serve`` as a process, and its address."""

    def __init__(self, url: str, folder: Path, *options: str) -> None:
        self.url = url
        self.log = folder / "service.log"
        with self.log.open("w") as output:
            command = [sys.executable, "-m", "eventkit.cli", "serve", "--url", url, "--port", "0", *options]
            self.process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        self.address = self._address()

    def _address(self) -> str:
        while self.process.poll() is None:
            if found := re.search(r"serving on (http://\S+?:\d+)", self.log.read_text()):
                return found[1]
            try:
                self.process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
        raise AssertionError(f"the service did not start: {self.log.read_text()}")

    def stop(self, timeout: float = 20) -> int:
        """Stop it, and return its exit code when it has ended."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def kill(self) -> None:
        """Kill it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def start(url: str, folder: Path, settings: str) -> Started:
    """Start a service with *settings* on a new database."""
    eventkit.connect(url).close()
    (folder / "eventkit.toml").write_text(f"[server]\n{settings}\n")
    return Started(url, folder)
