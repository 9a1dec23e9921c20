"""Keys as their holders have them, ``ek_<id>_<secret>``, and as the database does.

A secret is 32 random bytes.  Nobody finds it by trying, however fast each try is, so the slow hash that passwords need
would cost every request and protect nothing; what is kept is an HMAC of the key's id under the secret, so that a hash
is good for no other row.
"""

import hmac
import re
import secrets
from collections.abc import Iterable

_KEY = re.compile(r"ek_([0-9a-f]{16})_([0-9a-f]{64})", re.ASCII)
_SESSION = re.compile(r"es_([0-9a-f]{64})", re.ASCII)


def fresh_id() -> str:
    """An id for a key, which is no secret."""
    return secrets.token_hex(8)


def fresh_key(id: str) -> str:
    """A key of that id, with a secret that nobody has had."""
    return f"ek_{id}_{secrets.token_hex(32)}"


def id_of(key: str) -> str | None:
    """The id in *key*; None for what is no key."""
    found = _KEY.fullmatch(key)
    return found[1] if found else None


def hash_of(key: str) -> str:
    """What the database keeps of *key*."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise ValueError("this is no key of eventkit")
    return hmac.digest(bytes.fromhex(found[2]), f"eventkit key {found[1]}".encode(), "sha256").hex()


def fresh_session() -> str:
    """The id of a session of a browser, which is a secret and says nothing of the key that began it."""
    return f"es_{secrets.token_hex(32)}"


def hash_of_session(session: str) -> str | None:
    """Return the hash of a session's id, which the database keeps; None for a text that is no such id."""
    found = _SESSION.fullmatch(session)
    return hmac.digest(bytes.fromhex(found[1]), b"eventkit session", "sha256").hex() if found else None


def proves(key: str, hashes: Iterable[str]) -> bool:
    """Whether *key* is one of those that *hashes* are of; how long that takes does not tell how wrong it is."""
    mine = hash_of(key)
    return any([hmac.compare_digest(mine, other) for other in hashes])
