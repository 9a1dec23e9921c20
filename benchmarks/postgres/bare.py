"""The reference: psycopg without eventkit, and plain statements on the tables and indexes of eventkit.

They use no function, mark, check or notification; the statement itself draws ids.  A claim returns
the fields that a handler needs.  Payloads are encoded and decoded by msgspec.
"""

import asyncio
import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
import psycopg

import eventkit

from ..payloads import payloads
from ..rounds import Contestant

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode

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

    def fill(self, count: int) -> None:
        """Add tasks as fast as possible."""
        texts = [encode(payload).decode() for payload in payloads(count)]
        self._connection.execute(_ENQUEUE_MANY, ("work", _array(texts)))

    def enqueue(self, count: int) -> None:
        """Enqueue tasks, one per transaction."""
        execute = self._connection.execute
        for payload in payloads(count):
            execute(_ENQUEUE, ("other", encode(payload).decode())).fetchone()

    def enqueue_many(self, count: int, size: int) -> None:
        """Enqueue tasks, *size* per transaction, by ``unnest``."""
        for texts in _batches(count, size):
            self._connection.execute(_ENQUEUE_MANY, ("other", _array(texts))).fetchall()

    def claim_many(self, count: int, size: int) -> None:
        """Claim by UPDATE, ack by DELETE, *size* per transaction."""
        execute = self._connection.execute
        for _ in range(count // size):
            token = _token()
            rows = execute(_CLAIM, ("work", size, "worker", token)).fetchall()
            for row in rows:
                decode(row[1])
            done = execute(_ACK, (_numbers([row[0] for row in rows]), token)).fetchall()
            if len(done) != size:
                raise AssertionError(f"{len(done)} of {size} tasks were there")

    def publish(self, count: int) -> None:
        """Publish events, one per transaction."""
        execute = self._connection.execute
        for payload in payloads(count):
            execute(_PUBLISH, ("topic", encode(payload).decode())).fetchone()

    def publish_many(self, count: int, size: int) -> None:
        """Publish events, *size* per transaction, by ``unnest``."""
        for texts in _batches(count, size):
            self._connection.execute(_PUBLISH_MANY, ("topic", _array(texts))).fetchall()

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
    """A contestant that enqueues many tasks by COPY, which returns no ids."""

    def enqueue_many(self, count: int, size: int) -> None:
        """Enqueue tasks, *size* per transaction, by COPY."""
        for texts in _batches(count, size):
            with self._connection.cursor() as cursor, cursor.copy(_COPY) as copy:
                copy.write("".join(f"other\t{text}\n" for text in texts))


class Notifying(Bare):
    """A contestant that notifies in each transaction, as most queues do."""

    def enqueue(self, count: int) -> None:
        """Enqueue tasks, one per transaction, with a NOTIFY in it."""
        execute = self._connection.execute
        for payload in payloads(count):
            execute(_ENQUEUE_NOTIFYING, ("other", encode(payload).decode())).fetchone()


class BareInLoop(Contestant):
    """A consumer of the same shape as the kit's, with only statements."""

    def __init__(self, url: str) -> None:
        self._bare = Bare(url)
        self._runner = asyncio.Runner()
        self._claiming, self._acking = self._runner.run(self._connect(url))

    async def _connect(self, url: str) -> list[Any]:
        return [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(2)]

    def fill(self, count: int) -> None:
        """Add tasks as fast as possible."""
        self._bare.fill(count)

    def consume(self, count: int) -> None:
        """Run an asyncio task for each task of the queue, which does nothing; delete finished tasks in batches."""
        self._runner.run(self._consume(count))

    async def _consume(self, count: int) -> None:
        token = _token()
        handled: asyncio.Queue[list[int] | None] = asyncio.Queue(2)

        async def handle(row: Any) -> int:
            decode(row[1])
            return int(row[0])

        async def ack() -> int:
            acked = 0
            while (ids := await handled.get()) is not None:
                acked += (await self._acking.execute(_ACK, (_numbers(ids), token))).rowcount
            return acked

        acking = asyncio.create_task(ack())
        while True:
            cursor = await self._claiming.execute(_CLAIM, ("work", 256, "worker", token))
            rows = await cursor.fetchall()
            if not rows:
                break
            await handled.put(await asyncio.gather(*(asyncio.create_task(handle(row)) for row in rows)))
        await handled.put(None)
        if await acking != count:
            raise AssertionError(f"not all of {count} tasks were there")

    def close(self) -> None:
        """Close the connections."""
        for connection in (self._claiming, self._acking):
            self._runner.run(connection.close())
        self._runner.close()
        self._bare.close()


def _numbers(ids: list[int]) -> str:
    return "{" + ",".join(map(str, sorted(ids))) + "}"


def _batches(count: int, size: int) -> Iterator[list[str]]:
    source = payloads(count)
    for _ in range(count // size):
        yield [encode(payload).decode() for payload in islice(source, size)]


def _array(texts: list[str]) -> str:
    """Return an array literal: the driver's conversion of lists takes ten times as long."""
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in texts]
    return '{"' + '","'.join(quoted) + '"}'


def _token() -> Any:
    return int.from_bytes(os.urandom(8)) >> 1
