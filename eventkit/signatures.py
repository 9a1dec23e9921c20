"""Signatures of bodies: proof that the holder of the secret has sent a body, now, and for a purpose.

A signature is written ``t=1795053600,v1=5257a8…``: the time in seconds since 1970, and HMAC-SHA256 over the time, a
*subject* and the body, in hexadecimal.  The subject is the purpose of the body, so that it cannot be sent for another
one; a body signed with several secrets has a ``v1`` for each, so that each side can change its own secret at any time.
"""

import hmac
import time
from collections.abc import Iterable

TOLERANCE = 300.0
"""The seconds by which a signature may be older, or newer, than the receiver's clock."""


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
    right = ""
    for one in given:
        for other in expected:
            if hmac.compare_digest(one, other.encode()):
                right = other
    if not right:
        raise SignatureRefused("the signature does not match the body: compare the secrets, and sign the sent bytes")
    if abs((time.time() if at is None else at) - moment) > tolerance:
        raise SignatureRefused(f"the signature is not of the last {tolerance:g} s: sign again, or set the clock")
    return right


def _digest(secret: str, moment: int, subject: str, body: bytes) -> str:
    return hmac.digest(secret.encode(), f"{moment}.{subject}.".encode() + body, "sha256").hex()


def _parts(signature: str | None) -> tuple[int, list[bytes]]:
    """Return the time, and the digests of all secrets."""
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
