"""Other queues on SQLite, through their public calls, at the same durability (WAL, synchronous NORMAL).

Their guarantees differ.  huey has no ack: a dequeued task is gone.  litequeue and persist-queue
keep finished rows.  None of the three has batches or streams.
"""

import json
from pathlib import Path
from typing import Any

from .contestants import Contestant, payloads


class Huey(Contestant):
    """huey: enqueue, and dequeue without an ack."""

    def __init__(self, url: str) -> None:
        from huey import SqliteHuey

        self._huey = SqliteHuey(filename=f"{_folder(url)}/huey.db", results=False)
        self._huey.storage.sql("PRAGMA synchronous = NORMAL")

        @self._huey.task()  # type: ignore[untyped-decorator]
        def send(payload: Any) -> None:
            """Do nothing."""

        self.enqueue = send

    def claim(self) -> None:
        """Dequeue."""
        if self._huey.dequeue() is None:
            raise AssertionError("a task is missing")

    def work(self, count: int) -> None:
        """Dequeue and execute."""
        for _ in range(count):
            self._huey.execute(self._huey.dequeue())


class Litequeue(Contestant):
    """litequeue, which sets WAL and NORMAL itself."""

    def __init__(self, url: str) -> None:
        from litequeue import LiteQueue

        self._queue = LiteQueue(f"{_folder(url)}/litequeue.db")

    def enqueue(self, payload: Any) -> None:
        self._queue.put(json.dumps(payload))

    def claim(self) -> None:
        """Pop and mark as done."""
        message = self._queue.pop()
        json.loads(message.data)
        self._queue.done(message.message_id)


class PersistQueue(Contestant):
    """persist-queue's SQLiteAckQueue."""

    def __init__(self, url: str) -> None:
        import persistqueue

        self._queue = persistqueue.SQLiteAckQueue(f"{_folder(url)}/persistqueue")
        self._queue._conn.execute("PRAGMA synchronous = NORMAL")
        self.enqueue = self._queue.put

    def claim(self) -> None:
        """Get and ack."""
        self._queue.ack(self._queue.get(block=False))


class Honker(Contestant):
    """honker, if its wheel can be loaded."""

    def __init__(self, url: str) -> None:
        import honker

        self._database = honker.open(f"{_folder(url)}/honker.db")
        self._work, self._other = self._database.queue("work"), self._database.queue("other")
        self._topic = self._database.stream("topic")
        self.enqueue, self.publish = self._other.enqueue, self._topic.publish

    def fill(self, count: int) -> None:
        self._in_one(self._work.enqueue, payloads(count))

    def enqueue_many(self, batch: list[Any]) -> None:
        self._in_one(self._other.enqueue, batch)

    def claim(self) -> None:
        """Claim and ack one task."""
        job = self._work.claim_one("worker")
        _ = job.payload
        job.ack()

    def claim_many(self, size: int) -> None:
        """Claim and ack *size* tasks, in a transaction each."""
        jobs = self._work.claim_batch("worker", size)
        self._work.ack_batch([job.id for job in jobs if job.payload], "worker")

    def publish_many(self, batch: list[Any]) -> None:
        self._in_one(self._topic.publish, batch)

    def _in_one(self, call: Any, source: Any) -> None:
        with self._database.transaction() as tx:
            for payload in source:
                call(payload, tx=tx)


PEERS: dict[str, type[Contestant]] = {
    "huey": Huey,
    "litequeue": Litequeue,
    "persist-queue": PersistQueue,
    "honker": Honker,
}


def _folder(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///")).parent
