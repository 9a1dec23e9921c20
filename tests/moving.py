"""Databases to copy between, and their content seen from outside; run as a program, a copy that may be killed."""

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import eventkit_sqlite

import eventkit
from eventkit import transfer
from eventkit.cli import data


class Places:
    """Fresh databases of either kind."""

    def __init__(self, folder: Path, postgres: str) -> None:
        self._folder = folder
        self._postgres = postgres
        self._count = 0

    def fresh(self, kind: str) -> str:
        """Return the URL of a database that does not exist yet."""
        self._count += 1
        return f"sqlite:///{self._folder}/{self._count}.db" if kind == "sqlite" else f"{self._postgres}_{self._count}"

    def schemas(self) -> list[str]:
        """Return the schemas that may have been made on Postgres."""
        name = self._postgres.rpartition("schema=")[2]
        return [f"{name}_{number}" for number in range(1, self._count + 1)]


def run_sql(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Return the rows of the last statement, run with the others in one transaction."""
    rows: list[tuple[Any, ...]] = []
    with eventkit.connect(url) as kit, kit.transaction() as tx:
        if not url.startswith("sqlite"):
            tx.execute(f"SET LOCAL search_path = {url.rpartition('schema=')[2]}")
        for statement in statements:
            cursor = tx.execute(statement)
            if statement.startswith("SELECT"):
                rows = cursor.fetchall()
    return [tuple(row) for row in rows]


def main(what: str, source: str, target: str, last: float = inf) -> None:
    """Copy, export, import or back up, and print a dot for each step; the process is killed at the *last* one."""
    steps = count()

    def step(*_: object) -> None:
        if next(steps) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(1, b".")

    def stepping(lines: Iterable[bytes]) -> Iterator[bytes]:
        for number, line in enumerate(lines):
            if number % 500 == 0:
                step()
            yield line

    if what == "copy":
        eventkit.copy(source, target, progress=step)
    elif what == "import":
        transfer.write(target, stepping(Path(source).read_bytes().splitlines()))
    elif what == "export":
        read = transfer.read
        transfer.read = lambda url: stepping(read(url))
        data.export(source, target)
    else:
        eventkit_sqlite.backup(source, target, step)
    os.write(1, b"finished\n")


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:]))
