"""Commands, run in this process or in one of their own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import eventkit
from eventkit import EventKit
from eventkit.cli import main

EVENTKIT = (sys.executable, "-m", "eventkit.cli")


class Ran(NamedTuple):
    """The exit code and output of a command."""

    code: int
    out: str
    err: str


class Commands:
    """Commands on one database, within this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], url: str | None) -> None:
        self._capsys = capsys
        self.url = url

    def run(self, *arguments: object) -> Ran:
        """Run a command and return how it ended."""
        self._capsys.readouterr()
        url = () if self.url is None else ("--url", self.url)
        code = main([*map(str, arguments), *url])
        return Ran(code, *self._capsys.readouterr())

    def text(self, *arguments: object) -> str:
        """Return the output of a command that must succeed."""
        ran = self.run(*arguments)
        assert ran.code == 0, ran
        return ran.out

    def json(self, *arguments: object) -> Any:
        """Return its ``--json`` output, which must be its only output."""
        ran = self.run(*arguments, "--json")
        assert (ran.code, ran.err) == (0, ""), ran
        return json.loads(ran.out)

    def refusal(self, code: int, *arguments: object) -> str:
        """Return the one line of error of a command that must fail."""
        ran = self.run(*arguments)
        [line] = ran.err.splitlines()
        assert (ran.code, ran.out) == (code, ""), ran
        assert line.startswith("eventkit: ")
        return line.removeprefix("eventkit: ")


def environment(**given: str) -> dict[str, str]:
    """Return the environment for a process: this one's, without the variables that eventkit reads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVENTKIT_")}
    return {**kept, "COLUMNS": "100", **given}


@contextlib.contextmanager
def running(*arguments: str, **given: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command in a process of its own meanwhile."""
    command, pipe = [*EVENTKIT, *arguments], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment(**given)) as program:
        try:
            yield program
        finally:
            program.kill()


def stopped(program: subprocess.Popen[str], number: int = signal.SIGTERM) -> Ran:
    """Send a signal to a running command; return its exit code and the output that was not read yet."""
    program.send_signal(number)
    out, err = program.communicate(timeout=60)
    return Ran(program.returncode, out, err)


def process(*arguments: str, stdin: str = "", **given: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own until it ends."""
    given.setdefault("env", environment())
    command = (*EVENTKIT, *arguments)
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, **given)


@pytest.fixture
def cli(url: str, kit: EventKit, capsys: pytest.CaptureFixture[str]) -> Commands:
    """Return the commands on it."""
    return Commands(capsys, url)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder, with a database in ``shop.db``."""
    monkeypatch.chdir(tmp_path)
    eventkit.connect("sqlite:///shop.db").close()
    return tmp_path
