"""Databases that go back to an earlier state."""

import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import postgres_binaries
import psycopg
import pytest
from eventkit_postgres import address
from eventkit_sqlite import address as sqlite_address
from postgres_binaries import NoServer
from postgres_server import drop_schema


def backed_up(url: str, folder: Path) -> Callable[[], object]:
    """Back a closed database up as an operator does; return a function that restores it in its place."""
    if url.startswith("sqlite"):
        file = Path(sqlite_address.parse(url).path)
        return partial(file.write_bytes, file.read_bytes())
    there, dump = address.parse(url), folder / "dump.sql"
    with psycopg.connect(there.conninfo) as connection:
        major = connection.info.server_version // 10_000
    try:
        programs = postgres_binaries.find(major).folder
    except NoServer as error:
        pytest.skip(str(error))
    dumping = ("pg_dump", f"--schema={there.schema}", f"--file={dump}", there.conninfo)
    restoring = ("psql", "--quiet", "--output=/dev/null", "--set=ON_ERROR_STOP=1", f"--file={dump}", there.conninfo)

    def run(program: str, *arguments: str) -> None:
        subprocess.run([programs / program, *arguments], check=True)

    def restore() -> None:
        drop_schema(there.conninfo, there.schema)
        run(*restoring)

    run(*dumping)
    return restore


def take_back(kit: Any, url: str, offset: int) -> None:
    """Make *offset* the last event of the database, as in a restored backup."""
    with kit.transaction() as tx:
        if url.startswith("sqlite"):
            tx.execute(f"DELETE FROM eventkit_event WHERE id > {offset}")
            tx.execute(f"UPDATE sqlite_sequence SET seq = {offset} WHERE name = 'eventkit_event'")
        else:
            [schema] = re.findall(r"schema=(\w+)", url)
            tx.execute(f"DELETE FROM {schema}.eventkit_event WHERE id > {offset}")
            tx.execute(f"SELECT setval('{schema}.eventkit_event_id_seq', {offset})")
