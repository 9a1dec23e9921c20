"""What commands go by where nothing else was said: the option, else the environment, else a file, else the default.

The file is ``eventkit.toml`` in the present folder, or else ``[tool.eventkit]`` in its ``pyproject.toml``.
"""

import tomllib
from pathlib import Path
from typing import Any

from .refusals import Refused

_KNOWN = {"url": str, "worker": dict, "server": dict}
"""What the file may say, and what that is."""

_SAID = {str: "text", dict: "table"}


def url(given: str | None) -> str:
    """The database that is meant; *given* is what the option or the environment says."""
    found = given or from_file().get("url")
    if not found:
        raise Refused(
            "no database is named: give --url sqlite:///shop.db, set EVENTKIT_URL, "
            'or write url = "sqlite:///shop.db" under [tool.eventkit] in pyproject.toml'
        )
    return str(found)


def from_file() -> dict[str, Any]:
    """What the file says; nothing where there is none."""
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
        raise Refused(f"{file} cannot be read: {error}") from error


def _checked(file: Path, found: dict[str, Any]) -> dict[str, Any]:
    for name, value in found.items():
        if name not in _KNOWN:
            raise Refused(f"{file} has the unknown setting {name!r}: there are {', '.join(_KNOWN)}")
        if not isinstance(value, _KNOWN[name]):
            raise Refused(f"{file} has {name} = {value!r}, which should be a {_SAID[_KNOWN[name]]}")
    return found
