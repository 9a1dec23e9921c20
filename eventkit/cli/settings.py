"""Settings of commands: options, environment and files, and the parsing of values."""

import re
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from .console import Refused

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")


def duration(text: str | float) -> float:
    """Parse seconds, such as ``90``, ``1.5``, ``500ms``, ``1h30m``, ``7d``; Typer also passes defaults, in seconds."""
    if not isinstance(text, str):
        return text
    if re.fullmatch(r"-?\d+(\.\d+)?", text):
        return float(text)
    if not re.fullmatch(rf"(?:{_PARTS.pattern})+", text):
        raise typer.BadParameter(f"{text!r} is not a duration: pass seconds, or for example 500ms, 30s, 1h30m, 7d")
    return sum(float(number) * _UNITS[unit] for number, unit in _PARTS.findall(text))


def moment(text: str) -> datetime:
    """Parse a time in ISO 8601, by default in the local time zone."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time: pass, as in 2026-01-31T08:00 or …T08:00+01:00") from None


def json_value(text: str, what: str = "payload") -> Any:
    """Parse JSON."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        hint = "" if re.search(r"[{\[\"]", text) else f"; a string needs quotes: '\"{text}\"'"
        raise Refused(f"the {what} is not JSON ({error}){hint}") from None


def headers(given: list[str] | None) -> dict[str, str] | None:
    """Parse several ``name=value``."""
    found = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Refused(f"{text!r} is not a header: pass --header name=value")
        found[name] = value
    return found or None


_KNOWN = {"url": str, "worker": dict, "server": dict}
"""The settings of the file and their types."""

_TYPE_NAMES = {str: "text", dict: "table"}


def url(given: str | None) -> str:
    """Return the URL of the database; *given* is that of the option or the environment."""
    found = given or from_file().get("url")
    if not found:
        raise Refused(
            "no database: pass --url sqlite:///shop.db, set EVENTKIT_URL, "
            'or put url = "sqlite:///shop.db" under [tool.eventkit] in pyproject.toml'
        )
    return str(found)


def from_file() -> dict[str, Any]:
    """Return the settings of the file, empty if there is none."""
    own, shared = Path("eventkit.toml"), Path("pyproject.toml")
    if own.is_file():
        return _checked(own, _read(own))
    if shared.is_file():
        return _checked(shared, _read(shared).get("tool", {}).get("eventkit", {}))
    return {}


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise Refused(f"cannot read {file}: {error}") from error


def _checked(file: Path, found: dict[str, Any]) -> dict[str, Any]:
    for name, value in found.items():
        if name not in _KNOWN:
            raise Refused(f"unknown setting {name!r} in {file}: use {', '.join(_KNOWN)}")
        if not isinstance(value, _KNOWN[name]):
            raise Refused(f"invalid {name} = {value!r} in {file}: use a {_TYPE_NAMES[_KNOWN[name]]}")
    return found


Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", envvar="EVENTKIT_URL", help="The database, for example sqlite:///shop.db."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number of rows.")]
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The name of the queue.", show_default=False)]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of the stream.", show_default=False)]
Id = Annotated[int, typer.Argument(metavar="ID", help="The id of the task.", show_default=False)]
Token = Annotated[
    int, typer.Argument(metavar="TOKEN", help="The token that poll printed with the task.", show_default=False)
]
Payload = Annotated[
    str | None, typer.Argument(metavar="PAYLOAD", help="JSON, for example '{\"id\": 42}'.", show_default=False)
]
File = Annotated[
    str | None,
    typer.Option("--file", "-f", metavar="FILE", help="A file with one JSON payload per line; - for stdin."),
]
Headers = Annotated[list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="A header; repeatable.")]
Duration = Annotated[float, typer.Option(parser=duration, metavar="TIME")]
OlderThan = Annotated[
    float | None,
    typer.Option("--older-than", parser=duration, metavar="TIME", help="Only what is older, for example 12h or 7d."),
]
MaxKeep = Annotated[int | None, typer.Option("--max-keep", metavar="N", min=0, help="Keep only the newest N.")]
Since = Annotated[
    datetime | None,
    typer.Option("--since", parser=moment, metavar="MOMENT", help="Only events since 2026-01-31T08:00."),
]
