"""Other queues on Postgres, through their public calls, with their defaults.

Their guarantees differ.  pgmq's messages are read and deleted, without retries or dead letters.
"""

import asyncio
from collections.abc import Coroutine
from itertools import islice
from time import perf_counter
from typing import Any

import psycopg

from ..payloads import payloads
from ..rounds import Contestant
from .bare import encode

_PREFETCH = 256


class InLoop(Contestant):
    """A contestant with awaited calls."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def time(self, work: str, *arguments: Any) -> float:
        """Return the seconds that the work took, inside the event loop."""

        async def run() -> float:
            start = perf_counter()
            await getattr(self, work)(*arguments)
            return perf_counter() - start

        seconds: float = self._run(run())
        return seconds

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(coroutine)


class PgQueuer(InLoop):
    """pgqueuer, on psycopg."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._run(self._connect(url))

    async def _connect(self, url: str) -> None:
        import pgqueuer

        self._connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
        self._queries = pgqueuer.Queries(await self._driver(url))
        await self._connection.execute("SELECT pg_advisory_lock(1)")
        if not await self._queries.schema_is_installed():
            await self._queries.install()
        await self._connection.execute("SELECT pg_advisory_unlock(1)")

    async def _driver(self, url: str) -> Any:
        import pgqueuer

        return pgqueuer.PsycopgDriver(self._connection)

    async def enqueue(self, count: int) -> None:
        """Enqueue jobs, one per transaction."""
        for payload in payloads(count):
            await self._queries.enqueue("other", encode(payload))

    async def enqueue_many(self, count: int, size: int) -> None:
        """Enqueue jobs, *size* per transaction."""
        source = payloads(count)
        for _ in range(count // size):
            texts: list[bytes | None] = [encode(payload) for payload in islice(source, size)]
            await self._queries.enqueue(["other"] * size, texts, [0] * size)

    def fill(self, count: int) -> None:
        """Add jobs as fast as possible."""

        async def fill() -> None:
            texts: list[bytes | None] = [encode(payload) for payload in payloads(count)]
            await self._queries.enqueue(["work"] * count, texts, [0] * count)

        self._run(fill())

    async def consume(self, count: int) -> None:
        """Run a worker until the queue is empty."""
        import pgqueuer
        from pgqueuer.types import QueueExecutionMode

        handled = 0
        worker = pgqueuer.PgQueuer(await self._driver(self._url))

        @worker.entrypoint("work")
        async def handle(job: Any) -> None:
            nonlocal handled
            handled += 1

        await worker.run(batch_size=_PREFETCH, mode=QueueExecutionMode.drain)
        if handled != count:
            raise AssertionError(f"{handled} of {count} jobs were handled")

    def close(self) -> None:
        """Close the connection."""
        self._run(self._connection.close())
        self._runner.close()


class PgQueuerAsyncpg(PgQueuer):
    """pgqueuer, on asyncpg."""

    async def _driver(self, url: str) -> Any:
        import asyncpg
        import pgqueuer

        return pgqueuer.AsyncpgDriver(await asyncpg.connect(url))


class Procrastinate(Contestant):
    """procrastinate, sync."""

    def __init__(self, url: str) -> None:
        import procrastinate

        connector = procrastinate.SyncPsycopgConnector(conninfo=url)
        self._app = procrastinate.App(connector=connector)
        self._app.open()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SELECT pg_advisory_lock(1)")
            if connection.execute("SELECT to_regclass('procrastinate_jobs')").fetchone() == (None,):
                self._app.schema_manager.apply_schema()

        @self._app.task(queue="other", name="send")
        def send(**payload: Any) -> None:
            """Do nothing: it never runs here."""

        self._send = send

    def enqueue(self, count: int) -> None:
        """Enqueue jobs, one per transaction."""
        for payload in payloads(count):
            self._send.defer(**payload)

    def enqueue_many(self, count: int, size: int) -> None:
        """Enqueue jobs, *size* per transaction."""
        source = payloads(count)
        for _ in range(count // size):
            self._send.batch_defer(*islice(source, size))

    def close(self) -> None:
        """Close the pool."""
        self._app.close()


class Pgmq(Contestant):
    """pgmq, installed from the SQL in its Python client."""

    def __init__(self, url: str) -> None:
        import pgmq

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SELECT pg_advisory_lock(1)")
            if connection.execute("SELECT to_regnamespace('pgmq')").fetchone() == (None,):
                pgmq.install_pgmq_sql(pgmq.get_embedded_install_sql(), dsn=url)
                connection.execute("SELECT pgmq.create('work'), pgmq.create('other')")
        self._queue = pgmq.PGMQueue(conn_string=url, init_extension=False)

    def fill(self, count: int) -> None:
        """Add messages."""
        self._queue.send_batch("work", list(payloads(count)))

    def enqueue(self, count: int) -> None:
        """Enqueue messages, one per transaction."""
        for payload in payloads(count):
            self._queue.send("other", payload)

    def enqueue_many(self, count: int, size: int) -> None:
        """Enqueue messages, *size* per transaction."""
        source = payloads(count)
        for _ in range(count // size):
            self._queue.send_batch("other", list(islice(source, size)))

    def claim_many(self, count: int, size: int) -> None:
        """Read and delete, *size* per transaction."""
        for _ in range(count // size):
            messages = self._queue.read_batch("work", vt=300, batch_size=size)
            done = self._queue.delete_batch("work", [message.msg_id for message in messages])
            if len(done) != size:
                raise AssertionError(f"{len(done)} of {size} messages were there")

    def close(self) -> None:
        """Close the pool."""
        self._queue.close()


PEERS: dict[str, type[Contestant]] = {
    "pgqueuer": PgQueuer,
    "pgqueuer (asyncpg)": PgQueuerAsyncpg,
    "procrastinate": Procrastinate,
    "pgmq": Pgmq,
}


def why_not(error: Exception) -> str:
    """Return the reason why a peer could not be started, in a few words."""
    return str(error).strip().splitlines()[-1]
