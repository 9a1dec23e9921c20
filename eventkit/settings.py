"""What is stored of handles for every process to obey, as it was given to `configure`.

None is what is said there: mostly that nothing is configured.  Durations are seconds.
"""

from __future__ import annotations

import msgspec

from .retry import Policy

DAY = 86_400.0


class StreamSettings(msgspec.Struct, frozen=True):
    """How long a stream keeps its events, how many, and whether what a consumer has still to read stays in any case.

    None is for ever, and all.
    """

    retain: float | None = None
    max_keep: int | None = None
    keep_unconsumed: bool = True


class ChannelSettings(msgspec.Struct, frozen=True):
    """How long a channel keeps its notifications, and how many; None is for ever, and all."""

    retain: float | None = DAY
    max_keep: int | None = None


class InboxSettings(msgspec.Struct, frozen=True):
    """How long an inbox remembers what its consumer has seen; None is for ever."""

    retain: float | None = None


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue is configured to; None where it has the default, and *history* is False then."""

    max_attempts: int | None = None
    lease: float | None = None
    retry: Policy | None = None
    max_size: int | None = None
    rate: float | None = None
    burst: float | None = None
    max_running: int | None = None
    keep_done: float | None = None
    keep_dead: float | None = None
    key_ttl: float | None = None
    dead_letter_to: str | None = None
    history: bool = False


def seconds(milliseconds: int | None) -> float | None:
    """A duration as the database has it, in seconds."""
    return None if milliseconds is None else milliseconds / 1000
