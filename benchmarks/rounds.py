"""Contestants, and how they take turns.

In every round each contestant does the same work, in slices of some milliseconds that alternate with those of
the others, in an order that turns around.  A contestant's ratio to another is taken within a round, so what
the machine does besides hits both alike; the median over the rounds is the result, and the least and the most
show how far to trust it.
"""

import statistics
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Protocol

import msgspec

SLICES = 10
"""How many slices a round has."""


class Contestant:
    """Somebody who can do some of the work.  What a contestant has no method for, it cannot do."""

    def can(self, work: str) -> bool:
        """Whether there is such a method."""
        return hasattr(self, work)

    def time(self, work: str, *arguments: Any) -> float:
        """The seconds that the work took."""
        start = perf_counter()
        getattr(self, work)(*arguments)
        return perf_counter() - start

    def close(self) -> None:
        """Let go of everything."""


class Spread(msgspec.Struct, frozen=True):
    """A median, and the least and the most."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        """The spread of *values*."""
        return cls(statistics.median(values), min(values), max(values))


class Result(msgspec.Struct, frozen=True):
    """What became of a contest: each contestant's rates, a round each."""

    rates: dict[str, list[float]]

    def rate(self, name: str) -> float | None:
        """Items a second, in the median; None for somebody who could not take part."""
        return statistics.median(self.rates[name]) if name in self.rates else None

    def ratio(self, name: str, reference: str) -> Spread | None:
        """How fast *name* was, as a fraction of *reference*, by rounds."""
        if name not in self.rates or reference not in self.rates:
            return None
        pairs = zip(self.rates[name], self.rates[reference], strict=True)
        return Spread.of([mine / theirs for mine, theirs in pairs])


class Party(Protocol):
    """A contestant as seen from here: somewhere else, and called by the names of its methods."""

    def call(self, method: str, *arguments: Any) -> Any:
        """What the method returns."""


def contest(
    contestants: Mapping[str, Party],
    work: str,
    count: int,
    *arguments: Any,
    rounds: int,
    prepare: Callable[[Any, int], object] = lambda contestant, count: None,
    slices: int = SLICES,
) -> Result:
    """Let those who can do *work* on *count* items *rounds* times, after a slice that does not count.

    *prepare* makes ready what a slice of so many items will use up.
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
