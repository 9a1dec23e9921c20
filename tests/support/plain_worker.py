"""A worker in a process of its own that can be killed: in plain SQL, or with a kit.

Each task is done in the transaction of its ack, by an event with its payload.
"""

import json
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any

import eventkit_postgres.address
import eventkit_sqlite.address
import psycopg

import eventkit
from eventkit.conformance.calling import Caller, Plain

LEASE = 1.0


def opened(url: str) -> tuple[str, Callable[[str], Any]]:
    """Return the prefix of names, and a function that runs a statement on a connection of a plain driver."""
    prefix = ""
    connection: Any
    if url.startswith("sqlite"):
        connection = sqlite3.connect(eventkit_sqlite.address.parse(url).path, timeout=30, isolation_level=None)
    else:
        address = eventkit_postgres.address.parse(url)
        prefix, connection = f'"{address.schema}".', psycopg.connect(address.conninfo, autocommit=True)

    def run(sql: str) -> Any:
        cursor = connection.execute(sql)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None

    return prefix, run


def plainly(url: str, worker: str) -> None:
    """Work in plain SQL."""
    prefix, run = opened(url)
    plain = Plain(Caller("driver", prefix, run, None))
    begin = "BEGIN" if prefix else "BEGIN IMMEDIATE"
    while True:
        run(begin)
        tasks = plain.claim("q", worker, 2, LEASE)
        run("COMMIT")
        for task in tasks:
            run(begin)
            plain.do("publish", stream="done", payload=json.dumps(task["payload"]))
            time.sleep(0.002)
            run("COMMIT" if plain.ack(json.dumps(task)) else "ROLLBACK")
        if not tasks:
            time.sleep(0.02)


def with_a_kit(url: str, worker: str) -> None:
    """Work with handles."""
    with eventkit.connect(url) as kit:
        for task in kit.queue("q").work(worker, batch=2, lease=LEASE):
            try:
                with kit.transaction() as tx:
                    kit.stream("done").publish(task.payload, tx=tx)
                    time.sleep(0.002)
                    if not kit.queue("q").ack(task, tx=tx):
                        raise LookupError("the lease was lost")
            except LookupError:
                continue


if __name__ == "__main__":
    {"plain": plainly, "kit": with_a_kit}[sys.argv[1]](*sys.argv[2:])
