"""SQLite URLs.

::

    sqlite:///relative.db                 the file, through apsw
    sqlite:////absolute/path.db
    sqlite+apsw:///shop.db                the same
    sqlite+pysqlite:///shop.db            the file, through the standard library's sqlite3

    ?durability=full|normal|off           how durable a commit is when a call returns (normal)
    ?busy_timeout=5                       seconds to wait for another writer
    ?watch=inotify|poll                   how commits of other processes are detected (inotify on Linux)
    ?fallback_poll=5                      seconds between two polls without a notification
    ?max_payload=524288                   bytes of JSON text
    ?mode=0600                            permissions of a new file, in octal, less the umask
"""

import os
import re
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

from eventkit.checks import choice, number

_SYNCHRONOUS = {"full": "FULL", "normal": "NORMAL", "off": "OFF"}


class Address(msgspec.Struct, frozen=True):
    """A database file, the library to open it with, and the options of the URL."""

    url: str
    path: str
    library: str
    synchronous: str = "NORMAL"
    busy_timeout: float = 5.0
    watch: str = "inotify" if sys.platform == "linux" else "poll"
    fallback_poll: float = 5.0
    max_payload: int = 524_288
    mode: int = 0o600


def _mode(option: str, text: str) -> int:
    if not re.fullmatch("0?[0-7]{3}", text) or int(text, 8) & 0o600 != 0o600:
        raise ValueError(f"mode must be an octal number that lets the owner read and write, such as 0660, not {text!r}")
    return int(text, 8)


_OPTIONS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "durability": ("synchronous", lambda option, text: _SYNCHRONOUS[choice(option, text, tuple(_SYNCHRONOUS))]),
    "busy_timeout": ("busy_timeout", number),
    "watch": ("watch", lambda option, text: choice(option, text, ("inotify", "poll"))),
    "fallback_poll": ("fallback_poll", number),
    "max_payload": ("max_payload", lambda option, text: int(number(option, text))),
    "mode": ("mode", _mode),
}
"""The field of each option, and how its text is read."""


def parse(url: str) -> Address:
    """Return the address in *url*.  Raise ``ValueError`` if it is invalid."""
    # Parsed as SQLAlchemy does, so that an engine with the same URL opens the same file: urlsplit() treats a #
    # in the name as a fragment, and drops tabs.
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    host, _, path = place.partition("/")
    if host:
        raise ValueError(
            f"{url!r} names a host: write sqlite:///relative.db with three slashes, sqlite:////absolute.db with four"
        )
    path = unquote(path)
    if not path or path.startswith(":memory:") or path.startswith("file:"):
        raise ValueError(
            f"{url!r} names no file; databases in memory are neither durable nor shared: "
            f"name a file, as in sqlite:///events.db"
        )
    library = "sqlite3" if scheme.lower() == "sqlite+pysqlite" else "apsw"
    given = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(given.keys() - set(_OPTIONS)):
        raise ValueError(f"{url!r} has the unknown option {unknown[0]!r}: the options are {', '.join(_OPTIONS)}")
    options = {_OPTIONS[name][0]: _OPTIONS[name][1](name, text) for name, text in given.items()}
    return Address(url, os.path.realpath(path), library, **options)
