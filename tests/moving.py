"""Databases to move between, and what they look like from outside; run as a program, a copy that may be killed."""

import os
import sys
from pathlib import Path
from typing import Any

import eventkit


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


if __name__ == "__main__":
    eventkit.copy(sys.argv[1], sys.argv[2], progress=lambda table, rows: os.write(1, b"."))
    os.write(1, b"finished\n")
