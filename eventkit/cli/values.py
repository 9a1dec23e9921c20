"""What is typed, as values: durations, moments, JSON, headers."""

import re
from datetime import datetime
from typing import Any

import typer

from .refusals import Refused

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")


def duration(text: str | float) -> float:
    """Seconds: ``90``, ``1.5``, ``500ms``, ``1h30m``, ``7d``; a default, which is asked about as well, is seconds."""
    if not isinstance(text, str):
        return text
    if re.fullmatch(r"-?\d+(\.\d+)?", text):
        return float(text)
    if not re.fullmatch(rf"(?:{_PARTS.pattern})+", text):
        raise typer.BadParameter(f"{text!r} is no duration: write seconds, or as in 500ms, 30s, 1h30m, 7d")
    return sum(float(number) * _UNITS[unit] for number, unit in _PARTS.findall(text))


def moment(text: str) -> datetime:
    """A moment in ISO 8601; in the zone of this computer if it names none."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no moment: write it as in 2026-01-31T08:00 or …T08:00+01:00") from None


def json_value(text: str, what: str = "payload") -> Any:
    """The value that *text* stands for."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        hint = "" if re.search(r"[{\[\"]", text) else f"; a text needs quotes of its own: '\"{text}\"'"
        raise Refused(f"the {what} is not JSON ({error}){hint}") from None


def headers(given: list[str] | None) -> dict[str, str] | None:
    """``name=value``, several times, as a mapping."""
    found = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Refused(f"{text!r} is no header: write --header name=value")
        found[name] = value
    return found or None
