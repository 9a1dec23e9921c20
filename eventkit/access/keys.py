"""`ApiKeys`: the API keys of a database."""

import hmac
import re
import secrets
from collections.abc import Iterable
from typing import Any

from .. import checks
from ..app.task import then
from ..checks import Duration
from ..codec import encode_json
from ..operations.admin import AddApiKey, Audited, FindApiKey, ListApiKeys, RevokeApiKey, RotateApiKey
from .scopes import scopes as checked_scopes

_KEY = re.compile(r"ek_([0-9a-f]{16})_([0-9a-f]{64})", re.ASCII)
_SESSION = re.compile(r"es_([0-9a-f]{64})", re.ASCII)


def fresh_id() -> str:
    """Return a new key id, which is not secret."""
    return secrets.token_hex(8)


def fresh_key(id: str) -> str:
    """Return a key with this id and a new secret."""
    return f"ek_{id}_{secrets.token_hex(32)}"


def id_of(key: str) -> str | None:
    """Return the id in *key*; None if the text is not a key."""
    found = _KEY.fullmatch(key)
    return found[1] if found else None


def hash_of(key: str) -> str:
    """Return the hash of *key*, which the database stores."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise ValueError("this is not an eventkit API key")
    return hmac.digest(bytes.fromhex(found[2]), f"eventkit key {found[1]}".encode(), "sha256").hex()


def fresh_session() -> str:
    """Return a secret id for a browser session, unrelated to the key that starts it."""
    return f"es_{secrets.token_hex(32)}"


def hash_of_session(session: str) -> str | None:
    """Return the hash of a session id, which the database stores; None if the text is not a session id."""
    found = _SESSION.fullmatch(session)
    return hmac.digest(bytes.fromhex(found[1]), b"eventkit session", "sha256").hex() if found else None


def proves(key: str, hashes: Iterable[str]) -> bool:
    """Return whether the hash of *key* is one of *hashes*, in time that does not depend on the key."""
    mine = hash_of(key)
    return any([hmac.compare_digest(mine, other) for other in hashes])


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
        checked = checked_scopes(scopes)
        if burst is not None and rate is None:
            raise ValueError("burst= needs rate=")
        id = fresh_id()
        key = NewKey(fresh_key(id))
        operation = AddApiKey(
            id,
            checks.name("key", name),
            hash_of(key),
            encode_json(checked),
            None if rate is None else checks.positive("rate", rate),
            None if burst is None else checks.burst(burst),
            None if quota is None else checks.count("quota", quota, least=1),
            None if expires is None else checks.milliseconds("expires", expires, least=1),
        )
        return then(self._audited(operation, "key.add", id, tx, name=name, scopes=checked), lambda added: key)

    def rotate(self, id: str, *, grace: Duration = 0, tx: Any = None) -> Any:
        """Replace the secret of a key and return the `NewKey`; None if there is no active key with this id.

        The old secret stays valid for *grace* seconds.
        """
        key = NewKey(fresh_key(self._id(id)))
        operation = RotateApiKey(id, hash_of(key), checks.milliseconds("grace", grace))
        return then(self._audited(operation, "key.rotate", id, tx), lambda rotated: key if rotated else None)

    def revoke(self, id: str, tx: Any = None) -> Any:
        """Revoke a key; return False if there is no active key with this id.  Services notice within a second."""
        return self._audited(RevokeApiKey(self._id(id)), "key.revoke", id, tx)

    def get(self, id: str) -> Any:
        """Return a key by its id, as `HeldKey`; None if there is none."""
        return self._execute(FindApiKey(id))

    def list(self) -> Any:
        """Return all keys, revoked ones included."""
        return self._execute(ListApiKeys())

    def _audited(self, operation: Any, action: str, id: str, tx: Any, **more: Any) -> Any:
        entry = encode_json({"action": action, "by": self._by, "key": id, **more})
        return self._execute(Audited(operation, entry), tx)

    @staticmethod
    def _id(id: Any) -> str:
        if not isinstance(id, str) or len(id) != 16 or not id.isalnum():
            raise ValueError("invalid key id: pass the 16 characters that eventkit key list shows")
        return id
