"""For those who are called: whether a call is one of ours, of just now, and the first one of its kind."""

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
"""The most calls that are remembered; a receiver that has so many in its window forgets the oldest."""


class Replays:
    """Remembers the calls of the last minutes, so that `verify` refuses one that comes again.

    A process remembers what it has seen itself.  Receivers of several processes ask a database that they share instead,
    under the job's id: attempts of one job are signed anew, and are no replays.
    """

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}

    def first(self, signature: str, seconds: float) -> bool:
        """Whether *signature* was not seen in the last *seconds*."""
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
    """The id of the job that a call is for, or `SignatureRefused`.

    *body* is what was received, byte for byte, before anything has parsed it.  With several secrets, each of them will
    do.  A call whose signature is older than *tolerance* seconds, or of the future, is refused; with *replays*, one
    that was verified before is too.
    """
    given = {name.lower(): value for name, value in headers.items()}
    job = given.get(JOB_ID.lower(), "")
    secrets = [secret] if isinstance(secret, str) else list(secret)
    right = check(body, given.get(SIGNATURE.lower()), secrets=secrets, subject=job, tolerance=tolerance)
    if replays is not None and not replays.first(right, 2 * tolerance):
        raise SignatureRefused(f"this call of job {job} was received before: answer 2xx, and do nothing")
    return job
