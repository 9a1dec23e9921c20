"""Other queues on Postgres, through their public calls, with their defaults.

Their guarantees differ.  pgmq's messages are read and deleted, without retries or dead tasks.
"""

from typing import Any

import psycopg

from .contestants import PREFETCH, AsyncContestant, Contestant, encode, payloads


class PgQueuer(AsyncContestant):
    """pgqueuer, on psycopg."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.run(self._connect(url))

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

    async def enqueue(self, payload: Any) -> None:
        await self._queries.enqueue("other", encode(payload))

    async def enqueue_many(self, batch: list[Any]) -> None:
        await self._add("other", batch)

    async def fill(self, count: int) -> None:
        await self._add("work", list(payloads(count)))

    async def _add(self, queue: str, batch: list[Any]) -> None:
        await self._queries.enqueue([queue] * len(batch), [encode(payload) for payload in batch], [0] * len(batch))

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

        await worker.run(batch_size=PREFETCH, mode=QueueExecutionMode.drain)
        if handled != count:
            raise AssertionError(f"{handled} of {count} jobs were handled")

    work = consume


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

    def enqueue(self, payload: Any) -> None:
        self._send.defer(**payload)

    def enqueue_many(self, batch: list[Any]) -> None:
        self._send.batch_defer(*batch)


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
        self._queue.send_batch("work", list(payloads(count)))

    def enqueue(self, payload: Any) -> None:
        self._queue.send("other", payload)

    def enqueue_many(self, batch: list[Any]) -> None:
        self._queue.send_batch("other", batch)

    def claim_many(self, size: int) -> None:
        """Read and delete *size* messages."""
        messages = self._queue.read_batch("work", vt=300, batch_size=size)
        done = self._queue.delete_batch("work", [message.msg_id for message in messages])
        if len(done) != size:
            raise AssertionError(f"{len(done)} of {size} messages were there")


PEERS: dict[str, type[Contestant]] = {
    "pgqueuer": PgQueuer,
    "pgqueuer (asyncpg)": PgQueuerAsyncpg,
    "procrastinate": Procrastinate,
    "pgmq": Pgmq,
}
