"""The reference: psycopg without eventkit, and plain statements on the tables and indexes of eventkit.

They use no function, mark, check or notification; the statement itself draws ids.  A claim returns
the fields that a handler needs.  Payloads are encoded and decoded by msgspec.
"""

import os
from collections.abc import Iterable
from typing import Any

import psycopg

import eventkit

from .contestants import PREFETCH, AsyncContestant, Contestant, consume, decode, encode, payloads

_SCHEMA = "eventkit"
_ENQUEUE = f"INSERT INTO {_SCHEMA}.eventkit_task (queue, payload) VALUES (%s, %s::json) RETURNING id"
_ENQUEUE_NOTIFYING = f"""
WITH notified AS MATERIALIZED (SELECT pg_notify('bell', 'other'))
INSERT INTO {_SCHEMA}.eventkit_task (queue, payload)
SELECT %s, %s::json FROM notified
RETURNING id
"""
_ENQUEUE_MANY = f"""
INSERT INTO {_SCHEMA}.eventkit_task (queue, payload)
SELECT %s, payload::json FROM unnest(%s::text[]) AS payload
RETURNING id
"""
_COPY = f"COPY {_SCHEMA}.eventkit_task (queue, payload) FROM STDIN"
_CLAIM = f"""
WITH best AS MATERIALIZED (
    SELECT id FROM {_SCHEMA}.eventkit_task
    WHERE queue = %s AND state = 'ready'
    ORDER BY priority DESC, run_at, id
    LIMIT %s
    FOR UPDATE SKIP LOCKED
)
UPDATE {_SCHEMA}.eventkit_task AS t
SET
    state = 'leased', attempt = attempt + 1, worker = %s, token = %s,
    claimed_at = clock_timestamp(), wake_at = clock_timestamp() + interval '300 s'
FROM best
WHERE t.id = best.id
RETURNING t.id, payload::text, key, headers::text, priority, attempt
"""
_ACK = f"DELETE FROM {_SCHEMA}.eventkit_task WHERE id = ANY (%s::bigint[]) AND token = %s RETURNING id"
_PUBLISH = f"""
INSERT INTO {_SCHEMA}.eventkit_event (id, topic, payload)
VALUES (nextval('{_SCHEMA}.eventkit_event_id_seq'), %s, %s::json)
RETURNING id
"""
_PUBLISH_MANY = f"""
INSERT INTO {_SCHEMA}.eventkit_event (id, topic, payload)
SELECT nextval('{_SCHEMA}.eventkit_event_id_seq'), %s, payload::json FROM unnest(%s::text[]) AS payload
RETURNING id
"""
_READ = f"""
SELECT id, key, payload::text, headers::text, (date_part('epoch', created_at) * 1000)::bigint
FROM {_SCHEMA}.eventkit_event
WHERE topic = %s AND id > %s
ORDER BY id
"""


class Bare(Contestant):
    """The statements without other logic, on one connection in autocommit."""

    def __init__(self, url: str) -> None:
        eventkit.connect(url).close()
        self._connection = psycopg.connect(url, autocommit=True)
        self._execute: Any = self._connection.execute

    def fill(self, count: int) -> None:
        self._execute(_ENQUEUE_MANY, ("work", _array(payloads(count))))

    def enqueue(self, payload: Any) -> None:
        self._execute(_ENQUEUE, ("other", encode(payload).decode())).fetchone()

    def enqueue_many(self, batch: list[Any]) -> None:
        """Enqueue tasks in one transaction, by ``unnest``."""
        self._execute(_ENQUEUE_MANY, ("other", _array(batch))).fetchall()

    def claim_many(self, size: int) -> None:
        """Claim *size* tasks by UPDATE, ack them by DELETE."""
        token = _token()
        rows = self._execute(_CLAIM, ("work", size, "worker", token)).fetchall()
        for row in rows:
            decode(row[1])
        done = self._execute(_ACK, (_numbers([row[0] for row in rows]), token)).fetchall()
        if len(done) != size:
            raise AssertionError(f"{len(done)} of {size} tasks were there")

    def publish(self, payload: Any) -> None:
        self._execute(_PUBLISH, ("topic", encode(payload).decode())).fetchone()

    def publish_many(self, batch: list[Any]) -> None:
        """Publish events in one transaction, by ``unnest``."""
        self._execute(_PUBLISH_MANY, ("topic", _array(batch))).fetchall()

    def read(self, count: int) -> None:
        """Read the first events through a server-side cursor, a thousand at a time, and decode the payloads."""
        with self._connection.transaction(), self._connection.cursor(name="replay") as cursor:
            cursor.execute(_READ + " LIMIT %s", ("topic", 0, count))
            while rows := cursor.fetchmany(1000):
                for row in rows:
                    decode(row[2])

    subscribe = read

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Copying(Bare):
    """A contestant that only enqueues many tasks, by COPY, which returns no ids."""

    def can(self, work: str) -> bool:
        """Return whether it is this work."""
        return work == "enqueue_many"

    def enqueue_many(self, batch: list[Any]) -> None:
        """Enqueue tasks in one transaction, by COPY."""
        with self._connection.cursor() as cursor, cursor.copy(_COPY) as copy:
            copy.write("".join(f"other\t{encode(payload).decode()}\n" for payload in batch))


class Notifying(Bare):
    """A contestant that notifies in each transaction, as most queues do."""

    def enqueue(self, payload: Any) -> None:
        """Enqueue a task, with a NOTIFY in the transaction."""
        self._execute(_ENQUEUE_NOTIFYING, ("other", encode(payload).decode())).fetchone()


class BareInLoop(AsyncContestant):
    """A consumer of the same shape as the kit's, with only statements."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._bare = Bare(url)
        self._claiming, self._acking = self.run(self._connect(url))

    async def _connect(self, url: str) -> list[Any]:
        return [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(2)]

    def fill(self, count: int) -> None:
        self._bare.fill(count)

    async def consume(self, count: int) -> None:
        token = _token()

        async def claim() -> list[Any]:
            return await (await self._claiming.execute(_CLAIM, ("work", PREFETCH, "worker", token))).fetchall()

        def handle(row: Any) -> int:
            decode(row[1])
            return int(row[0])

        async def ack(ids: list[int]) -> int:
            return int((await self._acking.execute(_ACK, (_numbers(ids), token))).rowcount)

        await consume(count, claim, handle, ack)

    def close(self) -> None:
        """Close the connections."""
        for connection in (self._claiming, self._acking):
            self.run(connection.close())
        self._bare.close()
        super().close()


def _numbers(ids: list[int]) -> str:
    return "{" + ",".join(map(str, sorted(ids))) + "}"


def _array(batch: Iterable[Any]) -> str:
    """Return the payloads as an array literal: the driver's conversion of lists takes ten times as long."""
    texts = [encode(payload).decode() for payload in batch]
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in texts]
    return '{"' + '","'.join(quoted) + '"}'


def _token() -> Any:
    return int.from_bytes(os.urandom(8)) >> 1
