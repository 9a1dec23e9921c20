"""`Results`: the results of tasks, or other named values, to read or wait for."""

from typing import Any

from . import checks
from .checks import Duration
from .codec import Codec, encode_json
from .errors import TaskFailed, TimedOut
from .fork import closed
from .operations.coordination import AwaitResult, DropResults, GetResult, ResultAhead, SaveResult


class _Handle:
    """The common part of results of both flavours: everything but the waiting."""

    def __init__(self, connection: Any, loops: Any, codec: Codec) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._loops = loops
        self._codec = codec

    def save(self, id: int | str, value: Any, ttl: Duration = 3600, tx: Any = None) -> Any:
        """Save a value for *ttl* seconds, replacing an earlier one."""
        lasts = checks.milliseconds("ttl", ttl, least=1)
        return self._execute(SaveResult(key_of(id), self._codec.encode(value), lasts), tx)

    def get(self, id: int | str, default: Any = None) -> Any:
        """Return the value, or *default* if there is none."""
        return self._execute(GetResult(key_of(id), default))

    def sweep(self) -> Any:
        """Delete expired results; return their number."""
        return self._execute(DropResults(limit=checks.MOST))

    def _attempt(self, id: int | str, timeout: Duration) -> Any:
        """Wait for the outcome of the id."""
        key, task = key_of(id), None if isinstance(id, str) else id
        seconds = checks.milliseconds("timeout", timeout) / 1000
        return self._loops.attempt(AwaitResult(key, task), ResultAhead(key, task), seconds)

    def _value(self, id: int | str, outcome: tuple[Any] | TaskFailed | None) -> Any:
        """Return the value of a result; raise the failure, or `TimedOut` if there is none."""
        if isinstance(outcome, TaskFailed):
            raise outcome
        if outcome is None and self._connection.closing:
            raise closed()
        if outcome is None:
            raise TimedOut(f"{id!r} has no result yet: wait longer, or check that a worker runs its task")
        return outcome[0]


class Results(_Handle):
    """The implementation of `protocols.Results`."""

    def wait(self, id: int | str, timeout: Duration) -> Any:
        """Wait for the value and return it."""
        return self._value(id, self._attempt(id, timeout))


class AsyncResults(_Handle):
    """The implementation of `protocols.AsyncResults`."""

    async def wait(self, id: int | str, timeout: Duration) -> Any:
        """Wait for the value and return it."""
        return self._value(id, await self._attempt(id, timeout))


def key_of(id: Any) -> str:
    """Return the id as stored in the database: a number differs from its digits."""
    return encode_json(checks.name("result", id) if isinstance(id, str) else checks.count("id", id))
