"""The asyncio connection to a SQLite file: the writer and the reader each have a thread.

Tasks that write at the same time share a transaction, as threads do: calls that arrive during a commit form the next
transaction.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from math import inf
from typing import Any, TypeVar

from eventkit.fork import closed_or_forked, track
from eventkit.operations import Operation, Probe
from eventkit.plans import Stop, run_async

from .address import Address
from .connection import BaseConnection, read
from .file import File, acquire
from .library import Error, Worker, close_from_outside, connection_of, open_worker
from .transaction import execute_in_async, raise_if_busy
from .watcher import Waiter
from .writer import Job, Writer

T = TypeVar("T")


class AsyncConnection(BaseConnection):
    """A connection that executes operations; see `eventkit.protocols.AsyncConnection`."""

    def __init__(self, address: Address, file: File, writer: Worker, reader: Worker) -> None:
        super().__init__(address, file, connection_of(writer))
        self._loop = asyncio.get_running_loop()
        self._writing = writer
        self._reading = reader
        self._queue: list[Job] = []
        self._mutex = threading.Lock()
        self._writes: asyncio.Future[None] | None = None
        self._spares: list[tuple[Worker, Writer]] = []
        self._undoing: set[asyncio.Future[Any]] = set()
        self._sleepers: set[asyncio.Event] = set()
        self._untrack = track(self, address.path, partial(_release, file, writer, reader, self._spares))

    @classmethod
    async def open(cls, address: Address) -> "AsyncConnection":
        """Return a connection to the database at *address*."""
        file = acquire(address)
        try:
            writer = await open_worker(address, 0)
            reader = await open_worker(address, address.busy_timeout)
            await writer.async_run(file.opened, connection_of(writer))
            await reader.async_run(file.watcher.count_commits, connection_of(reader))
        except BaseException as error:
            file.release()
            if isinstance(error, Error):
                raise file.explain(error) from error
            raise
        return cls(address, file, writer, reader)

    def wal_size(self) -> int:
        """Return the size of the write-ahead log in bytes."""
        with suppress(OSError):
            return os.stat(self._address.path + "-wal").st_size
        return 0

    async def execute(self, operation: Operation[T], tx: Any = None) -> T:
        """Execute *operation* in *tx* if it is given, else in a transaction of its own, and return its result."""
        if self._closed:
            raise closed_or_forked(self._process)
        if tx is not None:
            try:
                return await execute_in_async(tx, operation, self._file)
            except Exception as error:
                raise_if_busy(error, self._file)
                raise
        if operation.writes:
            return await self._write(operation)
        return await self._read(operation)

    async def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool:
        """Wait until *probe* is ready.  Return False after *timeout* seconds or after `end_sleep`."""
        bell = asyncio.Event()

        def ring() -> None:
            with suppress(RuntimeError):  # The loop may be closed before the kit.
                self._loop.call_soon_threadsafe(bell.set)

        async def step(probe_or_pause: Any) -> Any:
            if probe_or_pause is probe:
                return await self._read(probe)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if probe_or_pause == inf else probe_or_pause):
                    await bell.wait()
            return None

        waiter = Waiter(probe, ring)
        self._sleepers.add(bell)
        try:
            return await run_async(self._looks(waiter, bell.clear, timeout, stop), step)
        finally:
            self._sleepers.discard(bell)
            self._file.watcher.remove(waiter)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """Provide a write transaction on a connection of its own: committed at the end, rolled back on an error."""
        if self._closed:
            raise closed_or_forked(self._process)
        worker, writer = self._spares.pop() if self._spares else await self._open_for_transaction()
        try:
            try:
                await worker.async_run(writer.begin, asyncio.current_task())
                yield worker
            except BaseException:
                # BEGIN continues in the worker's thread even if this task was cancelled; the end is queued behind it.
                writer.closing = True
                await worker.async_run(writer.end, False)
                raise
            await worker.async_run(writer.end, True)
        finally:
            if self._closed:
                await worker.aclose()
            else:
                self._spares.append((worker, writer))
        self._committed()

    def end_sleep(self) -> None:
        """Make every current and future `sleep` return False."""
        self.closing = True
        for bell in self._sleepers:
            bell.set()

    async def close(self) -> None:
        """End every sleep, finish running calls, and release the file."""
        if self._closed:
            return
        self._closed = True
        self.end_sleep()
        self._writer.closing = True
        while self._writes is not None:
            # Awaiting a future that is done does not run the loop, and so not the callback that clears it.
            await asyncio.wait({self._writes})
        await self._reading.aclose()
        for worker, writer in ((self._writing, self._writer), *self._spares):
            await worker.aclose()
            writer.lock.close()
        self._spares.clear()
        self._untrack()
        self._file.release()

    async def _read(self, operation: Operation[T]) -> T:
        try:
            answer: T = await self._reading.async_run(read, connection_of(self._reading), operation)
        except Error as error:
            raise self._file.explain(error) from error
        return answer

    async def _open_for_transaction(self) -> tuple[Worker, Writer]:
        try:
            worker = await open_worker(self._address, 0)
        except Error as error:
            raise self._file.explain(error) from error
        return worker, Writer(self._address, self._file, connection_of(worker))

    async def _write(self, operation: Operation[T]) -> T:
        answer: asyncio.Future[T] = self._loop.create_future()
        job = self._writer.job(operation, asyncio.current_task(), answer)
        with self._mutex:
            self._queue.append(job)
        if self._writes is None:
            self._start_work()
        try:
            return await answer
        except asyncio.CancelledError:
            # The result may have arrived in the same iteration of the loop, after the cancellation.
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                self._undo(job)
            raise

    def _start_work(self, _: object = None) -> None:
        """Run the calls in the queue, if there are any, in the writer's thread."""
        self._writes = None
        if self._queue:
            work: asyncio.Future[None] = asyncio.ensure_future(self._writing.async_run(self._work_off_queue))
            work.add_done_callback(self._start_work)
            self._writes = work

    def _work_off_queue(self) -> None:
        """Run arrived calls together in the writer's thread until none is left."""
        while True:
            with self._mutex:
                batch = [job for job in self._queue if not job.waiting.cancelled()]
                self._queue = []
            if not batch:
                return
            if len(batch) > 1:
                self._writer.together(batch)
            else:
                [job] = batch
                try:
                    job.finish(self._writer.alone(job.operation, job.caller))
                except Exception as error:
                    job.finish(error=error)
            self._loop.call_soon_threadsafe(self._deliver, [job for job in batch if job.done])
            self._committed()
            with self._mutex:
                self._queue[:0] = [job for job in batch if not job.done]

    def _deliver(self, done: list[Job]) -> None:
        for job in done:
            if job.waiting.cancelled():
                self._undo(job)
            elif job.error is not None:
                job.waiting.set_exception(job.error)
            else:
                job.waiting.set_result(job.answer)

    def _undo(self, job: Job) -> None:
        """Undo the effect of *job* for a caller that was cancelled."""
        undo = None if job.error else job.operation.undo(job.answer)
        if undo is not None and not self._closed:
            undoing = asyncio.ensure_future(self._write(undo))
            self._undoing.add(undoing)
            undoing.add_done_callback(self._undoing.discard)


def _release(file: File, writer: Worker, reader: Worker, spares: list[tuple[Worker, Writer]]) -> None:
    """Close the connections of a collected kit, and then release the file for other libraries."""
    try:
        for worker in (writer, reader, *(worker for worker, _ in spares)):
            close_from_outside(worker)
    finally:
        file.release()
