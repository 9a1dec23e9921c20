"""Plain SQL from the shells of the databases, from node, and beside workers with a kit that are killed (P3)."""

import json
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import eventkit_postgres.address
import eventkit_sqlite.address
import pytest
from eventkit_sqlite import ddl

import eventkit
from eventkit import EventKit
from eventkit.conformance import proves
from eventkit.conformance.calling import Caller, Plain
from eventkit.conformance.processes import PATIENCE
from eventkit.conformance.test_plain_calls import (
    test_a_lost_lease_is_an_error_of_plain_sql as lost_leases,
)
from eventkit.conformance.test_plain_calls import (
    test_a_plain_task_from_end_to_end as tasks,
)
from eventkit.conformance.test_plain_calls import (
    test_plain_streams_channels_and_locks as streams_and_locks,
)

WORKER = Path(__file__).parent / "support" / "plain_worker.py"

_NODE = """
const open = (file) => {
    try {
        return new (require('node:sqlite').DatabaseSync)(file)
    } catch {
        return new (require('better-sqlite3'))(file)
    }
}
const database = open(process.argv[1])
if (process.argv[2]) {
    database.exec('PRAGMA busy_timeout = 30000')
    const statement = database.prepare(process.argv[2])
    const rows = /^SELECT/.test(process.argv[2]) ? statement.all() : (statement.run(), [])
    if (rows.length) console.log(String(Object.values(rows[0])[0] ?? ''))
}
"""

COMMANDS: dict[str, list[str]] = {
    "sqlite3": ["sqlite3", "-bail", "-cmd", ".timeout 30000"],
    "node": ["node", "--no-warnings", "-e", _NODE, "--"],
    "psql": ["psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "-v", "ON_ERROR_STOP=1", "-d"],
}


def runs(command: list[str]) -> bool:
    """Return whether the client is installed, and can open a database."""
    if shutil.which(command[0]) is None:
        return False
    return command[0] != "node" or not subprocess.run([*command, ":memory:"], capture_output=True).returncode


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a fresh database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def kit(url: str) -> Iterator[EventKit]:
    """Return a kit on it."""
    with eventkit.connect(url) as kit:
        yield kit


def client_of(command: list[str], url: str) -> Plain:
    """Return a caller that runs each statement in a process of the client."""
    prefix, place, option = "", "", []
    if url.startswith("sqlite"):
        place = eventkit_sqlite.address.parse(url).path
    else:
        address = eventkit_postgres.address.parse(url)
        prefix, place, option = f'"{address.schema}".', address.conninfo, ["-c"]

    def run(sql: str) -> Any:
        ended = subprocess.run([*command, place, *option, sql], capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(ended.stderr)
        text = ended.stdout.partition("\n")[0]
        return int(text) if text.isdecimal() else text or None

    return Plain(Caller("driver", prefix, run, None))


@proves("P3")
@pytest.mark.parametrize("check", [tasks, lost_leases, streams_and_locks], ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    ("url", "client"),
    [("sqlite", "sqlite3"), ("sqlite", "node"), ("postgresql", "psql")],
    indirect=["url"],
    ids=lambda value: value,
)
def test_a_client_without_eventkit(
    kit: EventKit, url: str, client: str, check: Callable[[EventKit, Plain], None]
) -> None:
    """A program that only sends SQL, each call in a process of its own, does what the handles do."""
    if not runs(COMMANDS[client]):
        pytest.skip(f"{client} is not installed, or has no SQLite")
    check(kit, client_of(COMMANDS[client], url))


@proves("P3", "Q1")
def test_killed_workers_lose_nothing(kit: EventKit, url: str) -> None:
    """Workers in plain SQL and with kits are killed; each task is done once, and never more run than are allowed."""
    queue, done, chance = kit.queue("q"), kit.stream("done"), random.Random(7)
    queue.configure(max_attempts=1000, max_running=6)
    payloads = [{"number": number} for number in range(100)]
    queue.enqueue_many(payloads)

    def start(kind: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, str(WORKER), kind, url, f"{kind}-{chance.random()}"])

    workers = {index: start(kind) for index, kind in enumerate(("plain", "plain", "kit"))}
    deadline, seen = time.monotonic() + PATIENCE * 2, 0
    try:
        while (number := len(done.read(limit=1000))) < len(payloads):
            assert time.monotonic() < deadline, queue.stats()
            assert queue.stats().running <= 6
            if number >= seen + 10:
                index, seen = chance.choice([*workers]), number
                workers[index].kill()
                workers[index].wait()
                workers[index] = start("kit" if index == 2 else "plain")
            time.sleep(0.02)
    finally:
        for worker in workers.values():
            worker.kill()
            worker.wait()
    assert sorted(json.dumps(event.payload) for event in done.read(limit=1000)) == sorted(map(json.dumps, payloads))
    assert (queue.size(), queue.dead()) == (0, [])


@proves("P3")
def test_sqlite_of_2021_can_read_the_definitions() -> None:
    """A later operator or function in one of them would keep such a library from reading any table of the file."""
    schema = ddl.schema()
    made = "\n".join([*schema.functions(), *schema.tables("0001"), *schema.tables("0002"), *schema.tables("0003")])
    assert not re.search(r"->|unixepoch|DISTINCT FROM|RIGHT JOIN|FULL JOIN|concat", made)


@proves("P3", "Q14")
def test_a_row_that_is_not_json_is_poison(tmp_path: Path) -> None:
    """A plain claim marks it dead, and hands out the others."""
    with eventkit.connect(f"sqlite:///{tmp_path}/shop.db") as kit:
        connection = apsw.Connection(f"{tmp_path}/shop.db")  # The library of the kit.
        plain = Plain(Caller("driver", "", lambda sql: next(connection.execute(sql), (None,))[0], None))
        connection.execute("INSERT INTO eventkit_task (queue, payload) VALUES ('q', 'no JSON'), ('q', '2')")
        connection.execute("INSERT INTO eventkit_do_enqueue (queue, payload) VALUES ('q', json('\"a\"'))")
        assert [task["payload"] for task in plain.claim("q", "w", 9)] == [2, "a"]
        assert [(task.reason, task.error) for task in kit.queue("q").dead()] == [("poison", "the payload is not JSON")]
        connection.close()
