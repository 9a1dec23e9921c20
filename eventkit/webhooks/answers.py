"""What an answer means for the job: done, another attempt, or dead."""

import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime

import msgspec

from ..handling import Permanent, Retry
from ..retry import Policy, delay_after, encode

AGAIN = frozenset({408, 425, 429})
"""What a client has done wrong and may do right by itself; any other 4xx is as wrong the next time."""

LARGEST = 65_536
"""Bytes of an answer's body that are kept."""

_LONGEST_DELAY = 86_400.0

Headers = Sequence[tuple[bytes, bytes]]


class Answer(msgspec.Struct, frozen=True):
    """The result of a job: what the receiver has said.  Of a longer *body* the beginning is kept."""

    status: int
    body: str
    truncated: bool = False


def judge(status: int, headers: Headers, attempt: int, retry: Policy | None) -> None:
    """Raise what has become of the job that got such an answer; nothing if it is done.

    Of the answer's body nothing is said: it may repeat what was sent, and errors are logged.
    """
    if 200 <= status < 300:
        return
    if status in AGAIN or status >= 500:
        raise failed(f"the answer was {status}", attempt, retry, retry_after(headers))
    why = "redirects are not followed" if 300 <= status < 400 else "another attempt would be answered the same"
    raise Permanent(f"the answer was {status}: {why}")


def failed(error: str, attempt: int, retry: Policy | None, at_least: float | None = None) -> Retry:
    """Another attempt: when the job's policy says, else the queue's, and not before the receiver wants it."""
    own = None if retry is None else delay_after(attempt, encode(retry)) / 1000
    if at_least is not None:
        return Retry(max(at_least, own or 0.0), error)
    return Retry(own, error)


def retry_after(headers: Headers) -> float | None:
    """The seconds that ``Retry-After`` asks for, a day at most; None if it asks for none."""
    given = {name.lower(): value.decode("latin-1").strip() for name, value in headers}
    value = given.get(b"retry-after", "")
    if value.isascii() and value.isdigit() and len(value) < 10:
        seconds = float(value)
    else:
        then = _moment(value)
        # By the receiver's clock, if it says what that shows.
        seconds = 0.0 if then is None else then - (_moment(given.get(b"date", "")) or time.time())
    return min(seconds, _LONGEST_DELAY) if seconds > 0 else None


def _moment(value: str) -> float | None:
    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
