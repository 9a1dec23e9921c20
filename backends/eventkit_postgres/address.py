"""Postgres URLs.

::

    postgresql://user@host:5432/shop      the database, as libpq reads it
    postgres://…  postgresql+psycopg://…  the same

    ?schema=eventkit                      the schema of eventkit's tables; one for each tenant
    ?durability=full|normal|off           how durable a commit is when a call returns (full)
    ?busy_timeout=5                       seconds to wait for a lock, or for a connection of the pool
    ?answer_timeout=30                    seconds beyond that to wait for an answer before the connection is dropped
    ?min_size=1&max_size=10               connections in the pool
    ?pooler=session|transaction           transaction: a pooler such as PgBouncer is in that mode (session)
    ?listen_url=postgresql://…            the server itself, to listen on behind such a pooler
    ?fallback_poll=5                      seconds between two polls without a notification
    ?max_payload=524288                   bytes of JSON text

Every other parameter is libpq's: ``sslmode``, ``sslrootcert``, ``application_name``, …  A standby is refused
regardless of ``target_session_attrs``: only the primary has the locks of the publishers.
"""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from eventkit.checks import choice, number

_SYNCHRONOUS = {"full": "on", "normal": "local", "off": "off"}


class Address(msgspec.Struct, frozen=True):
    """A schema of a database, how to connect to it, and the options of the URL."""

    url: str
    conninfo: str
    listen_conninfo: str
    schema: str = "eventkit"
    synchronous: str = "on"
    busy_timeout: float = 5.0
    answer_timeout: float = 30.0
    min_size: int = 1
    max_size: int = 10
    pooled: bool = False
    fallback_poll: float = 5.0
    max_payload: int = 524_288

    @property
    def settings(self) -> dict[str, str]:
        """The settings of eventkit's sessions, which override the defaults of the server and the role."""
        return {
            "synchronous_commit": self.synchronous,
            "lock_timeout": f"{max(1, round(self.busy_timeout * 1000))}ms",
            "default_transaction_isolation": "read committed",
            "array_nulls": "on",
            # A cached plan may date from when a table was empty.  Every statement has an index, so none may scan a full
            # table.
            "enable_seqscan": "off",
            "enable_bitmapscan": "off",
            "jit": "off",
        }


def _schema(option: str, name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", name):
        raise ValueError(f"the name of a schema must have 1 to 63 letters, digits and underscores, not {name!r}")
    return name


def _whole(option: str, text: str) -> int:
    return int(number(option, text))


_OPTIONS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "schema": ("schema", _schema),
    "durability": ("synchronous", lambda option, text: _SYNCHRONOUS[choice(option, text, tuple(_SYNCHRONOUS))]),
    "busy_timeout": ("busy_timeout", number),
    "answer_timeout": ("answer_timeout", number),
    "min_size": ("min_size", _whole),
    "max_size": ("max_size", _whole),
    "pooler": ("pooled", lambda option, text: choice(option, text, ("session", "transaction")) == "transaction"),
    "listen_url": ("listen_conninfo", lambda option, text: _split(text)[0]),
    "fallback_poll": ("fallback_poll", number),
    "max_payload": ("max_payload", _whole),
}
"""The field of each option, and how its text is read."""


def parse(url: str) -> Address:
    """Return the address in *url*.  Raise ``ValueError`` if it is invalid."""
    conninfo, given = _split(url)
    options = {_OPTIONS[name][0]: _OPTIONS[name][1](name, text) for name, text in given.items()}
    address = Address(url, conninfo, **{"listen_conninfo": conninfo, **options})
    if not address.min_size <= address.max_size or address.max_size < 1:
        raise ValueError(f"max_size must be at least 1 and at least min_size, not {address.max_size}")
    return address


def shown(url: str) -> str:
    """Return *url* without its password, for messages."""
    # The password may not be percent-encoded, so it extends to the last @.
    return re.sub(r"(?<=://)([^:@/]*):.*@", r"\1:***@", re.sub(r"(password|listen_url)=[^&]*", r"\1=***", url))


# An index and a trigger are created in the schema of their table, and their names then take no schema.
_OURS = re.compile(r"(?<![\w.\"])(?<!(?<!DROP )INDEX )(?<!TRIGGER )(?<!TRIGGER IF EXISTS )eventkit_(?=\w)")


def qualified(sql: str, schema: str) -> str:
    """Return *sql* with the schema before each of eventkit's names."""
    return _OURS.sub(f'"{schema}".eventkit_', sql)


def _split(url: str) -> tuple[str, dict[str, str]]:
    """Return the connection string for libpq, and eventkit's own options."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    ours = {name: given.pop(name) for name in _OPTIONS if name in given}
    if given.get("target_session_attrs") != "read-write":  # That refuses a standby, too.
        given["target_session_attrs"] = "primary"
    query = urlencode(given, quote_via=quote)
    conninfo = f"postgresql://{parts.netloc}{parts.path}?{query}"
    if mistake := _mistake(parts.netloc, conninfo):
        raise ValueError(
            f"{shown(url)!r} is not a Postgres URL: {mistake}. "
            f"Write it as in postgresql://user@host:5432/database; options beyond libpq's are {', '.join(_OPTIONS)}"
        )
    return conninfo, ours


def _mistake(netloc: str, conninfo: str) -> str | None:
    """Return the error in the URL, or None.  libpq would quote the password, so the URL is parsed again without it."""
    try:
        conninfo_to_dict(conninfo)
    except ProgrammingError:
        pass
    else:
        return "the password is not percent-encoded" if netloc.count("@") > 1 else None
    try:
        conninfo_to_dict(shown(conninfo))
    except ProgrammingError as error:
        return str(error).strip()
    return "the password is not percent-encoded"
