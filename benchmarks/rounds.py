"""Contestants, and the alternation between them.

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

SLICES = 10
"""Slices in a round."""


class Contestant:
    """A contestant with a method for each work that it supports."""

    def can(self, work: str) -> bool:
        """Return whether the contestant supports *work*."""
        return hasattr(self, work)

    def time(self, work: str, *arguments: Any) -> float:
        """Return the seconds that the work took."""
        start = perf_counter()
        getattr(self, work)(*arguments)
        return perf_counter() - start

    def close(self) -> None:
        """Release all resources."""


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
    """A contestant, possibly in another process, whose methods are called by name."""

    def call(self, method: str, *arguments: Any) -> Any:
        """Call the method, and return its result."""


def contest(
    contestants: Mapping[str, Party],
    work: str,
    count: int,
    *arguments: Any,
    rounds: int,
    prepare: Callable[[Any, int], object] = lambda contestant, count: None,
    slices: int = SLICES,
) -> Result:
    """Run *work* on *count* items in *rounds* rounds for each contestant that supports it, after a warm-up slice.

    *prepare* adds the items that a slice consumes.
    """
    able = {name: remote for name, remote in contestants.items() if remote.call("can", work)}
    rates: dict[str, list[float]] = {name: [] for name in able}
    size = count // slices

    def turn(backwards: bool, seconds: dict[str, float]) -> None:
        for name in sorted(able, reverse=backwards):
            prepare(able[name], size)
            seconds[name] += able[name].call("time", work, size, *arguments)

    turn(False, dict.fromkeys(able, 0.0))
    for _ in range(rounds):
        seconds = dict.fromkeys(able, 0.0)
        for number in range(slices):
            turn(bool(number % 2), seconds)
        for name in able:
            rates[name].append(size * slices / seconds[name])
    return Result(rates)
