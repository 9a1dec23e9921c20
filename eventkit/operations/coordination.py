"""Operations on locks, limits, workers and keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import msgspec

from ..checks import as_datetime
from ..values import WorkerInfo
from . import Operation, Outlook, Plan, Probe, Rows, first_or_none, flag, nothing


class AcquireLock(Operation[int | None], frozen=True):
    """Acquire the lock for *ttl* milliseconds, if it is free; return its fence, or None."""

    name: str
    token: int
    holder: str
    ttl: int
    decode = first_or_none

    def undo(self, answer: int | None) -> Operation[Any] | None:
        """Return the release, so that another holder can acquire it at once."""
        return None if answer is None else ReleaseLock(self.name, self.token)


class RenewLock(Operation[bool], frozen=True):
    """Set the lock to expire *ttl* milliseconds from now."""

    name: str
    token: int
    ttl: int
    decode = flag


class ReleaseLock(Operation[bool], frozen=True):
    """Release the lock."""

    name: str
    token: int
    decode = flag


class ReadHolder(Operation[tuple[str | None, datetime | None]], frozen=True):
    """Read the holder of the lock, and when it expires."""

    writes: ClassVar[bool] = False
    name: str

    def decode(self, rows: Rows) -> tuple[str | None, datetime | None]:
        """Return the holder and the time; None and None for a free lock."""
        return (rows[0][0], as_datetime(rows[0][1])) if rows else (None, None)


class LockAhead(Probe, frozen=True):
    """A probe that is ready when the lock is free, and due when it expires."""

    name: str

    @property
    def subjects(self) -> tuple[str, ...]:
        return (f"lock:{self.name}",)

    def decode(self, rows: Rows) -> Outlook:
        expires_at, now = rows[0]
        return Outlook(expires_at is None, expires_at, now)


class CountCall(Operation[bool], frozen=True):
    """Count a call in the current window of *per* milliseconds, if it holds fewer than *limit*."""

    name: str
    per: int
    limit: int
    decode = flag


class TakeToken(Operation[bool], frozen=True):
    """Take a token from a bucket of *burst*, which gains *rate* a second and is full in *full_after* milliseconds."""

    name: str
    rate: float
    burst: float
    full_after: int
    decode = flag


EVERY = 10.0
"""The interval between two reports of a worker, in seconds."""

ALIVE = 30_000
"""The milliseconds after its last report for which a worker counts as alive."""

FORGOTTEN = 3_600_000
"""The milliseconds after its last report after which a worker is deleted."""

MOST_LEASED = 10_000
"""The maximum number of leased tasks that are read."""


class Beat(Operation[None], frozen=True):
    """Report that a worker serves *queues* with so many *slots*, of them *running* busy with a task.

    Each report also deletes workers without a recent report, whose rows would stay for ever.
    """

    name: str
    queues: list[str]
    slots: int
    running: int

    def plan(self) -> Plan[None]:
        """Save the worker's row, and delete old ones."""
        yield SaveWorker(self.name, msgspec.json.encode(self.queues).decode(), self.slots, self.running)
        yield DropWorkers(FORGOTTEN)


class SaveWorker(Operation[None], frozen=True):
    """Write the worker's row."""

    name: str
    queues: str
    slots: int
    running: int


class DropWorkers(Operation[None], frozen=True):
    """Delete workers whose last report is older than so many milliseconds."""

    older_than: int


class SignOff(Operation[None], frozen=True):
    """Delete a worker that has ended."""

    name: str
    decode = nothing


class ListWorkers(Operation[list[WorkerInfo]], frozen=True):
    """List the workers by name: those that report, and those that have tasks leased."""

    writes: ClassVar[bool] = False
    alive: int = ALIVE
    limit: int = MOST_LEASED

    def decode(self, rows: Rows) -> list[WorkerInfo]:
        """Merge the rows of reports and the rows of leases per queue, by the worker's name."""
        said: dict[str, WorkerInfo] = {}
        for name, queues, slots, running, leased, started, seen, oldest, alive in sorted(rows, key=lambda row: row[0]):
            known = said.get(name) or WorkerInfo(name, [], None, None, 0, None, None, None, False)
            oldest_claims = [moment for moment in (known.oldest_claim_ms, oldest) if moment is not None]
            said[name] = WorkerInfo(
                name,
                sorted({*known.queues, *msgspec.json.decode(queues, type=list[str])}),
                known.slots if slots is None else slots,
                known.running if running is None else running,
                known.leased + leased,
                known.started_ms or started,
                known.seen_ms or seen,
                min(oldest_claims, default=None),
                known.alive or bool(alive),
            )
        return list(said.values())


_decode = msgspec.json.Decoder(tuple[str, ...]).decode


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """An API key: its owner, its permissions and its limits.

    *rate* is in requests a second, with at most *burst* at once, and *quota* in requests a day.
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
        """The time at which it was created."""
        return as_datetime(self.created_ms)

    @property
    def expires_at(self) -> datetime | None:
        """The time at which it expires; None if never."""
        return None if self.expires_ms is None else as_datetime(self.expires_ms)

    @property
    def revoked_at(self) -> datetime | None:
        """The time at which it was revoked."""
        return None if self.revoked_ms is None else as_datetime(self.revoked_ms)


class HeldKey(msgspec.Struct, frozen=True):
    """An API key, and the hashes of its valid secrets: none if it was revoked or has expired."""

    key: ApiKey
    hashes: tuple[str, ...]


class AddApiKey(Operation[bool], frozen=True):
    """Store an API key, for so many milliseconds or for ever; return False if its id is taken."""

    id: str
    name: str
    hash: str
    scopes: str
    rate: float | None
    burst: float | None
    quota: int | None
    expires: int | None
    decode = flag


class FindApiKey(Operation[HeldKey | None], frozen=True):
    """Find an API key by its id, by the database's clock."""

    writes: ClassVar[bool] = False
    id: str

    def decode(self, rows: Rows) -> HeldKey | None:
        if not rows:
            return None
        *columns, hash, former = rows[0]
        return HeldKey(_key(columns), tuple(one for one in (hash, former) if one is not None))


class AnyApiKey(Operation[bool], frozen=True):
    """Read whether there has ever been an API key."""

    writes: ClassVar[bool] = False
    decode = flag


class ListApiKeys(Operation[list[ApiKey]], frozen=True):
    """List all API keys, the oldest first, including revoked ones."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> list[ApiKey]:
        return [_key(row) for row in rows]


class RevokeApiKey(Operation[bool], frozen=True):
    """Revoke an API key; return False if there is no valid one with that id."""

    id: str
    decode = flag


class RotateApiKey(Operation[bool], frozen=True):
    """Give an API key another secret; the old one is valid for *grace* milliseconds more.

    False if the key is not valid.
    """

    id: str
    hash: str
    grace: int
    decode = flag


class BeginSession(Operation[None], frozen=True):
    """Store a browser's session of *lasts* milliseconds, for the hash of an API key's secret."""

    id: str
    key: str
    secret: str
    lasts: int

    def plan(self) -> Plan[None]:
        """Delete expired sessions, so that the table stays small, and write the row."""
        yield ForgetSessions()
        yield self


class FindSession(Operation[ApiKey | None], frozen=True):
    """Find the API key of an unexpired session; None also if the secret that began the session is not valid."""

    writes: ClassVar[bool] = False
    id: str

    def decode(self, rows: Rows) -> ApiKey | None:
        return _key(rows[0]) if rows else None


class EndSession(Operation[None], frozen=True):
    """Delete a session."""

    id: str
    decode = nothing


class ForgetSessions(Operation[None], frozen=True):
    """Delete expired sessions."""


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
