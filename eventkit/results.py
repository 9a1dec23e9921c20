"""`Results`: what tasks, or anything else with a name, came to, for whoever asks or waits."""

from typing import Any

from . import arguments
from .arguments import Duration
from .children import closed
from .codec import Codec, encode_json
from .errors import TaskFailed, TimedOut
from .operations.maintenance import DropResults
from .operations.result import AwaitResult, GetResult, ResultAhead, SaveResult


class _Handle:
    """What results of both flavours have in common: all but the waiting."""

    def __init__(self, connection: Any, loops: Any, codec: Codec) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._loops = loops
        self._codec = codec

    def save(self, id: int | str, value: Any, ttl: Duration = 3600, tx: Any = None) -> Any:
        """Save a value for some time, in place of an earlier one."""
        lasts = arguments.milliseconds("ttl", ttl, least=1)
        return self._execute(SaveResult(key_of(id), self._codec.encode(value), lasts), tx)

    def get(self, id: int | str, default: Any = None) -> Any:
        """The value, or *default* where there is none."""
        return self._execute(GetResult(key_of(id), default))

    def sweep(self) -> Any:
        """Delete what has expired; how many results."""
        return self._execute(DropResults(limit=arguments.MOST))

    def _attempt(self, id: int | str, timeout: Duration) -> Any:
        """What the id has come to, once it has come to something."""
        key, task = key_of(id), None if isinstance(id, str) else id
        seconds = arguments.milliseconds("timeout", timeout) / 1000
        return self._loops.attempt(AwaitResult(key, task), ResultAhead(key, task), seconds)

    def _value(self, id: int | str, outcome: tuple[Any] | TaskFailed | None) -> Any:
        """The value of a result; or what there is instead, raised."""
        if isinstance(outcome, TaskFailed):
            raise outcome
        if outcome is None and self._connection.closing:
            raise closed()
        if outcome is None:
            raise TimedOut(f"{id!r} has no result yet: wait longer, or see whether anybody works on it")
        return outcome[0]


class Results(_Handle):
    """Behaves as `eventkit.protocols.Results` says."""

    def wait(self, id: int | str, timeout: Duration) -> Any:
        """The value, as soon as there is one."""
        return self._value(id, self._attempt(id, timeout))


class AsyncResults(_Handle):
    """Behaves as `eventkit.protocols.AsyncResults` says."""

    async def wait(self, id: int | str, timeout: Duration) -> Any:
        """The value, as soon as there is one."""
        return self._value(id, await self._attempt(id, timeout))


def key_of(id: Any) -> str:
    """The id as the database has it: a number is not the same as its digits."""
    return encode_json(arguments.name("result", id) if isinstance(id, str) else arguments.count("id", id))
