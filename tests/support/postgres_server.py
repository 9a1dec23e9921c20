"""The server that the tests of a session share, and each worker's database in it."""

import fcntl
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import postgres_binaries
import psycopg
from clusters import Cluster
from postgres_binaries import NoServer
from psycopg.sql import SQL, Composed, Identifier

URL = "EVENTKIT_TEST_POSTGRES_URL"
"""The environment variable with the URL of a server to test on; its role creates and drops databases there."""

VERSION = "EVENTKIT_TEST_POSTGRES_VERSION"
"""The environment variable with the major version to test on."""


@dataclass(frozen=True)
class Server:
    """A running server: the URL of a database in it, its version such as ``18.4``, and its origin."""

    url: str
    version: str
    source: str


def share(folder: Path, environment: Mapping[str, str]) -> Server:
    """Return the session's server with the `OwnedFolder` at *folder*; the first caller starts it.

    Raises:
        NoServer: There is none; all callers get the error of a single attempt.
    """
    known, failed = folder / "server.json", folder / "failure"
    with (folder / "sharing").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if failed.exists():
            raise NoServer(failed.read_text("utf-8"))
        if not known.exists():
            try:
                server = resolve(folder, environment)
            except Exception as error:
                failed.write_text(str(error), "utf-8")
                raise
            known.write_text(json.dumps(asdict(server)), "utf-8")
        return Server(**json.loads(known.read_text("utf-8")))


def resolve(folder: Path, environment: Mapping[str, str]) -> Server:
    """Return the server that *environment* names, or start one in *folder*, of the requested version.

    Raises:
        NoServer: There is none.
    """
    version, url = environment.get(VERSION, ""), environment.get(URL, "")
    if version and not version.isdecimal():
        raise NoServer(f"{VERSION} is {version!r}: give a major version such as 18, or unset it.")
    if not url:
        binaries = postgres_binaries.find(int(version) if version else None)
        cluster = Cluster(binaries, folder)
        cluster.start()
        return Server(cluster.url, cluster.version, str(binaries.folder))
    try:
        with psycopg.connect(url, connect_timeout=10) as connection:
            [running] = connection.execute("SHOW server_version").fetchone() or ("",)
    except psycopg.Error as error:
        raise NoServer(
            f"{URL} leads to no server: {error}\nStart it, or unset the variable to test on a throwaway cluster."
        ) from error
    running = running.partition(" ")[0]
    if version and not re.match(rf"{version}\b", running):
        raise NoServer(f"{URL} leads to PostgreSQL {running} and {VERSION} asks for {version}: unset one of them.")
    return Server(url, running, URL)


@contextmanager
def own_database(server: Server, worker: str) -> Iterator[str]:
    """Yield the URL of a new database in *server*, and drop it in the end."""
    name = f"eventkit_{worker}_{secrets.token_hex(4)}"
    try:
        run(server.url, SQL("CREATE DATABASE {}").format(Identifier(name)))
    except psycopg.errors.InsufficientPrivilege as error:
        raise NoServer(f"{URL} has a role that may not make databases: ALTER ROLE … CREATEDB.") from error
    yield re.sub(r"^(\w+://[^/?]*)(/[^?]*)?", rf"\1/{name}", server.url)
    run(server.url, SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


def drop_schema(url: str, name: str) -> None:
    """Drop a schema of the worker's own database at *url*, and end the sessions that use it."""
    with psycopg.connect(url, autocommit=True) as connection:
        end_work(connection, name)
        connection.execute("SET client_min_messages = warning")
        connection.execute("SET lock_timeout = '30s'")
        connection.execute(SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(Identifier(name)))


def end_work(connection: psycopg.Connection[Any], schema: str) -> None:
    """End all other sessions that use a schema of the connection's database, and their prepared transactions."""
    # Prepared transactions have no backend to terminate, and keep their locks for ever.
    prepared = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
    for (gid,) in connection.execute(prepared).fetchall():
        connection.execute(SQL("ROLLBACK PREPARED {}").format(gid))
    connection.execute(
        """
        SELECT pg_terminate_backend(pid) FROM (
            SELECT DISTINCT l.pid
            FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
            LEFT JOIN pg_class c ON c.oid = l.relation
            WHERE l.pid <> pg_backend_pid() AND to_regnamespace(%(schema)s) IN
                (c.relnamespace, CASE WHEN l.classid = 'pg_namespace'::regclass THEN l.objid END)
        ) holders
        """,
        {"schema": schema},
    )


def run(url: str, statement: SQL | Composed) -> None:
    """Run one statement outside of a transaction."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)
