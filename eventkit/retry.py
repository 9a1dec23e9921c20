"""Retry policies: when to run a failed task again.

A policy is a value, stored with the queue as JSON, so every process follows the same one.  Attempt 1 is the first run.
"""

import random
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

Positive = Annotated[float, Meta(ge=1e-9, le=1e12)]
Fraction = Annotated[float, Meta(ge=0, le=1)]


class _Growth(msgspec.Struct, frozen=True):
    base: Positive = 1.0
    jitter: Fraction = 0.3
    cap: Positive = 300.0


class Exponential(_Growth, frozen=True, tag="exponential"):
    """A delay of ``base · 2^(n-1)`` seconds after attempt *n*, ± *jitter* of it, at most *cap*."""


class Linear(_Growth, frozen=True, tag="linear"):
    """A delay of ``base · n`` seconds after attempt *n*, ± *jitter* of it, at most *cap*."""


class Fixed(_Growth, frozen=True, tag="fixed"):
    """A delay of *base* seconds after every attempt, ± *jitter* of it, at most *cap*."""


class Delays(msgspec.Struct, frozen=True, tag="delays"):
    """A delay of the *n*-th of *seconds* after attempt *n*, the last one from there on, ± *jitter*, at most *cap*."""

    seconds: Annotated[tuple[Annotated[float, Meta(ge=0, le=1e12)], ...], Meta(min_length=1)]
    jitter: Fraction = 0.3
    cap: Positive = 300.0


Policy = Exponential | Linear | Fixed | Delays

PolicyName = Literal["exponential", "linear", "fixed"]

_NAMED: dict[str, Policy] = dict(zip(get_args(PolicyName), (Exponential(), Linear(), Fixed()), strict=True))
decode = msgspec.json.Decoder(Policy).decode
"""The decoder of the policy stored with a queue."""


def policy(value: Any) -> Policy:
    """Return the policy for *value*: one of the classes here, its name, or a list of seconds."""
    if isinstance(value, str):
        if value not in _NAMED:
            raise ValueError(f"retry is one of {', '.join(_NAMED)}, a list of seconds or a policy, not {value!r}")
        return _NAMED[value]
    if isinstance(value, Sequence):
        value = Delays(tuple(value))
    if not isinstance(value, Policy):
        raise TypeError(f"retry is a policy, its name or a list of seconds, not {type(value).__name__}")
    try:
        checked: Policy = msgspec.convert(msgspec.to_builtins(value), Policy)
    except (msgspec.ValidationError, TypeError) as error:
        raise ValueError(f"the retry policy {value!r} is invalid: {error}") from None
    return checked


def encode(value: Policy) -> str:
    """Return *value* as the text stored with the queue."""
    return msgspec.json.encode(value).decode()


def delay_after(attempt: int, stored: str | None) -> int:
    """Return the milliseconds to wait after run *attempt*, by the *stored* policy of the queue (NULL: exponential)."""
    policy = decode(stored) if stored else _NAMED["exponential"]
    match policy:
        case Exponential():
            delay = policy.base * 2.0 ** min(attempt - 1, 1000)
        case Linear():
            delay = policy.base * attempt
        case Fixed():
            delay = policy.base
        case _:
            delay = policy.seconds[min(attempt, len(policy.seconds)) - 1]
    jittered = delay * random.uniform(1 - policy.jitter, 1 + policy.jitter)
    return round(min(jittered, policy.cap) * 1000)
