"""The servers that tests run on: found, started, shared, cleaned, and always ended."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import owned_folder
import psycopg
import pytest
from clusters import Cluster, ClusterError, free_port
from emptied_schema import EmptiedSchema
from own_cluster import exercise
from owned_folder import OwnedFolder
from postgres_binaries import Binaries, NoServer, choose, in_package, on_machine
from postgres_server import URL, VERSION, drop_schema, own_database, resolve, share
from psycopg.sql import SQL, Identifier

import eventkit

TESTS = Path(__file__).parent / "support"
MAJORS = {binaries.major: binaries for binaries in [*reversed(in_package()), *reversed(on_machine())]}
"""One server of each major version that is available here."""


def answer(url: str, statement: str) -> object:
    """Return the first value of *statement*, in a transaction of its own."""
    with psycopg.connect(url) as connection:
        row = connection.execute(statement.encode()).fetchone()
    return row and row[0]


def wait_until_gone(pid: int) -> None:
    """Return when the ending process is gone or a zombie."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        state = subprocess.run(("ps", "-o", "stat=", "-p", str(pid)), capture_output=True, text=True).stdout.strip()
        if not state or state.startswith("Z"):
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} still runs")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Return a running cluster."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return the folder of a session."""
    owned = OwnedFolder()
    yield owned.path
    owned.close()


def test_the_first_found_is_taken_and_a_version_asked_for_wins() -> None:
    """Servers on the machine come first, unless only the package has the requested version."""
    found = [Binaries(Path("/machine"), "15.20"), Binaries(Path("/other"), "14.1"), Binaries(Path("/package"), "18.4")]
    assert choose(None, found).folder == Path("/machine")
    assert choose(15, found).folder == Path("/machine")
    assert choose(18, found).folder == Path("/package")
    with pytest.raises(NoServer, match=r"no PostgreSQL 13 .* found 15\.20 in /machine.*pip install.*" + URL):
        choose(13, found)


@pytest.mark.parametrize("major", MAJORS)
def test_a_cluster_keeps_its_data_over_a_crash_and_leaves_nothing(major: int) -> None:
    """Each server starts, also for root, accepts connections both ways, crashes, restarts, and ends."""
    with Cluster(MAJORS[major]) as cluster:
        url, first = cluster.url, cluster.pid
        assert first is not None
        assert str(answer(url, "SHOW server_version")).split()[0] == cluster.version
        with psycopg.connect(cluster.socket_url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
        cluster.stop("immediate")
        wait_until_gone(first)
        assert cluster.pid is None
        cluster.stop()
        with pytest.raises(psycopg.OperationalError):
            answer(url, "SELECT 1")
        cluster.start()
        assert cluster.url == url
        assert answer(url, "SELECT one FROM kept") == 1
        cluster.restart()
        assert answer(url, "SELECT one FROM kept") == 1
        last = cluster.pid
    assert last is not None
    assert last != first
    assert not cluster.folder.exists()
    wait_until_gone(last)


def test_settings_count_when_configure_returns(cluster: Cluster) -> None:
    """Reloadable settings apply without a restart, and the others after one; the server's error names a wrong one."""
    before = cluster.pid
    cluster.configure(idle_in_transaction_session_timeout="3s", search_path="it's, public")
    assert cluster.pid == before
    assert answer(cluster.url, "SHOW idle_in_transaction_session_timeout") == "3s"
    cluster.configure(max_connections=20)
    assert cluster.pid != before
    assert answer(cluster.url, "SHOW max_connections") == "20"
    assert answer(cluster.url, "SHOW idle_in_transaction_session_timeout") == "3s"
    assert answer(cluster.url, "SHOW fsync") == "off"
    with pytest.raises(ClusterError, match="does not take no_such_setting = '1'"):
        cluster.configure(idle_in_transaction_session_timeout=0, no_such_setting=1)
    refused = Cluster(max_connections="many")
    with pytest.raises(ClusterError, match='invalid value for parameter "max_connections": "many"'):
        refused.__enter__()
    assert not refused.folder.exists()


@pytest.mark.parametrize("end", ["kill", "leave"])
def test_a_cluster_ends_with_the_process_that_made_it(end: str) -> None:
    """It ends if that process is killed or ends without cleaning up."""
    program = "import sys; from clusters import Cluster; c = Cluster(); c.start(); print(c.folder, c.pid, flush=True)"
    command = (sys.executable, "-c", f"{program}; sys.stdin.read()")
    with subprocess.Popen(command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        folder, pid = owner.stdout.readline().split()
        assert Path(folder).exists()
        os.kill(int(pid), 0)
        if end == "kill":
            owner.kill()
    assert owner.returncode == (-signal.SIGKILL if end == "kill" else 0)
    deadline = time.monotonic() + owned_folder.PATIENCE
    while Path(folder).exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    wait_until_gone(int(pid))


def test_a_url_given_wins(cluster: Cluster, folder: Path) -> None:
    """No server is started then; if a version is given too, the server must have it."""
    major = cluster.binaries.major
    server = resolve(folder, {URL: cluster.url, VERSION: str(major)})
    assert (server.url, server.version, server.source) == (cluster.url, cluster.version, URL)
    assert resolve(folder, {URL: cluster.url}) == server
    assert {file.name for file in folder.iterdir()} == {"owner"}
    with pytest.raises(NoServer, match=rf"leads to PostgreSQL {cluster.version} and {VERSION} asks for {major - 1}"):
        resolve(folder, {URL: cluster.url, VERSION: str(major - 1)})


def test_a_server_that_is_not_there_is_an_error_with_a_remedy(folder: Path) -> None:
    """An unreachable URL, an unavailable version and an invalid version are errors."""
    with pytest.raises(NoServer, match=rf"{URL} leads to no server: [\s\S]*unset the variable"):
        resolve(folder, {URL: f"postgresql://127.0.0.1:{free_port()}/postgres"})
    with pytest.raises(NoServer, match="no PostgreSQL 7 to test on"):
        resolve(folder, {VERSION: "7"})
    with pytest.raises(NoServer, match=f"{VERSION} is 'new': give a major version"):
        resolve(folder, {VERSION: "new"})


def test_tests_share_the_server_that_was_started(folder: Path) -> None:
    """The requested version is started once; a failed start is not repeated by each caller."""
    major = max(MAJORS)
    server = share(folder, {VERSION: str(major)})
    assert server.version == MAJORS[major].version
    assert share(folder, {VERSION: "7"}) == server
    owned = OwnedFolder()
    for version in ("7", str(major)):
        with pytest.raises(NoServer, match="no PostgreSQL 7"):
            share(owned.path, {VERSION: version})
    owned.close()


def test_a_database_is_dropped_while_it_has_connections(postgres: str, folder: Path) -> None:
    """The database lies beside others on the given server."""
    server = resolve(folder, {URL: postgres})
    with own_database(server, "a") as one, own_database(server, "b") as other:
        assert answer(one, "SELECT current_database()") != answer(other, "SELECT current_database()")
        names = [answer(url, "SELECT current_database()") for url in (one, other)]
        lingering = psycopg.connect(one)
    lingering.close()
    assert answer(postgres, f"SELECT count(*) FROM pg_database WHERE datname IN ('{names[0]}', '{names[1]}')") == 0


def test_a_schema_is_dropped_while_it_has_transactions(postgres: str) -> None:
    """Open transactions on its tables or the schema itself, and prepared ones, are ended; others are not."""
    schema = f"t_{secrets.token_hex(4)}"
    with psycopg.connect(postgres, autocommit=True) as owner:
        owner.execute(
            f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.a (n int); CREATE TABLE {schema}.b (n int)".encode()
        )
    statements = (
        f"SELECT FROM {schema}.a",
        f"CREATE TABLE {schema}.c ()",
        "SELECT FROM pg_class",
        f"DELETE FROM {schema}.b",
    )
    reader, maker, stranger, preparer = transactions = [psycopg.connect(postgres) for _ in statements]
    for transaction, statement in zip(transactions, statements, strict=True):
        transaction.execute(statement.encode())
    preparer.execute(f"PREPARE TRANSACTION '{schema}'".encode())
    drop_schema(postgres, schema)
    assert answer(postgres, f"SELECT to_regnamespace('{schema}')") is None
    for gone in (reader, maker):
        with pytest.raises(psycopg.OperationalError):
            gone.execute("SELECT 1")
    for left in (stranger, preparer):
        left.execute("SELECT 1")
    for transaction in transactions:
        transaction.close()
    drop_schema(postgres, schema)


def contents(connection: psycopg.Connection, schema: str) -> dict[str, object]:
    """Return the number of rows of each of the schema's tables, and the positions of its sequences."""
    tables = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind IN ('r', 'S')"
    found: dict[str, object] = {}
    for (name,) in connection.execute(tables, (schema,)).fetchall():
        count = SQL("SELECT {} FROM {}").format(
            SQL("last_value::text || is_called" if name.endswith("_seq") else "count(*)"), Identifier(schema, name)
        )
        [found[name]] = connection.execute(count).fetchone() or (None,)
    return found


def test_what_a_test_leaves_behind_the_next_one_does_not_find(postgres: str) -> None:
    """Rows, drawn numbers, and open or prepared transactions are gone."""
    with closing(EmptiedSchema(postgres)) as emptied, psycopg.connect(postgres, autocommit=True) as connection:
        schema = emptied.url.partition("schema=")[2]
        fresh = contents(connection, schema)
        for _ in range(2):
            with eventkit.connect(emptied.url) as kit:
                assert kit.queue("first").enqueue(1).id == 1
                exercise(kit)
                assert kit.lock("l").acquire()
            left, prepared = psycopg.connect(postgres), psycopg.connect(postgres)
            for transaction in (left, prepared):
                transaction.execute(f"SELECT \"{schema}\".eventkit_publish('t', '1')".encode())
            prepared.execute(f"PREPARE TRANSACTION '{schema}'".encode())
            emptied.empty()
            assert contents(connection, schema) == fresh
            left.close()
            prepared.close()
