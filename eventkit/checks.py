"""The checks that every public call makes on its arguments before anything is written."""

import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

Duration = float | timedelta
"""Seconds, as a number or a timedelta."""

Headers = Mapping[str, str] | None
"""The headers of an event, a task or a notification."""

KEEP: Any = object()
"""The default of a setting that is to stay as it is."""

NO_RESULT: Any = object()
"""The default of a result that is not to be saved; None would be saved."""

MOST = 2**63 - 1
"""The largest integer of a database."""

TaskState = Literal["scheduled", "ready", "running", "dead", "done"]
STATES: dict[str, str] = {state: state for state in get_args(TaskState)} | {"running": "leased"}
"""The states of a task, each with its stored name."""
SHOWN_STATES = {stored: shown for shown, stored in STATES.items()}

PRINTABLE = r"^[^\u0000-\u001f\u007f-\u009f]*$"
"""The pattern of a name or key in JSON Schema, which has no lone surrogates."""

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_999
"""The times that databases store: those of a datetime in UTC."""
FOREVER = 100 * 366 * 86_400_000
"""A hundred years in milliseconds: the maximum duration."""


def name(kind: str, value: Any, limit: int = 255) -> str:
    """Return *value*, the name of a *kind* of thing: 1 to *limit* characters, none of them control characters."""
    if not isinstance(value, str):
        raise TypeError(f"the name of a {kind} is a str, not {type(value).__name__}")
    if not 0 < len(value) <= limit:
        raise ValueError(f"the name of a {kind} has 1 to {limit} characters, not {len(value)}")
    if _UNPRINTABLE.search(value):
        raise ValueError(f"the name of a {kind} holds no control characters: {value!r}")
    return value


def key(value: Any) -> str:
    """Return a key for ordering, uniqueness or deduplication: like a name, but up to 1,000 characters."""
    return name("key", value, 1000)


def code(value: Any) -> str | None:
    """Return the code of a failure, like a name of up to 100 characters; None if there is none."""
    return None if value is None else name("code", value, 100)


def milliseconds(what: str, value: Any, *, least: int = 0) -> int:
    """Return the duration *value*, in seconds or as a timedelta, in milliseconds; at least *least*."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} is a number of seconds or a timedelta, not {type(value).__name__}")
    if not -FOREVER <= value * 1000 <= FOREVER:
        raise ValueError(f"{what} is a finite number of seconds, up to a hundred years, not {value!r}")
    result = round(value * 1000)
    if result < least:
        raise ValueError(f"{what} is at least {least / 1000:g} seconds, not {value!r}")
    return result


def moment(what: str, value: Any) -> int:
    """Return the timezone-aware datetime *value* in milliseconds since 1970."""
    if not isinstance(value, datetime):
        raise TypeError(f"{what} is a datetime, not {type(value).__name__}")
    if value.tzinfo is None:
        raise ValueError(f"{what} needs a time zone: use datetime.now(UTC), or value.astimezone()")
    result = (value - _EPOCH) // _MILLISECOND
    if not _FIRST <= result <= _LAST:
        raise ValueError(f"{what} is in the years 1 to 9999 of UTC, not {value}")
    return result


def as_datetime(milliseconds: int) -> datetime:
    """Return the time *milliseconds* after 1970, in UTC."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def count(what: str, value: Any, *, least: int = 0, most: int = MOST) -> int:
    """Return a whole number from *least* to *most*."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} is a whole number, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{what} is a whole number from {least} to {most}, not {value}")
    return value


def positive(what: str, value: Any) -> float:
    """Return a number above zero that databases can calculate with: from 1e-9 to 1e12."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} is a number, not {type(value).__name__}")
    if not 1e-9 <= value <= 1e12:
        raise ValueError(f"{what} is a number above zero, from 1e-9 to 1e12, not {value!r}")
    return float(value)


def burst(value: Any, what: str = "burst") -> float:
    """Return the depth of a token bucket, which holds at least one token."""
    if positive(what, value) < 1:
        raise ValueError(f"{what} is at least 1, because a call takes one token, not {value!r}")
    return float(value)


def choice(what: str, value: Any, choices: Any) -> Any:
    """Return one of *choices*: the values of a `Literal` type, or those of a tuple."""
    if value not in (choices := get_args(choices) or choices):
        raise ValueError(f"{what} is one of {', '.join(choices)}, not {value!r}")
    return value


def state(value: Any) -> str:
    """Return the stored name of a task's state."""
    return STATES[choice("state", value, TaskState)]


def flag(what: str, value: Any) -> bool:
    """Return True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{what} is True or False, not {value!r}")
    return value


def weights(queues: str | Iterable[str | tuple[str, float]]) -> dict[str, float]:
    """Return the queues, which are given by name or with a weight, each with its weight."""
    found: dict[str, float] = {}
    for entry in [queues] if isinstance(queues, str) else queues:
        queue, weight = (entry, 1.0) if isinstance(entry, str) else entry
        if queue in found:
            raise ValueError(f"queue {queue!r} is named twice: name it once, with the sum of the weights")
        found[name("queue", queue)] = positive("the weight of a queue", weight)
    return found


def group_weights(value: Any) -> dict[str, float]:
    """Return the weights of groups by their keys: numbers from 0.001 to 1,000."""
    if not isinstance(value, Mapping):
        raise TypeError(f"weights is a mapping of groups to numbers, such as {{'tenant-7': 3}}, not {value!r}")
    found = {key(group): positive("the weight of a group", weight) for group, weight in value.items()}
    if strange := [group for group, weight in found.items() if not 0.001 <= weight <= 1000]:
        raise ValueError(f"the weight of a group is a number from 0.001 to 1,000, not that of {strange[0]!r}")
    return found


def number(what: str, text: str) -> float:
    """Return the number, at least 0, of *text*, an option of a URL."""
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < 1e9:
        raise ValueError(f"{what} is a number from 0 up, not {text!r}")
    return value


def retention(older_than: Any, keep_count: Any) -> tuple[int | None, int | None]:
    """Return the limits of `prune`: an age in milliseconds, a number to keep, or both."""
    if older_than is None and keep_count is None:
        raise ValueError("pass what to prune: older_than=seconds, keep_count=number, or both")
    return (
        None if older_than is None else milliseconds("older_than", older_than),
        None if keep_count is None else count("keep_count", keep_count),
    )


def settings(**given: tuple[Any, Callable[[str, Any], Any]]) -> dict[str, Any]:
    """Return the settings passed to `configure`: the validated values that are not `KEEP`; None is always valid."""
    return {
        name: None if value is None else check(name, value)
        for name, (value, check) in given.items()
        if value is not KEEP
    }


def default_worker() -> str:
    """Return the default name of a worker: where it runs."""
    return f"{socket.gethostname()}:{os.getpid()}"


def text(value: Any) -> str:
    """Return the text of an error, as any database can store it: without NULs and lone surrogates."""
    if not isinstance(value, str):
        raise TypeError(f"error is a str, not {type(value).__name__}")
    return value.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
