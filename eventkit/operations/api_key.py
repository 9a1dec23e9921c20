"""What is asked of a database about the keys with which callers of the service prove who they are.

Nothing that is stored here lets anybody in: of a key's secret, and of the id of a browser's session, there is only a
hash.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import msgspec

from ..arguments import as_datetime
from . import Operation, Plan, Rows

_decode = msgspec.json.Decoder(tuple[str, ...]).decode


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key: who it is for, what it may do, and how often.

    *rate* is in requests a second, of which *burst* may come at once, and *quota* in requests a day.
    """

    id: str
    name: str
    scopes: tuple[str, ...]
    rate: float | None
    burst: float | None
    quota: int | None
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None

    @property
    def created_at(self) -> datetime:
        """When it was made."""
        return as_datetime(self.created_ms)

    @property
    def expires_at(self) -> datetime | None:
        """From when on it lets nobody in."""
        return None if self.expires_ms is None else as_datetime(self.expires_ms)

    @property
    def revoked_at(self) -> datetime | None:
        """When it was revoked."""
        return None if self.revoked_ms is None else as_datetime(self.revoked_ms)


class HeldKey(msgspec.Struct, frozen=True):
    """A key, and the hashes of the secrets that it has now: of none where it was revoked or has expired."""

    key: ApiKey
    hashes: tuple[str, ...]


class AddApiKey(Operation[bool], frozen=True):
    """Keep a key, for so many milliseconds or for ever; False if there is one of that id."""

    id: str
    name: str
    hash: str
    scopes: str
    rate: float | None
    burst: float | None
    quota: int | None
    expires: int | None

    def decode(self, rows: Rows) -> bool:
        """Whether it was written."""
        return bool(rows)


class FindApiKey(Operation[HeldKey | None], frozen=True):
    """A key by its id, by the database's clock."""

    writes: ClassVar[bool] = False
    id: str

    def decode(self, rows: Rows) -> HeldKey | None:
        """The one row."""
        if not rows:
            return None
        *columns, hash, former = rows[0]
        return HeldKey(_key(columns), tuple(one for one in (hash, former) if one is not None))


class AnyApiKey(Operation[bool], frozen=True):
    """Whether there has ever been a key."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> bool:
        """Whether there is a row."""
        return bool(rows)


class ListApiKeys(Operation[list[ApiKey]], frozen=True):
    """All keys, the oldest first, with those that were revoked."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> list[ApiKey]:
        """One a row."""
        return [_key(row) for row in rows]


class RevokeApiKey(Operation[bool], frozen=True):
    """Let a key in no more; False if there is none of that id that was."""

    id: str

    def decode(self, rows: Rows) -> bool:
        """Whether there was one."""
        return bool(rows)


class RotateApiKey(Operation[bool], frozen=True):
    """Give a key another secret; the one it had is good for *grace* milliseconds more.  False if it lets nobody in."""

    id: str
    hash: str
    grace: int

    def decode(self, rows: Rows) -> bool:
        """Whether there was one."""
        return bool(rows)


class BeginSession(Operation[None], frozen=True):
    """Keep a browser's session of *lasts* milliseconds, for the secret of a key by its hash."""

    id: str
    key: str
    secret: str
    lasts: int

    def plan(self) -> Plan[None]:
        """Delete what is over, so that the table stays as small as what is not, and write the row."""
        yield ForgetSessions()
        yield self


class FindSession(Operation[ApiKey | None], frozen=True):
    """The key of a session that is not over; None also if the secret that began the session is not valid."""

    writes: ClassVar[bool] = False
    id: str

    def decode(self, rows: Rows) -> ApiKey | None:
        """The one row."""
        return _key(rows[0]) if rows else None


class EndSession(Operation[None], frozen=True):
    """Delete a session."""

    id: str

    def decode(self, rows: Rows) -> None:
        """Nothing."""


class ForgetSessions(Operation[None], frozen=True):
    """Delete the sessions that are over."""


def _key(columns: Any) -> ApiKey:
    id, name, scopes, rate, burst, quota, created_ms, expires_ms, revoked_ms = columns
    return ApiKey(
        id=id,
        name=name,
        scopes=_decode(scopes),
        rate=rate,
        burst=burst,
        quota=quota,
        created_ms=created_ms,
        expires_ms=expires_ms,
        revoked_ms=revoked_ms,
    )
