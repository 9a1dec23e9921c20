"""Parsers for the values of options: each function takes the option's name and its text."""

import json
import re
from datetime import datetime
from difflib import get_close_matches

from .. import checks

DISORDER = 60_000
"""Milliseconds by which times may be ordered differently from offsets, with many concurrent publishers."""

Place = int | str
"""A bound of a range: ``earliest``, ``latest``, or the first offset inside the range, or the first after it."""


def text(name: str, value: str) -> str:
    """Return the text unchanged."""
    return value


def topics(name: str, value: str) -> tuple[str, ...]:
    """Return the names of topics, separated by commas except for the option ``topic``."""
    topics = [value] if name == "topic" else [one.strip() for one in value.split(",")]
    return tuple(dict.fromkeys(checks.name("topic", topic) for topic in topics))


def pattern(name: str, value: str) -> str:
    """Return a regular expression."""
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{name} must be a regular expression, not {value!r}: {error}") from None
    return value


def choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return one of *choices*."""
    if value.lower() not in choices:
        close = get_close_matches(value.lower(), choices, n=1)
        hint = f": did you mean {close[0]}?" if close else ""
        raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}{hint}")
    return value.lower()


def flag(name: str, value: str) -> bool:
    """Return a boolean."""
    return choice(name, value, ("true", "false")) == "true"


def count(name: str, value: str) -> int:
    """Return a whole number, from 1."""
    try:
        return checks.count(name, int(value), least=1)
    except ValueError:
        raise ValueError(f"{name} is a whole number from 1, not {value!r}") from None


def version(name: str, value: str) -> int:
    """Return a whole number, from 0."""
    try:
        return checks.count(name, int(value), least=0)
    except ValueError:
        raise ValueError(f"{name} is a whole number from 0, not {value!r}") from None


def duration(name: str, value: str) -> float:
    """Return seconds, from a number with a unit; a number without one is milliseconds."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?\s*", value)
    if match is None:
        raise ValueError(f"{name} is a duration such as 500ms, 30s, 15m or 1h, not {value!r}")
    return float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, None: 0.001}[match[2]]


def moment(name: str, value: str) -> int:
    """Return milliseconds since 1970, from a time with its zone, or from such a number."""
    if value.strip().isdecimal():
        return int(value)
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        raise ValueError(
            f"{name} must be a time such as 2026-01-31T12:00:00Z, or milliseconds since 1970, not {value!r}"
        ) from None
    if moment.tzinfo is None:
        raise ValueError(f"{name}={value} has no time zone: write {value}Z, or {value}+01:00")
    return checks.moment(name, moment)


def places(name: str, value: str) -> Place | dict[str, Place]:
    """Return a bound of a range: for all topics, or for each."""
    text = value.strip()
    if not text.startswith("{"):
        return _place(name, text)
    try:
        places = json.loads(text)
    except ValueError:
        raise ValueError(f'{name} is not JSON: write it as in {{"orders": 100, "payments": "earliest"}}') from None
    return {checks.name("topic", topic): _place(f"{name} of {topic}", str(place)) for topic, place in places.items()}


def _place(name: str, text: str) -> Place:
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if text.isdecimal():
        return int(text)
    raise ValueError(
        f'{name} is earliest, latest, an offset, or JSON as in {{"orders": 100, "payments": "earliest"}}, not {text!r}'
    )


def keys(name: str, value: str) -> tuple[str, ...]:
    """Return one key, or a list of them from JSON."""
    if not value.startswith("["):
        return (value,)
    try:
        keys = json.loads(value)
    except ValueError:
        keys = None
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        raise ValueError(f'{name} is one key, or several as JSON, as in ["42", "43"], not {value!r}')
    return tuple(keys)


def name(name: str, value: str) -> str:
    """Return a name that eventkit accepts."""
    return checks.name(name, value)
