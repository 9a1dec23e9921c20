"""A client of SQL in another process, psql or a few lines around a driver, and the statements of docs/plain-sql.md."""

from __future__ import annotations

import shutil
import subprocess
import sys
from types import TracebackType
from typing import Self

import eventkit_postgres.address
import eventkit_sqlite.address

_DRIVERS = {
    "sqlite": "import sqlite3; connection = sqlite3.connect(place, timeout=30, isolation_level=None)",
    "postgresql": "import psycopg; connection = psycopg.connect(place, autocommit=True)",
}
_DRIVEN = """
import sys
place = sys.argv[1]
{connect}
for line in sys.stdin:
    cursor = connection.execute(line)
    if cursor.description:
        for row in cursor.fetchall():
            print("|".join(map(str, row)))
    print("--", flush=True)
"""


class Session:
    """A connection to the database of a kit's URL, in a process that reads a statement from each line."""

    def __init__(self, url: str) -> None:
        self.dialect = url.partition(":")[0]
        self.schema, self._psql = "", None
        if self.dialect == "sqlite":
            place = eventkit_sqlite.address.parse(url).path
        else:
            address = eventkit_postgres.address.parse(url)
            self.schema, place, self._psql = address.schema, address.conninfo, shutil.which("psql")
        command = [sys.executable, "-c", _DRIVEN.format(connect=_DRIVERS[self.dialect]), place]
        if self._psql:
            command = [self._psql, "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "-v", "ON_ERROR_STOP=1"]
            command += ["--dbname", place]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def run(self, statement: str) -> list[str]:
        """Run a statement, with ``{schema}`` replaced by the schema; return a line for each of its rows."""
        assert self._process.stdin
        assert self._process.stdout
        statement = " ".join(statement.replace("{schema}", self.schema).split())
        self._process.stdin.write(f"{statement};\n\\echo --\n" if self._psql else f"{statement}\n")
        self._process.stdin.flush()
        rows: list[str] = []
        while (line := self._process.stdout.readline()) != "--\n":
            assert line, f"the session ended at {statement!r}"
            rows.append(line.rstrip("\n"))
        return rows


PUBLISH = {
    "sqlite": "INSERT OR IGNORE INTO eventkit_event (topic, payload, {names}) VALUES ('t', '{payload}', {values})",
    "postgresql": "SELECT {schema}.eventkit_publish('t', '{payload}', {named})",
}
ENQUEUE = {
    "sqlite": "INSERT OR IGNORE INTO eventkit_task (queue, payload, {names}) VALUES ('q', '{payload}', {values})",
    "postgresql": "SELECT {schema}.eventkit_enqueue('q', '{payload}', {named})",
}
NOTIFY = {
    "sqlite": "INSERT INTO eventkit_notification (channel, payload) VALUES ('c', '{payload}')",
    "postgresql": "SELECT {schema}.eventkit_notify('c', '{payload}')",
}


def said(statements: dict[str, str], session: Session, payload: object = 1, **values: object) -> list[str]:
    """Run the statement of the session's database, with further arguments as literals."""
    literals = {name: f"'{value}'" if isinstance(value, str) else str(value) for name, value in values.items()}
    text = statements[session.dialect]
    if not literals:
        text = text.replace(", {names}", "").replace(", {values}", "").replace(", {named}", "")
    return session.run(
        text.replace("{names}", ", ".join(literals))
        .replace("{values}", ", ".join(literals.values()))
        .replace("{named}", ", ".join(f"{name} => {value}" for name, value in literals.items()))
        .replace("{payload}", str(payload))
    )
