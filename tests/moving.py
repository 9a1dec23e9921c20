"""Databases to move between, and what they look like from outside; run as a program, a copy that may be killed."""

import os
import signal
import sys
from collections.abc import Iterator
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import eventkit_sqlite

import eventkit
from eventkit import archive


class Places:
    """Fresh databases of either kind."""

    def __init__(self, folder: Path, postgres: str) -> None:
        self._folder = folder
        self._postgres = postgres
        self._count = 0

    def fresh(self, kind: str) -> str:
        """The URL of a database that does not exist yet."""
        self._count += 1
        return f"sqlite:///{self._folder}/{self._count}.db" if kind == "sqlite" else f"{self._postgres}_{self._count}"

    def schemas(self) -> list[str]:
        """Those that may have been made on Postgres."""
        name = self._postgres.rpartition("schema=")[2]
        return [f"{name}_{number}" for number in range(1, self._count + 1)]


def run_sql(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """The rows of the last of the statements, which are run in one transaction with the names that tables have."""
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
    """Copy, import or back up, with a dot for each step; the process is killed at the *last* one."""
    steps = count()

    def step(*_: object) -> None:
        if next(steps) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(1, b".")

    def lines() -> Iterator[bytes]:
        for number, line in enumerate(Path(source).read_bytes().splitlines()):
            if number % 500 == 0:
                step()
            yield line

    if what == "copy":
        eventkit.copy(source, target, progress=step)
    elif what == "import":
        archive.write(target, lines())
    else:
        eventkit_sqlite.backup(source, target, step)
    os.write(1, b"finished\n")


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:]))
