"""Signatures of bodies: who holds the secret has sent this, now, and for this.

A signature is written ``t=1795053600,v1=5257a8…``: the moment in seconds since 1970, and HMAC-SHA256 over the moment, a
*subject* and the body, in hexadecimal.  The subject says what the body is for, so that it cannot be sent for something
else; a body that is signed with several secrets has a ``v1`` for each, so that each side changes its own in its time.
"""

import hmac
import time
from collections.abc import Iterable

TOLERANCE = 300.0
"""Seconds by which a signature may be older, or younger, than the clock of who reads it."""


class SignatureRefused(ValueError):
    """Raised for a body that is not signed, or not by whom, for what and when it should be."""


def sign(body: bytes, *, secrets: Iterable[str], subject: str, at: float | None = None) -> str:
    """The signature of *body*, for now unless a moment is given."""
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
    """Which of the signatures is right, or `SignatureRefused`; how long that takes does not tell how wrong they are."""
    secrets = list(secrets)
    if not secrets or not all(secrets):
        raise ValueError("name the secret that the body is to be signed with")
    moment, given = _parts(signature)
    expected = [_digest(secret, moment, subject, body) for secret in secrets]
    right = ""
    for one in given:
        for other in expected:
            if hmac.compare_digest(one, other.encode()):
                right = other
    if not right:
        raise SignatureRefused("the signature is not that of this body: compare the secrets, and sign what is sent")
    if abs((time.time() if at is None else at) - moment) > tolerance:
        raise SignatureRefused(f"the signature is not of the last {tolerance:g} s: sign anew, or set the clock")
    return right


def _digest(secret: str, moment: int, subject: str, body: bytes) -> str:
    return hmac.digest(secret.encode(), f"{moment}.{subject}.".encode() + body, "sha256").hex()


def _parts(signature: str | None) -> tuple[int, list[bytes]]:
    """The moment, and what was signed with each secret."""
    moments: list[str] = []
    given: list[bytes] = []
    for part in (signature or "").split(","):
        name, _, value = part.strip().partition("=")
        if name == "t":
            moments.append(value)
        elif name == "v1":
            given.append(value.encode("utf-8", "replace"))
    if len(moments) != 1 or not (moments[0].isascii() and moments[0].isdigit()) or len(moments[0]) > 12 or not given:
        raise SignatureRefused("there is no signature of the form t=seconds,v1=hexadecimal")
    return int(moments[0]), given
