"""Other queues on SQLite, through their public calls, at the same durability (WAL, synchronous NORMAL).

Their guarantees differ.  huey has no ack: a dequeued task is gone.  litequeue and persist-queue
keep finished rows.  None of the three has batches or streams.
"""

import json
import platform
from itertools import islice
from typing import Any

from .payloads import payloads
from .rounds import Contestant


class Huey(Contestant):
    """huey: enqueue, and dequeue without an ack."""

    def __init__(self, folder: str) -> None:
        from huey import SqliteHuey

        self._huey = SqliteHuey(filename=f"{folder}/huey.db", results=False)
        self._huey.storage.sql("PRAGMA synchronous = NORMAL")

        @self._huey.task()  # type: ignore[untyped-decorator]
        def send(payload: Any) -> None:
            """Do nothing: it never runs here."""

        self._send = send

    def fill(self, count: int) -> None:
        """Add tasks."""
        self.enqueue(count)

    def enqueue(self, count: int) -> None:
        """Enqueue tasks, one per transaction."""
        for payload in payloads(count):
            self._send(payload)

    def claim(self, count: int) -> None:
        """Dequeue."""
        for _ in range(count):
            if self._huey.dequeue() is None:
                raise AssertionError("a task is missing")

    def close(self) -> None:
        """Close the file."""
        self._huey.storage.close()


class Litequeue(Contestant):
    """litequeue, which sets WAL and NORMAL itself."""

    def __init__(self, folder: str) -> None:
        from litequeue import LiteQueue

        self._queue = LiteQueue(f"{folder}/litequeue.db")

    def fill(self, count: int) -> None:
        """Add tasks."""
        self.enqueue(count)

    def enqueue(self, count: int) -> None:
        """Enqueue tasks, one per transaction."""
        for payload in payloads(count):
            self._queue.put(json.dumps(payload))

    def claim(self, count: int) -> None:
        """Pop and mark as done."""
        for _ in range(count):
            message = self._queue.pop()
            json.loads(message.data)
            self._queue.done(message.message_id)

    def close(self) -> None:
        """Close the file."""
        self._queue.conn.close()


class PersistQueue(Contestant):
    """persist-queue's SQLiteAckQueue."""

    def __init__(self, folder: str) -> None:
        import persistqueue

        self._queue = persistqueue.SQLiteAckQueue(f"{folder}/persistqueue")
        self._queue._conn.execute("PRAGMA synchronous = NORMAL")

    def fill(self, count: int) -> None:
        """Add tasks."""
        self.enqueue(count)

    def enqueue(self, count: int) -> None:
        """Enqueue tasks, one per transaction."""
        for payload in payloads(count):
            self._queue.put(payload)

    def claim(self, count: int) -> None:
        """Get and ack."""
        for _ in range(count):
            self._queue.ack(self._queue.get(block=False))

    def close(self) -> None:
        """Close the file."""
        self._queue.close()


class Honker(Contestant):
    """honker, if its wheel can be loaded."""

    def __init__(self, folder: str) -> None:
        import honker

        self._database = honker.open(f"{folder}/honker.db")
        self._work, self._other = self._database.queue("work"), self._database.queue("other")
        self._topic = self._database.stream("topic")

    def fill(self, count: int) -> None:
        """Add tasks."""
        self._enqueue_in_one(self._work, payloads(count))

    def enqueue(self, count: int) -> None:
        """Enqueue tasks, one per transaction."""
        for payload in payloads(count):
            self._other.enqueue(payload)

    def enqueue_many(self, count: int, size: int) -> None:
        """Enqueue tasks, *size* per transaction, as its documentation shows."""
        source = payloads(count)
        for _ in range(count // size):
            self._enqueue_in_one(self._other, islice(source, size))

    def claim(self, count: int) -> None:
        """Claim and ack, one by one."""
        for _ in range(count):
            job = self._work.claim_one("worker")
            _ = job.payload
            job.ack()

    def claim_many(self, count: int, size: int) -> None:
        """Claim and ack, *size* per transaction."""
        for _ in range(count // size):
            jobs = self._work.claim_batch("worker", size)
            self._work.ack_batch([job.id for job in jobs if job.payload], "worker")

    def publish(self, count: int) -> None:
        """Publish events, one per transaction."""
        for payload in payloads(count):
            self._topic.publish(payload)

    def publish_many(self, count: int, size: int) -> None:
        """Publish events, *size* per transaction."""
        source = payloads(count)
        for _ in range(count // size):
            with self._database.transaction() as tx:
                for payload in islice(source, size):
                    self._topic.publish(payload, tx=tx)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _enqueue_in_one(self, queue: Any, source: Any) -> None:
        with self._database.transaction() as tx:
            for payload in source:
                queue.enqueue(payload, tx=tx)


PEERS: dict[str, type[Contestant]] = {
    "huey": Huey,
    "litequeue": Litequeue,
    "persist-queue": PersistQueue,
    "honker": Honker,
}


def why_not(name: str, error: Exception) -> str:
    """Return the reason why a peer could not be started, in a few words."""
    reason = str(error).strip().splitlines()[-1].partition(" (required by")[0]
    if name == "honker" and reason.startswith("ModuleNotFoundError"):
        return (
            f"not installed; its Linux wheels need glibc 2.38, and this system has {platform.libc_ver()[1] or 'none'}"
        )
    return reason
