"""The default number of parts of a range."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import pytest

from eventkit.spark.offsets import Find, by_number, parts


def finds(numbers: Sequence[int], counted: list[int] | None = None) -> Find:
    """Return the answers of a database with these numbers of rows; *counted* gets how many it looked at."""

    def find(after: int, last: int, most: int) -> tuple[int, int]:
        begin = bisect_right(numbers, after)
        end = min(bisect_right(numbers, last), begin + most)
        if counted is not None:
            counted.append(end - begin)
        return (numbers[end - 1] if end - begin == most else last), end - begin

    return find


@pytest.fixture(autouse=True)
def four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set four processors on any machine."""
    monkeypatch.setattr("os.cpu_count", lambda: 4)


@pytest.mark.parametrize(
    ("total", "expected"), [(1, 1), (50_000, 1), (120_000, 3), (1_000_000, 4), (2_000_001, 5), (40_000_000, 80)]
)
def test_parts_for_each_processor(total: int, expected: int) -> None:
    """Each gets one, of a size between the cost of starting it and the wait for the slowest; few are not counted."""
    counted: list[int] = []
    found = parts(finds(range(8, 8 + total), counted), 7, 7 + total, total)
    sizes = [last - after for after, last in found]
    assert (len(found), sum(sizes), found[0][0], found[-1][1]) == (expected, total, 7, 7 + total)
    assert max(sizes) <= 1.1 * min(sizes)
    assert sum(counted) <= (10_000 * expected if expected > 1 else 0)


def test_events_that_are_far_apart_are_counted() -> None:
    """On Postgres, the numbers between are those of other topics."""
    far = 60_000_000
    assert parts(finds([1, far]), 0, far, far) == [(0, far)]
    few = range(0, 10_000 * far, far)
    assert parts(finds(few), 0, few[-1], few[-1]) == [(0, few[-1])]
    sparse = range(1_000, 200_000_001, 1_000)
    found = parts(finds(sparse), 0, sparse[-1], sparse[-1])
    assert [finds(sparse)(*part, 2**62)[1] for part in found] == [50_000] * 4
    crowds = [*range(1, 100_001), *range(far, far + 100_000)]
    found = parts(finds(crowds), 0, crowds[-1], crowds[-1])
    assert (len(found), found[0][0], found[-1][1]) == (3, 0, crowds[-1])
    assert all(before[1] == after[0] for before, after in pairwise(found))


def test_parts_of_a_size() -> None:
    """The last one has the rest, and all later events."""
    assert by_number(finds([10, 20, 30, 40, 50]), 5, 60, 2) == [(5, 20), (20, 40), (40, 60)]
