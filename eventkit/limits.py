"""Limits that all processes share: fixed windows, and token buckets."""

from typing import Any

from . import arguments
from .operations.limit import CountCall, TakeToken


def window(name: Any, limit: Any, per: Any) -> CountCall:
    """At most *limit* calls in each window of *per* seconds."""
    checked = arguments.name("limit", name)
    return CountCall(checked, arguments.milliseconds("per", per, least=1), arguments.count("limit", limit, least=1))


def bucket(name: Any, rate: Any, burst: Any) -> TakeToken:
    """*rate* calls a second, and up to *burst* at once where nothing was asked for a while."""
    checked, rate = arguments.name("limit", name), arguments.positive("rate", rate)
    depth = max(1.0, rate) if burst is None else arguments.burst(burst)
    return TakeToken(checked, rate, depth, int(min(arguments.FOREVER, 1 + 1000 * depth / rate)))
