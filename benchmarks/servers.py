"""Servers in processes of their own: the service, and its reference."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import eventkit

from .settings import Settings


class _Process:
    """A server in a process of its own."""

    def __init__(self, command: list[str], folder: str) -> None:
        self._log = Path(folder, "log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self.port = self._find_port()

    def _find_port(self) -> int:
        while self._process.poll() is None:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", self._log.read_text("utf-8")):
                return int(found[1])
            time.sleep(0.05)
        raise RuntimeError(self._log.read_text("utf-8"))

    def memory(self) -> float:
        """Return the resident memory in megabytes."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text("utf-8").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def processor(self) -> float:
        """Return the seconds of processor time used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)


class Service(_Process):
    """``eventkit serve`` on a database."""

    def __init__(self, url: str, settings: Settings) -> None:
        eventkit.connect(url).close()
        command = [sys.executable, "-m", "eventkit.cli", "serve", "--url", url, "--port", "0"]
        super().__init__(command, settings.folder("log"))


class Echo(_Process):
    """The framework and the server, with one route that returns the request's body."""

    def __init__(self, settings: Settings) -> None:
        super().__init__([sys.executable, "-m", "benchmarks.echo"], settings.folder("log"))
