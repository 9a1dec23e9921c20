"""Help for tests of applications that use eventkit.

The test moves the clock (`advance`), runs due work (`drain`), and asserts what is waiting.  None of it needs pytest;
``pytest_plugins = ["eventkit.testing.fixtures"]`` provides fixtures.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, overload

import msgspec

from ..app.task import then
from ..checks import FOREVER, Duration, milliseconds
from ..checks import count as whole_number
from ..operations.tables import Advance
from ..protocols import AsyncEventKit, EventKit
from ..values import Event, TaskInfo
from .drain import Ran, drain, drain_async

__all__ = ["Ran", "advance", "assert_enqueued", "assert_published", "drain", "drain_async"]

ANY: Any = object()
"""The payload that matches every payload."""

_MOST = 10_000
_WAITING = ("scheduled", "ready", "running")


@overload
def assert_enqueued(
    kit: EventKit, queue: Any, payload: Any = ..., *, count: int | None = None
) -> list[TaskInfo[Any]]: ...
@overload
def assert_enqueued(
    kit: AsyncEventKit, queue: Any, payload: Any = ..., *, count: int | None = None
) -> Awaitable[list[TaskInfo[Any]]]: ...
def assert_enqueued(kit: Any, queue: Any, payload: Any = ANY, *, count: int | None = None) -> Any:
    """Return the tasks that wait in *queue* and have *payload*; raise ``AssertionError`` if none, or not *count*, do.

    *queue* is a name, or a task function, in which case *payload* is its arguments.  An object matches if it has at
    least the items of *payload*.  Scheduled, ready and running tasks wait.
    """
    declaration = getattr(queue, "declaration", None)
    wanted = _plain(payload)
    if declaration is not None:
        queue = declaration.queue
        wanted = {"task": declaration.name} | ({} if payload is ANY else {"args": wanted})

    def check(tasks: list[TaskInfo[Any]]) -> list[TaskInfo[Any]]:
        waiting = {f"{task.id} ({task.state})": task for task in tasks if task.state in _WAITING}
        return _matching(f"tasks in queue {queue!r}", waiting, waiting.values(), wanted, count)

    return then(kit.queue(queue).tasks(limit=_MOST), check)


@overload
def assert_published(
    kit: EventKit, stream: str, payload: Any = ..., *, key: str | None = None, count: int | None = None
) -> list[Event[Any]]: ...
@overload
def assert_published(
    kit: AsyncEventKit, stream: str, payload: Any = ..., *, key: str | None = None, count: int | None = None
) -> Awaitable[list[Event[Any]]]: ...
def assert_published(
    kit: Any, stream: str, payload: Any = ANY, *, key: str | None = None, count: int | None = None
) -> Any:
    """Return the events of *stream* that have *payload*, and *key* if one is given; at least one, or *count*.

    An object matches if it has at least the items of *payload*.  ``AssertionError`` lists what was published instead.
    """

    def check(events: list[Event[Any]]) -> list[Event[Any]]:
        there = {f"{event.offset} (key {event.key!r})": event for event in events}
        of_key = [event for event in events if key is None or event.key == key]
        what = f"events of stream {stream!r}" + ("" if key is None else f" of key {key!r}")
        return _matching(what, there, of_key, _plain(payload), count)

    return then(kit.stream(stream).read(limit=_MOST, on_truncated="skip"), check)


def _matching(
    what: str, there: Mapping[str, Any], candidates: Iterable[Any], wanted: Any, count: int | None
) -> list[Any]:
    """Return the candidates that match; the error lists what is *there*, by name."""
    __tracebackhide__ = True
    found = [one for one in candidates if _has(one.payload, wanted)]
    if len(found) == whole_number("count", count) if count is not None else found:
        return found
    expected = "at least one" if count is None else count
    asked = "" if wanted is ANY else f" with {_json(wanted)}"
    listed = "".join(f"\n  {name}: {_json(one.payload)}" for name, one in [*there.items()][:20]) or "\n  nothing"
    more = f"\n  … and {len(there) - 20} more" if len(there) > 20 else ""
    raise AssertionError(f"expected {expected} of the {what}{asked}, and found {len(found)}; there is:{listed}{more}")


def _has(payload: Any, wanted: Any) -> bool:
    """Return whether *payload* is *wanted*, or an object with at least its items."""
    if wanted is ANY:
        return True
    if isinstance(payload, dict) and isinstance(wanted, dict):
        return all(key in payload and _has(payload[key], value) for key, value in wanted.items())
    return bool(payload == wanted)


def _plain(payload: Any) -> Any:
    return ANY if payload is ANY else msgspec.to_builtins(payload, str_keys=True)


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return repr(value)


def advance(kit: Any, seconds: Duration) -> Any:
    """Let *seconds* pass: move every time stored in the database back.  Awaited on an async kit.

    A negative number simulates rows written by a clock that was ahead.
    """
    execute: Callable[..., Any] = kit._connection.execute
    return execute(Advance(milliseconds("seconds", seconds, least=-FOREVER)))
