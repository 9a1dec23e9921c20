"""`Measured`: a connection that is timed, so that the service can say what the database took."""

from contextlib import AbstractAsyncContextManager
from time import perf_counter
from typing import Any, TypeVar

from ..operations import Operation, Probe
from ..protocols import AsyncConnection
from ..stopping import Stop
from .metrics import ServiceMetrics

T = TypeVar("T")


class Measured:
    """Behaves as *connection* does, and counts what it is asked in *metrics*."""

    def __init__(self, connection: AsyncConnection, metrics: ServiceMetrics) -> None:
        self._connection = connection
        self._seconds, self._waits = metrics.database, metrics.waits

    @property
    def max_payload(self) -> int:
        """The most bytes of JSON text that a payload may have."""
        return self._connection.max_payload

    @property
    def closing(self) -> bool:
        """Whether `end_sleep` was called."""
        return self._connection.closing

    async def execute(self, operation: Operation[T], tx: Any = None) -> T:
        """The answer to *operation*, timed."""
        began = perf_counter()
        try:
            return await self._connection.execute(operation, tx)
        finally:
            self._seconds.of(type(operation).__name__).observe(perf_counter() - began)

    async def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool:
        """Wait until *probe* is ready; what ended the wait is counted."""
        woken = await self._connection.sleep(probe, timeout, stop)
        self._waits.of("news" if woken else "closing" if self.closing else "time").value += 1
        return woken

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """What `AsyncEventKit.transaction` gives."""
        return self._connection.transaction()

    def rouse(self) -> None:
        """Let every `sleep` that is under way look at its probe again."""
        self._connection.rouse()

    def end_sleep(self) -> None:
        """Let every `sleep` return False, now and from now on."""
        self._connection.end_sleep()

    async def close(self) -> None:
        """Let go of the database."""
        await self._connection.close()
