"""Limits that all processes share: K2."""

import time
from collections.abc import Callable
from typing import Any

import pytest

import eventkit
from eventkit import EventKit
from eventkit.testing import advance

from .clauses import proves
from .processes import spawn
from .threads import PATIENCE, database_ms, line_up

CENTURY = 100 * 365 * 86_400
"""A window that does not end during a test: the present one began in 1970."""


def _hammer(url: str, calls: int) -> tuple[int, int, int]:
    """Acquire from a window, a bucket that does not refill and many windows; return the successes of each kind."""
    with eventkit.connect(url) as kit:
        line_up(kit, 4)
        return (
            sum(kit.limit("w", count=50, per=CENTURY).acquire() for _ in range(calls)),
            sum(kit.limit("b", rate=1e-6, burst=40).acquire() for _ in range(calls)),
            # The fastest process writes and the others are refused until they catch up, so they race at every window.
            sum(kit.limit(f"w {number // 2}", count=1, per=CENTURY).acquire() for number in range(20 * calls)),
        )


def _hammer_for(url: str, seconds: float) -> int:
    """Acquire from a window without a pause; return the number of successes."""
    with eventkit.connect(url) as kit:
        line_up(kit, 4)
        counted, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            counted += kit.limit("w", count=5, per=0.5).acquire()
        return counted


@proves("K2")
def test_what_is_refused_does_not_count(kit: EventKit) -> None:
    """A raised limit therefore admits the difference at once."""
    assert kit.limit("w", count=1, per=CENTURY).acquire()
    assert [kit.limit("w", count=1, per=CENTURY).acquire() for _ in range(5)] == [False] * 5
    assert [kit.limit("w", count=3, per=CENTURY).acquire() for _ in range(3)] == [True, True, False]
    assert kit.limit("b", rate=1e-6, burst=1).acquire()
    assert [kit.limit("b", rate=1e-6, burst=1).acquire() for _ in range(5)] == [False] * 5
    advance(kit, 1_000_000)
    assert kit.limit("b", rate=1e-6, burst=1).acquire()


@proves("K2")
def test_windows_follow_the_databases_clock(kit: EventKit) -> None:
    """A window begins between the last refusal and the next success."""
    for _ in range(3):
        asked = [database_ms(kit)]
        while kit.limit("w", count=2, per=0.5).acquire():
            asked = [database_ms(kit)]
        while len(asked) < 2 or not kit.limit("w", count=2, per=0.5).acquire():
            asked.append(database_ms(kit))
        assert database_ms(kit) // 500 > asked[-2] // 500


@proves("K2", "G10")
def test_names_and_windows_are_independent(kit: EventKit) -> None:
    calls: list[Callable[[], bool]] = [
        lambda: kit.limit("x", count=1, per=CENTURY).acquire(),
        lambda: kit.limit("X", count=1, per=CENTURY).acquire(),
        lambda: kit.limit("x", count=1, per=CENTURY - 1).acquire(),
        lambda: kit.limit("x", rate=1e-6).acquire(),
        lambda: kit.limit("🐘: ann's", rate=1e-6).acquire(),
    ]
    for call in calls:
        assert [call(), call()] == [True, False]
    for name in ("", "x" * 256, "a\nb"):
        with pytest.raises(ValueError, match="name of a limit"):
            kit.limit(name, count=1, per=1).acquire()
        with pytest.raises(ValueError, match="name of a limit"):
            kit.limit(name, rate=1).acquire()


@proves("K2")
def test_a_shared_bucket_holds_the_burst_and_fills_by_the_rate(kit: EventKit, connect: Any, url: str) -> None:
    other = connect(url)
    for expected in (3, 1, 2, 3):
        assert [kit.limit("b", rate=0.0001, burst=3).acquire() for _ in range(expected)] == [True] * expected
        assert other.limit("b", rate=0.0001, burst=3).acquire() is False
        advance(kit, {3: 10_000, 1: 20_000, 2: 10_000_000}[expected])
    assert [other.limit("c", rate=0.0001, burst=2.5).acquire() for _ in range(3)] == [True, True, False]
    # The rest of the old bucket counts.
    advance(kit, 5_000)
    assert [other.limit("c", rate=0.0001, burst=2.5).acquire() for _ in range(2)] == [True, False]


@proves("K2")
def test_a_bucket_of_a_default_depth_holds_a_second(kit: EventKit) -> None:
    """It holds at least one token."""
    assert [kit.limit("slow", rate=1e-6).acquire() for _ in range(2)] == [True, False]
    started = time.monotonic()
    taken = sum(kit.limit("fast", rate=50).acquire() for _ in range(200))
    assert 50 <= taken <= 50 + 50 * (time.monotonic() - started) + 1


@proves("K2")
def test_four_processes_together_stay_within_limits(kit: EventKit, url: str) -> None:
    racers = [spawn(_hammer, url, 40) for _ in range(4)]
    answers = [racer.result() for racer in racers]
    assert [sum(yes) for yes in zip(*answers, strict=True)] == [50, 40, 400]


@proves("K2")
def test_no_window_is_overfull(kit: EventKit, url: str) -> None:
    """Four processes acquire without a pause; each window admits its number and no more."""
    before = database_ms(kit) // 500
    racers = [spawn(_hammer_for, url, 2.2) for _ in range(4)]
    counted = sum(racer.result() for racer in racers)
    windows = database_ms(kit) // 500 - before + 1
    assert 5 * 4 <= counted <= 5 * min(windows, PATIENCE)


@proves("K2")
def test_what_is_not_positive_is_an_error(kit: EventKit) -> None:
    calls: dict[str, Any] = {
        "count": lambda value: kit.limit("w", count=value, per=60).acquire(),
        "per": lambda value: kit.limit("w", count=1, per=value).acquire(),
        "rate": lambda value: kit.limit("b", rate=value).acquire(),
        "burst": lambda value: kit.limit("b", rate=1, burst=value).acquire(),
    }
    for what, call in calls.items():
        for value in (0, -1):
            with pytest.raises(ValueError, match=what):
                call(value)
        with pytest.raises(TypeError, match=what):
            call("1")
    for wrong in ("", "count", "per", "burst", "count per rate", "per rate"):
        with pytest.raises(TypeError, match="pass count= and per=, or rate="):
            kit.limit("w", **dict.fromkeys(wrong.split(), 1))
    with pytest.raises(ValueError, match="burst is at least 1"):
        kit.limit("b", rate=1, burst=0.5).acquire()
    for rate in (5e-324, 1e300):  # Values beyond the range of the databases' arithmetic.
        with pytest.raises(ValueError, match="rate"):
            kit.limit("b", rate=rate).acquire()
    for rate in (1e-9, 1e12):
        for _ in range(3):
            kit.limit(f"b {rate}", rate=rate, burst=1e12).acquire()
    assert kit.limit("w", count=1, per=CENTURY).acquire()
    assert kit.limit("b", rate=1e-6).acquire()
