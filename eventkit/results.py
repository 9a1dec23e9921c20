"""`Results`: the results of tasks, or other named values, to read or wait for."""

from typing import Any

from . import checks, protocols
from .checks import Duration
from .codec import Codec, encode_json
from .errors import TaskFailed, TimedOut
from .fork import closed
from .operations.coordination import AwaitResult, DropResults, GetResult, ResultAhead, SaveResult
from .plans import Plan, attempt


@protocols.documented(protocols.Results)
class Results:
    """The implementation of `protocols.Results` and `AsyncResults`."""

    def __init__(self, connection: Any, loops: Any, codec: Codec) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._loops = loops
        self._codec = codec

    def save(self, id: int | str, value: Any, ttl: Duration = 3600, *, tx: Any = None) -> Any:
        lasts = checks.milliseconds("ttl", ttl, least=1)
        return self._execute(SaveResult(key_of(id), self._codec.encode(value), lasts), tx)

    def get(self, id: int | str, default: Any = None) -> Any:
        return self._execute(GetResult(key_of(id), default))

    def sweep(self) -> Any:
        return self._execute(DropResults(limit=checks.MOST))

    def wait(self, id: int | str, timeout: Duration | None = None) -> Any:
        return self._loops.run(
            self._wait(id, None if timeout is None else checks.milliseconds("timeout", timeout) / 1000)
        )

    def _wait(self, id: int | str, seconds: float | None) -> Plan[Any]:
        key, task = key_of(id), None if isinstance(id, str) else id
        outcome = yield from attempt(AwaitResult(key, task), ResultAhead(key, task), seconds)
        if isinstance(outcome, TaskFailed):
            raise outcome
        if outcome is None and self._connection.closing:
            raise closed()
        if outcome is None:
            raise TimedOut(f"{id!r} has no result yet: wait longer, or check that a worker runs its task")
        return outcome[0]


def key_of(id: Any) -> str:
    """Return the id as stored in the database: a number differs from its digits."""
    return encode_json(checks.name("result", id) if isinstance(id, str) else checks.count("id", id))
