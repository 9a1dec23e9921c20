"""Into how many parts a range is divided, where nobody says."""

import pytest

from eventkit.spark.planning import by_offset, part_size


@pytest.mark.parametrize(
    ("total", "parts"), [(1, 1), (50_000, 1), (120_000, 3), (1_000_000, 4), (2_000_001, 5), (40_000_000, 80)]
)
def test_parts_for_each_processor(monkeypatch: pytest.MonkeyPatch, total: int, parts: int) -> None:
    """One each, but none so small that it is all beginning, nor so large that the others wait for it."""
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert len([*by_offset(7, 7 + total, part_size(total))]) == parts
