"""The alternation between contestants.

In every round each contestant does the same work, in slices of some milliseconds that alternate with those of
the others, in an order that reverses.  The ratio of two contestants is computed within a round, so that other load
affects both alike; the median over the rounds is the result, and the minimum and maximum show how reliable it
is.
"""

import statistics
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Protocol

import msgspec

from .contestants import CONSUMING

SLICES = 10
"""Slices in a round."""


class Spread(msgspec.Struct, frozen=True):
    """A median, with minimum and maximum."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        """Return the spread of *values*."""
        return cls(statistics.median(values), min(values), max(values))


class Result(msgspec.Struct, frozen=True):
    """The result of a contest: the rates of each contestant, by round."""

    rates: dict[str, list[float]]

    def rate(self, name: str) -> float | None:
        """Return the median of items a second; None for a contestant that did not take part."""
        return statistics.median(self.rates[name]) if name in self.rates else None

    def ratio(self, name: str, reference: str) -> Spread | None:
        """Return the rate of *name* as a fraction of that of *reference*, by rounds."""
        if name not in self.rates or reference not in self.rates:
            return None
        pairs = zip(self.rates[name], self.rates[reference], strict=True)
        return Spread.of([mine / theirs for mine, theirs in pairs])


class Party(Protocol):
    """A contestant, possibly in other processes, whose methods are called by name."""

    def call(self, method: str, *arguments: Any) -> Any:
        """Call the method, and return its result."""


def contest(
    contestants: Mapping[str, Party],
    work: str,
    count: int,
    *size: int,
    rounds: int,
    slices: int = SLICES,
    unit: int = 1,
) -> Result:
    """Run *work* on *count* items in *rounds* rounds for each contestant that supports it, after a warm-up slice.

    Each slice is a whole number of batches of *size*, and of *unit*.
    """
    able = {name: party for name, party in contestants.items() if party.call("can", work)}
    rates: dict[str, list[float]] = {name: [] for name in able}
    step = max((unit, *size))
    number = max(step, count // slices // step * step)

    def turn(backwards: bool, spent: dict[str, float]) -> None:
        for name in sorted(able, reverse=backwards):
            if work in CONSUMING:
                able[name].call("fill", number)
            spent[name] += able[name].call("time", work, number, *size)

    turn(False, dict.fromkeys(able, 0.0))
    for _ in range(rounds):
        spent = dict.fromkeys(able, 0.0)
        for place in range(slices):
            turn(bool(place % 2), spent)
        for name in able:
            rates[name].append(number * slices / spent[name])
    return Result(rates)


def seconds(call: Callable[..., object], *arguments: Any) -> float:
    """Return the time of a call."""
    start = perf_counter()
    call(*arguments)
    return perf_counter() - start


def p99(values: list[float]) -> float:
    """Return the value that 99 % of *values* do not exceed."""
    return sorted(values)[max(0, -(-len(values) * 99 // 100) - 1)]
