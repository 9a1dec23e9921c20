"""The functions that SQL calls, on backends that can add functions to a connection: the calls of the handles.

Arguments are SQL values, and JSON text for payloads, headers and tasks; NULL stands for an omitted argument.  An answer
that is a record is JSON text.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from . import checks, locks
from .channel import Channel
from .codec import Codec, encode_json
from .operations import Operation
from .operations.claim import fresh_token
from .operations.coordination import AcquireLock, ReleaseLock
from .operations.finish import Held
from .queue import Queue
from .results import Results
from .stream import Stream

PREFIX = "eventkit_"
"""The prefix of the functions' names."""

_plain = Codec()
_stored = Codec(msgspec.Raw)
"""Stored payloads are returned as their text, unchanged."""

_MISSING = object()


class _Handle(msgspec.Struct):
    """The members of a claimed task's JSON that identify the task and its claim."""

    id: int
    queue: str
    token: int


class Functions:
    """The functions, given a way to execute operations: every public method but `execute` is one."""

    def __init__(self, execute: Callable[[Operation[Any]], Any]) -> None:
        self._run = execute

    def execute(self, operation: Operation[Any], tx: None = None) -> Any:
        """Execute an operation for a handle."""
        return self._run(operation)

    def publish(self, stream: Any, payload: Any, key: Any = None, headers: Any = None, dedup: Any = None) -> Any:
        """Append an event; return its offset."""
        return self._stream(stream).publish(_payload(payload), key=key, headers=_headers(headers), dedup=dedup)

    def read(self, stream: Any, after: Any = None, limit: Any = None) -> Any:
        """Return the events after an offset, in order."""
        return encode_json(self._stream(stream, _stored).read(**_given(after=after, limit=limit)))

    def save_offset(self, stream: Any, consumer: Any, offset: Any) -> Any:
        """Move the consumer forward; return false if it is already at or beyond the offset."""
        return self._stream(stream).save_offset(consumer, offset)

    def enqueue(
        self,
        queue: Any,
        payload: Any,
        priority: Any = None,
        delay: Any = None,
        run_at: Any = None,
        max_attempts: Any = None,
        expires: Any = None,
        expires_at: Any = None,
        key: Any = None,
        headers: Any = None,
        group_key: Any = None,
    ) -> Any:
        """Add a task; return its id, or that of the task that has the key."""
        ends = _moment("expires_at", expires_at) if expires is None else expires
        given = _given(
            delay=delay,
            run_at=_moment("run_at", run_at),
            priority=priority,
            max_attempts=max_attempts,
            expires=ends,
            group=group_key,
        )
        return self._queue(queue).enqueue(_payload(payload), key=key, headers=_headers(headers), **given).id

    def claim(self, queue: Any, worker: Any, limit: Any = None, lease: Any = None) -> Any:
        """Lease the first ready tasks; return them in order."""
        tasks = self._queue(queue, _stored).claim(worker, **_given(limit=limit, lease=lease))
        # Some languages have no integers as large as tokens.
        return encode_json([msgspec.structs.asdict(task) | {"token": str(task.token)} for task in tasks])

    def ack(self, task: Any, result: Any = None) -> Any:
        """Finish a task, and save its result."""
        queue, held = self._claimed(task)
        return queue.ack(held, **({} if result is None else {"result": _payload(result)}))

    def retry(self, task: Any, delay: Any = None, error: Any = None, code: Any = None) -> Any:
        """Put a task back for another attempt."""
        queue, held = self._claimed(task)
        return queue.retry(held, delay=delay, error=error, code=code)

    def fail(self, task: Any, error: Any, code: Any = None) -> Any:
        """Mark a task dead."""
        queue, held = self._claimed(task)
        return queue.fail(held, error, code=code)

    def extend(self, task: Any, seconds: Any) -> Any:
        """Set the lease to end so many seconds from now."""
        queue, held = self._claimed(task)
        return queue.extend(held, seconds)

    def cancel(self, queue: Any, id: Any, running: Any = None) -> Any:
        """Delete a waiting task, or with *running* a running one."""
        return self._queue(queue).cancel(id, bool(running))

    def stats(self, queue: Any) -> Any:
        """Return the queue's numbers."""
        return encode_json(self._queue(queue).stats())

    def notify(self, channel: Any, payload: Any, headers: Any = None) -> Any:
        """Send a notification to all listeners; return its id."""
        handle: Any = Channel(self.execute, None, channel, _plain)
        return handle.notify(_payload(payload), headers=_headers(headers))

    def lock_acquire(self, name: Any, ttl: Any = None) -> Any:
        """Acquire the lock, if it is free; return its token and its fence."""
        length = checks.milliseconds("ttl", 60 if ttl is None else ttl, least=1)
        operation = AcquireLock(checks.name("lock", name), fresh_token(), checks.default_worker(), length)
        fence = self._run(operation)
        return None if fence is None else encode_json({"name": name, "token": str(operation.token), "fence": fence})

    def lock_release(self, name: Any, token: Any) -> Any:
        """Release the lock."""
        return self._run(ReleaseLock(checks.name("lock", name), int(token)))

    def rate_limit(self, name: Any, count: Any, per: Any) -> Any:
        """Count a call in the current window; return whether there was room."""
        return self._run(locks.window(name, count, per))

    def result_save(self, id: Any, value: Any, ttl: Any = None) -> Any:
        """Save a value under the number of a task, or a name."""
        Results(self, None, _plain).save(id, _payload(value), **_given(ttl=ttl))
        return True

    def result_get(self, id: Any) -> Any:
        """Return the value; NULL if there is none."""
        value = Results(self, None, _plain).get(id, _MISSING)
        return None if value is _MISSING else encode_json(value)

    def _stream(self, stream: Any, codec: Codec = _plain) -> Any:
        return Stream(self.execute, None, stream, codec)

    def _queue(self, name: Any, codec: Codec = _plain) -> Any:
        return Queue(self.execute, None, name, codec)

    def _claimed(self, text: Any) -> tuple[Any, Held]:
        """Return the queue of a task, and its id and token."""
        try:
            task = msgspec.json.decode(text, type=_Handle, strict=False)
        except (msgspec.DecodeError, TypeError) as error:
            raise ValueError(
                f"a task is an object with id, queue and token, as the claim returned it: {error}"
            ) from None
        return self._queue(task.queue), (task.id, task.token)


def _given(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _payload(text: Any) -> Any:
    if text is None:
        raise ValueError("the payload is JSON, not NULL: pass 'null' for a null")
    try:
        return _plain.decode(text)
    except (msgspec.DecodeError, TypeError, RecursionError) as error:
        raise ValueError(f"the payload is not JSON text: {error}") from None


def _headers(text: Any) -> Any:
    try:
        return None if text is None else msgspec.json.decode(text, type=dict[str, str] | None)
    except (msgspec.DecodeError, TypeError) as error:
        raise ValueError(f"headers are an object of strings: {error}") from None


def _moment(what: str, text: Any) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{what} is a time such as 2030-01-31 12:00:00+00: {error}") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


FUNCTIONS = tuple(name for name in vars(Functions) if not name.startswith("_") and name != "execute")
"""The names of the functions, without the prefix."""
