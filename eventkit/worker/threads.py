"""Threads for functions that block."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any

Done = Callable[[Any, BaseException | None], None]


class Threads:
    """Runs calls in threads, and says in the event loop how they ended.

    There are as many threads as calls ran at once so far.  They keep nobody from ending: a call that hangs cannot be
    stopped, and must not hold up the process when the worker has given it up.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Done] | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0

    def run(self, call: Callable[[], Any], done: Done) -> None:
        """Run *call*, then ``done(result, error)`` in the event loop."""
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            threading.Thread(target=self._work, name=f"eventkit-task-{self._threads}", daemon=True).start()
        self._calls.put((call, done))

    async def call(self, call: Callable[[], Any]) -> Any:
        """What *call* returns, run in a thread."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            elif isinstance(error, StopIteration):  # A future takes no such thing.
                future.set_exception(RuntimeError(f"the function raised {error!r}"))
            else:
                future.set_exception(error)

        self.run(call, done)
        return await future

    def close(self) -> None:
        """Let the threads end that have nothing to do."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            call, done = item
            result: Any = None
            failure: BaseException | None = None
            try:
                result = call()
            except BaseException as error:
                failure = error
            try:
                self._loop.call_soon_threadsafe(self._end, done, result, failure)
            except RuntimeError:
                return  # The loop was closed: nobody is left to tell.
            del item, call, done, result, failure

    def _end(self, done: Done, result: Any, error: BaseException | None) -> None:
        self._busy -= 1
        done(result, error)
