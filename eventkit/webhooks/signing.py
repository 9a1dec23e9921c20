"""Verification of calls by the receiver."""

import time
from collections.abc import Iterable, Mapping

from ..signatures import TOLERANCE, SignatureRefused, check

JOB_ID, ATTEMPT, QUEUE, SIGNATURE = (
    "X-Eventkit-Job-Id",
    "X-Eventkit-Attempt",
    "X-Eventkit-Queue",
    "X-Eventkit-Signature",
)
"""The headers of a call."""

_MOST = 100_000
"""The maximum number of calls that are remembered; beyond that the oldest are forgotten."""


class Replays:
    """Remembers recent calls, so that `verify` refuses replays.

    It remembers only the calls of its own process.  Several receiver processes record job ids in a shared database
    instead: each attempt of a job has a new signature and is not a replay.
    """

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}

    def first(self, signature: str, seconds: float) -> bool:
        """Return whether *signature* was not seen in the last *seconds*."""
        now = time.monotonic()
        while self._seen:
            oldest = next(iter(self._seen))
            if self._seen[oldest] > now and len(self._seen) < _MOST:
                break
            del self._seen[oldest]
        if signature in self._seen:
            return False
        self._seen[signature] = now + seconds
        return True


def verify(
    body: bytes,
    headers: Mapping[str, str],
    *,
    secret: str | Iterable[str],
    tolerance: float = TOLERANCE,
    replays: Replays | None = None,
) -> str:
    """Verify a call and return the id of its job; raise `SignatureRefused` otherwise.

    *body* is the raw body as received.  Of several secrets any one may match.  A signature older than *tolerance*
    seconds, or as far in the future, is refused; with *replays*, so is a call that was verified before.
    """
    given = {name.lower(): value for name, value in headers.items()}
    job = given.get(JOB_ID.lower(), "")
    secrets = [secret] if isinstance(secret, str) else list(secret)
    right = check(body, given.get(SIGNATURE.lower()), secrets=secrets, subject=job, tolerance=tolerance)
    if replays is not None and not replays.first(right, 2 * tolerance):
        raise SignatureRefused(f"replayed call of job {job}: answer 2xx and do nothing")
    return job
