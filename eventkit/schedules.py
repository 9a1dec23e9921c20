"""`Schedules`: tasks at certain times."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from . import checks, protocols
from .checks import KEEP
from .codec import Codec, encode_headers
from .cron import next_after, parse
from .operations import schedule as operations
from .values import FIRE, SCHEDULE, CatchUp

_DEFAULTS = {"tz": "UTC", "priority": 0, "expires": None, "max_attempts": None, "catch_up": "all", "headers": None}
"""The settings of a new schedule that may be left out."""


@protocols.documented(protocols.Schedules)
class Schedules:
    """The implementation of `protocols.Schedules` and `AsyncSchedules`."""

    def __init__(self, execute: Callable[..., Any], loops: Any, codec: Codec) -> None:
        self._execute = execute
        self._loops = loops
        self._codec = codec

    def add(
        self,
        name: str,
        when: str,
        queue: str,
        payload: Any = None,
        *,
        paused: bool = False,
        tx: Any = None,
        **given: Any,
    ) -> Any:
        checks.name("schedule", name)
        settings = self._checked(when=when, queue=queue, payload=payload, **{**_DEFAULTS, **given})
        return self._execute(
            operations.AddSchedule(name, operations.Settings(**settings), checks.flag("paused", paused)), tx
        )

    def remove(self, name: str, *, tx: Any = None) -> Any:
        return self._execute(operations.RemoveSchedule(checks.name("schedule", name)), tx)

    def pause(self, name: str, *, tx: Any = None) -> Any:
        return self._execute(operations.ChangeSchedule(checks.name("schedule", name), {}, True), tx)

    def resume(self, name: str, *, tx: Any = None) -> Any:
        return self._execute(operations.ChangeSchedule(checks.name("schedule", name), {}, False), tx)

    def update(self, name: str, *, paused: bool = KEEP, tx: Any = None, **given: Any) -> Any:
        checks.name("schedule", name)
        stops = None if paused is KEEP else checks.flag("paused", paused)
        return self._execute(operations.ChangeSchedule(name, self._checked(**given), stops), tx)

    def get(self, name: str) -> Any:
        return self._execute(operations.GetSchedule(checks.name("schedule", name), self._codec))

    def soonest(self) -> Any:
        return self._execute(operations.ReadSoonest())

    def upcoming(self, name: str, count: int = 10) -> Any:
        checks.count("count", count, least=1)
        return self._execute(operations.ReadUpcoming(checks.name("schedule", name), count, self._codec))

    def tick(self, now: datetime | None = None, *, tx: Any = None) -> Any:
        moment = None if now is None else checks.moment("now", now)
        if tx is not None:
            return self._execute(operations.TickWhole(moment), tx)
        return self._loops.run(operations.tick(moment))

    def next_after(self, when: str, moment: datetime, tz: str = "UTC") -> datetime:
        return next_after(when, moment, tz)

    def list(self) -> Any:
        return self._execute(operations.ListSchedules(self._codec))

    def _checked(self, **given: Any) -> dict[str, Any]:
        """Return the given settings, validated, for the database."""
        parsers: dict[str, Callable[[Any], Any]] = {
            "when": _when,
            "tz": _zone,
            "queue": lambda value: checks.name("queue", value),
            "payload": self._codec.encode,
            "priority": lambda value: checks.count("priority", value, least=-(2**31), most=2**31 - 1),
            "expires": lambda value: None if value is None else checks.milliseconds("expires", value),
            "max_attempts": lambda value: None if value is None else checks.count("max_attempts", value, least=1),
            "catch_up": lambda value: checks.choice("catch_up", value, CatchUp),
            "headers": _headers,
        }
        if unknown := given.keys() - parsers.keys():
            raise TypeError(f"a schedule has no setting {min(unknown)!r}: it has {', '.join(parsers)} and paused")
        return {name: parsers[name](value) for name, value in given.items() if value is not KEEP}


def _when(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"when is text, such as '*/5 * * * *' or '@every 30s', not {type(value).__name__}")
    parse(value)
    return value


def _zone(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"tz is the name of a time zone, such as 'Europe/Berlin', not {type(value).__name__}")
    parse("@daily", value)
    return value


def _headers(value: Any) -> str | None:
    for own in (SCHEDULE, FIRE):
        if value and own in value:
            raise ValueError(f"the header {own!r} is set by the schedule: leave it out")
    return encode_headers(value)
