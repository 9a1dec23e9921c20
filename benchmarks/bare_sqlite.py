"""The reference: apsw without eventkit, executing the statements that eventkit's backend executes.

Rows stay tuples, payloads are encoded and decoded by msgspec, and nothing is checked, shared between
threads, or notified.
"""

import os
from collections.abc import Iterable
from typing import Any

import apsw
from eventkit_sqlite.library import open_connection
from eventkit_sqlite.statements import STATEMENTS

import eventkit

from .contestants import Contestant, decode, encode, payloads


def _sql(heading: str, *parameters: str) -> str:
    """Return the backend's statement, with its parameters in this order."""
    statement = STATEMENTS[heading]
    if statement.parameters != parameters:
        raise LookupError(f"{heading} has the parameters {statement.parameters}, not {parameters}: update bare.py")
    return statement.sql


_ENQUEUE = _sql("Enqueue", "queue", "payload", "headers", "priority", "max_attempts")
_ENQUEUE_PLAIN = _sql("EnqueuePlain", "queue", "payloads")
_TAKE = _sql("TakeFirst", "worker", "token", "lease", "queue", "limit")
_LEASE = _sql("Lease", "worker", "token", "lease", "queue", "limit", "max_attempts")
_ACK = _sql("Ack", "id", "token")
_ACK_MANY = _sql("AckMany", "held")
_PUBLISH = _sql("Publish", "topic", "key", "payload", "headers")
_PUBLISH_PLAIN = _sql("PublishPlain", "topic", "payloads")
_READ_EVENTS = _sql("ReadEvents", "topic", "after", "limit")


class Bare(Contestant):
    """The statements of each operation without other logic, on a connection configured like the backend's."""

    def __init__(self, url: str) -> None:
        eventkit.connect(url).close()
        self._connection = self._open(url.removeprefix("sqlite:///"))
        self._execute = self._connection.execute

    def _open(self, path: str) -> Any:
        """Return a connection with the settings of the backend's own."""
        return open_connection("apsw", path, "NORMAL", 5)

    def fill(self, count: int) -> None:
        self._execute(_ENQUEUE_PLAIN, ("work", _array(payloads(count)))).fetchall()

    def enqueue(self, payload: Any) -> None:
        self._execute(_ENQUEUE, ("other", encode(payload).decode(), None, 0, None)).fetchall()

    def enqueue_many(self, batch: list[Any]) -> None:
        self._execute(_ENQUEUE_PLAIN, ("other", _array(batch))).fetchall()

    def claim(self) -> None:
        token = _token()
        [row] = self._execute(_TAKE, ("worker", token, None, "work", 1)).fetchall()
        decode(row[2])
        self._execute(_ACK, (row[0], token)).fetchall()

    def claim_many(self, size: int) -> None:
        token = _token()
        rows = self._execute(_TAKE, ("worker", token, None, "work", size)).fetchall()
        for row in rows:
            decode(row[2])
        self._execute(_ACK_MANY, (encode([(row[0], token) for row in rows]).decode(),)).fetchall()

    def publish(self, payload: Any) -> None:
        self._execute(_PUBLISH, ("topic", None, encode(payload).decode(), None)).fetchall()

    def publish_many(self, batch: list[Any]) -> None:
        self._execute(_PUBLISH_PLAIN, ("topic", _array(batch))).fetchall()

    def read(self, count: int) -> None:
        after = 0
        for _ in range(count // 1000):
            rows = self._execute(_READ_EVENTS, ("topic", after, 1000)).fetchall()
            for row in rows:
                decode(row[2])
            after = rows[-1][0]

    subscribe = read

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class ByHand(Bare):
    """A minimal implementation for the same work: ``executemany``, and a claim that ignores settings."""

    def _open(self, path: str) -> Any:
        """Return a connection with apsw's defaults, and the same durability and timeout."""
        connection = apsw.Connection(path)
        connection.set_busy_timeout(5000)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def enqueue_many(self, batch: list[Any]) -> None:
        """Enqueue tasks in one transaction, without their ids."""
        self._insert_many("INSERT INTO eventkit_task (queue, payload) VALUES ('other', ?)", batch)

    def claim(self) -> None:
        """Claim and ack by one UPDATE and one DELETE, ignoring pauses, rates, retry settings and due tasks."""
        token = _token()
        [row] = self._execute(_LEASE, ("worker", token, 300_000, "work", 1, 3)).fetchall()
        decode(row[2])
        self._execute(_ACK, (row[0], token)).fetchall()

    def claim_many(self, size: int) -> None:
        """Claim and ack by one UPDATE for the batch, and ``executemany`` for the DELETE."""
        token = _token()
        rows = self._execute(_LEASE, ("worker", token, 300_000, "work", size, 3)).fetchall()
        for row in rows:
            decode(row[2])
        self._execute("BEGIN IMMEDIATE")
        self._connection.executemany(_ACK, [(row[0], token) for row in rows]).fetchall()
        self._execute("COMMIT")

    def publish_many(self, batch: list[Any]) -> None:
        """Publish events in one transaction, without their offsets."""
        self._insert_many("INSERT INTO eventkit_event (topic, payload) VALUES ('topic', ?)", batch)

    def _insert_many(self, sql: str, batch: list[Any]) -> None:
        self._execute("BEGIN IMMEDIATE")
        self._connection.executemany(sql, ((encode(payload).decode(),) for payload in batch))
        self._execute("COMMIT")


def _array(batch: Iterable[Any]) -> str:
    """Return the payloads' texts as JSON."""
    return encode([encode(payload).decode() for payload in batch]).decode()


def _token() -> int:
    return int.from_bytes(os.urandom(8)) >> 1
