"""Signatures of bodies: proof that the holder of the secret has sent a body, now, and for a purpose.

A signature is written ``t=1795053600,v1=5257a8…``: the time in seconds since 1970, and HMAC-SHA256 over the time, a
*subject* (the purpose of the body) and the body, in hexadecimal; each of several secrets has a ``v1``.
"""

import hmac
import time
from collections.abc import Iterable, Mapping

TOLERANCE = 300.0  # The seconds by which a signature may be older, or newer, than the receiver's clock.

WEBHOOK_ID, ATTEMPT, QUEUE, SIGNATURE = (
    "X-Eventkit-Webhook-Id",
    "X-Eventkit-Attempt",
    "X-Eventkit-Queue",
    "X-Eventkit-Signature",
)
"""The headers of a call."""

_MOST = 100_000  # The maximum number of calls that are remembered; beyond that the oldest are forgotten.


class SignatureRefused(ValueError):
    """Raised for a body without a valid signature for its sender, its subject and its time."""


def sign(body: bytes, *, secrets: Iterable[str], subject: str, at: float | None = None) -> str:
    """Return the signature of *body*, for now unless a time is given."""
    moment = int(time.time() if at is None else at)
    return ",".join([f"t={moment}", *(f"v1={_digest(secret, moment, subject, body)}" for secret in secrets)])


def check(
    body: bytes,
    signature: str | None,
    *,
    secrets: Iterable[str],
    subject: str,
    tolerance: float = TOLERANCE,
    at: float | None = None,
) -> str:
    """Return the valid signature, or raise `SignatureRefused`; the time taken reveals nothing about invalid ones."""
    secrets = list(secrets)
    if not secrets or not all(secrets):
        raise ValueError("pass the secret to sign the body with")
    moment, given = _parts(signature)
    expected = [_digest(secret, moment, subject, body) for secret in secrets]
    right = [other for one in given for other in expected if hmac.compare_digest(one, other.encode())]
    if not right:
        raise SignatureRefused("the signature does not match the body: compare the secrets, and sign the sent bytes")
    if abs((time.time() if at is None else at) - moment) > tolerance:
        raise SignatureRefused(f"the signature is not of the last {tolerance:g} s: sign again, or set the clock")
    return right[-1]


def _digest(secret: str, moment: int, subject: str, body: bytes) -> str:
    return hmac.digest(secret.encode(), f"{moment}.{subject}.".encode() + body, "sha256").hex()


def _parts(signature: str | None) -> tuple[int, list[bytes]]:
    """Return the time, and the digests of all secrets."""
    parts = [part.strip().partition("=") for part in (signature or "").split(",")]
    moments = [value for name, _, value in parts if name == "t"]
    given = [value.encode("utf-8", "replace") for name, _, value in parts if name == "v1"]
    if len(moments) != 1 or not (moments[0].isascii() and moments[0].isdigit()) or len(moments[0]) > 12 or not given:
        raise SignatureRefused("there is no signature of the form t=seconds,v1=hexadecimal")
    return int(moments[0]), given


class Replays:
    """Remembers recent calls, so that `verify` refuses replays.

    It remembers only the calls of its own process.  Several receiver processes record webhook ids in a shared database
    instead: each attempt of a webhook has a new signature and is not a replay.
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
    """Verify a call and return the id of its webhook; raise `SignatureRefused` otherwise.

    *body* is the raw body as received.  Of several secrets any one may match.  A signature older than *tolerance*
    seconds, or as far in the future, is refused; with *replays*, so is a call that was verified before.
    """
    given = {name.lower(): value for name, value in headers.items()}
    webhook = given.get(WEBHOOK_ID.lower(), "")
    secrets = [secret] if isinstance(secret, str) else list(secret)
    right = check(body, given.get(SIGNATURE.lower()), secrets=secrets, subject=webhook, tolerance=tolerance)
    if replays is not None and not replays.first(right, 2 * tolerance):
        raise SignatureRefused(f"replayed call of webhook {webhook}: answer 2xx and do nothing")
    return webhook
