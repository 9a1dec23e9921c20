"""An outbox reports its deliveries of the last minute."""

import time

import pytest

from eventkit.outbox import Tally


def test_a_tally_counts_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts deliveries and failures and averages the latency of the last minute; older ones are forgotten."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    tally = Tally()
    assert tally.numbers() == (0, 0, None)
    tally.count(True, 10)
    tally.count(True, 20)
    tally.count(False, 1000)
    assert tally.numbers() == (2, 1, 15)
    now += 59
    tally.count(True, 60)
    assert tally.numbers() == (3, 1, 30)
    now += 1
    assert tally.numbers() == (1, 0, 60)
    now += 60
    assert tally.numbers() == (0, 0, None)
    tally.count(False, 1)
    assert tally.numbers() == (0, 1, None)


def test_a_tally_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps one entry for each second of a minute, for any number of deliveries."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    tally = Tally()
    for n in range(10_000):
        now = n / 10
        tally.count(True, 1)
    assert tally.numbers() == (600, 0, 1)
    assert len(tally._seconds) == 60
