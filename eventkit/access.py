"""API keys of the HTTP service and their scopes; each change of a key is recorded in the stream ``eventkit.audit``.

A scope, such as ``produce``, ``consume:queue`` or ``admin:stream:orders.*``, is a right, a kind and a pattern of names,
in which ``*`` matches any number of characters; a scope without kind or names covers all.  ``admin`` includes
``produce`` and ``consume``.  Requests that concern no single thing, such as creating or listing queues, need a scope
without kind and names.  Names that begin with ``eventkit``, such as ``eventkit.audit``, are reserved for the library
and need the plain scope ``admin``.

The database stores hashes of keys and of session ids; `eventkit.http.keys` checks them on each request.
"""

import hmac
import re
import secrets
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from . import checks
from .app.task import then
from .checks import Duration
from .codec import encode_json
from .operations.admin import AUDIT, AddApiKey, Audited, FindApiKey, ListApiKeys, RevokeApiKey, RotateApiKey

__all__ = ["AUDIT", "ApiKeys", "NewKey", "permits"]

RIGHTS = ("produce", "consume", "admin")
KINDS = ("queue", "stream", "channel", "webhook", "schedule", "result", "lock", "limit")
RESERVED = "eventkit"  # The prefix of the library's own names.

_KEY = re.compile(r"ek_([0-9a-f]{16})_([0-9a-f]{64})", re.ASCII)
_SESSION = re.compile(r"es_([0-9a-f]{64})", re.ASCII)


def check_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """Check *scopes* and return them without duplicates."""
    if isinstance(scopes, str):
        raise TypeError(f"pass scopes as a list: [{scopes!r}]")
    checked = tuple(dict.fromkeys(map(_checked, scopes)))
    if not checked:
        raise ValueError(f"a key needs a scope: {', '.join(RIGHTS)}, or for example 'produce:queue:emails'")
    return checked


def _checked(scope: str) -> str:
    right, kind, names = _parts(checks.name("scope", scope, 600))
    if right not in RIGHTS or (kind is not None and kind not in KINDS) or names == "":
        raise ValueError(
            f"{scope!r} is not a scope: use RIGHT[:KIND[:NAMES]] with a right ({', '.join(RIGHTS)}) and a kind "
            f"({', '.join(KINDS)}), for example 'produce:queue:emails.*'"
        )
    return scope


def permits(scopes: Iterable[str], right: str, kind: str | None = None, name: str | None = None) -> bool:
    """Return whether *scopes* give the *right* to a thing; without a name, to all things of the kind."""
    if name is not None and name.startswith(RESERVED):
        return "admin" in scopes
    return any(
        given in (right, "admin")
        and of in (None, kind)
        and (names is None or (name is not None and _pattern(names).fullmatch(name)))
        for given, of, names in map(_parts, scopes)
    )


def _parts(scope: str) -> tuple[str, str | None, str | None]:
    right, *rest = scope.split(":", 2)
    return right, rest[0] if rest else None, rest[1] if len(rest) > 1 else None


@lru_cache(1_000)
def _pattern(names: str) -> re.Pattern[str]:
    """Return the expression for a pattern of names; its groups are atomic, so that no name takes exponential time."""
    first, *rest = map(re.escape, names.split("*"))
    between = "".join([f"(?>.*?{part})" for part in rest[:-1]])
    return re.compile(f"{first}{between}.*{rest[-1]}" if rest else first, re.DOTALL)


def id_of(key: str) -> str | None:
    """Return the id in *key*, which is not secret; None if the text is not a key."""
    found = _KEY.fullmatch(key)
    return found[1] if found else None


def hash_of(key: str) -> str:
    """Return the hash of *key*, which the database stores."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise ValueError("this is not an eventkit API key")
    return hmac.digest(bytes.fromhex(found[2]), f"eventkit key {found[1]}".encode(), "sha256").hex()


def proves(key: str, hashes: Iterable[str]) -> bool:
    """Return whether the hash of *key* is one of *hashes*, in time that does not depend on the key."""
    mine = hash_of(key)
    return any([hmac.compare_digest(mine, other) for other in hashes])


def fresh_session() -> str:
    """Return a secret id for a browser session, unrelated to the key that starts it."""
    return f"es_{secrets.token_hex(32)}"


def hash_of_session(session: str) -> str | None:
    """Return the hash of a session id, which the database stores; None if the text is not a session id."""
    found = _SESSION.fullmatch(session)
    return hmac.digest(bytes.fromhex(found[1]), b"eventkit session", "sha256").hex() if found else None


class NewKey(str):
    """A key with its secret, which is stored nowhere; `repr` hides the secret."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<key {self.id}>"

    @property
    def id(self) -> str:
        """The id of the key, which is not secret."""
        return self.split("_")[1]


class ApiKeys:
    """The keys of the kit's database; of an async kit every call is awaited.

    Each change adds an event to the stream ``eventkit.audit`` in the same transaction; *by* names the caller there.
    """

    def __init__(self, kit: Any, *, by: str = "unknown") -> None:
        self._execute = kit._connection.execute
        self._by = checks.name("caller", by)

    def add(
        self,
        name: str,
        scopes: Iterable[str],
        *,
        rate: float | None = None,
        burst: float | None = None,
        quota: int | None = None,
        expires: Duration | None = None,
        tx: Any = None,
    ) -> Any:
        """Add a key and return the `NewKey`, which cannot be shown again.

        *rate* is in requests per second, with bursts of *burst* requests; *quota* is in requests per day.
        """
        checked = check_scopes(scopes)
        if burst is not None and rate is None:
            raise ValueError("burst= needs rate=")
        key = _new(secrets.token_hex(8))
        operation = AddApiKey(
            key.id,
            checks.name("key", name),
            hash_of(key),
            encode_json(checked),
            None if rate is None else checks.positive("rate", rate),
            None if burst is None else checks.burst(burst),
            None if quota is None else checks.count("quota", quota, least=1),
            None if expires is None else checks.milliseconds("expires", expires, least=1),
        )
        return then(self._audited(operation, "key.add", key.id, tx, name=name, scopes=checked), lambda added: key)

    def rotate(self, id: str, *, grace: Duration = 0, tx: Any = None) -> Any:
        """Replace the secret of a key and return the `NewKey`; None if there is no active key with this id.

        The old secret stays valid for *grace* seconds.
        """
        key = _new(_id(id))
        operation = RotateApiKey(id, hash_of(key), checks.milliseconds("grace", grace))
        return then(self._audited(operation, "key.rotate", id, tx), lambda rotated: key if rotated else None)

    def revoke(self, id: str, *, tx: Any = None) -> Any:
        """Revoke a key; return False if there is no active key with this id.  Services notice within a second."""
        return self._audited(RevokeApiKey(_id(id)), "key.revoke", id, tx)

    def get(self, id: str) -> Any:
        """Return a key by its id, as `HeldKey`; None if there is none."""
        return self._execute(FindApiKey(id))

    def list(self) -> Any:
        """Return all keys, revoked ones included."""
        return self._execute(ListApiKeys())

    def _audited(self, operation: Any, action: str, id: str, tx: Any, **more: Any) -> Any:
        entry = encode_json({"action": action, "by": self._by, "key": id, **more})
        return self._execute(Audited(operation, entry), tx)


def _new(id: str) -> NewKey:
    return NewKey(f"ek_{id}_{secrets.token_hex(32)}")


def _id(id: Any) -> str:
    if not isinstance(id, str) or len(id) != 16 or not id.isalnum():
        raise ValueError("invalid key id: pass the 16 characters that eventkit key list shows")
    return id
