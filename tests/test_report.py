"""The page with plots: self-contained, and correct at its ends."""

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from eventkit.operations.bulk import Sum
from eventkit.report import Series, columns, count, duration, lines, page, share, size
from eventkit.rollup import HOUR, spans

NOW = datetime(2026, 11, 19, 2, tzinfo=UTC)
LATEST = int(NOW.timestamp()) * 1000


class Tags(HTMLParser):
    """A parser of the tags and their attributes, which checks that each opened tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, Any]]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def made(hours: int) -> str:
    sums = []
    for place in range(hours):
        hour = LATEST - place * HOUR
        sums += [Sum("topic", "orders & <b>", hour, "events", 5), Sum("topic", "orders & <b>", hour, "bytes", 500)]
        for measure in ("enqueued", "succeeded", "retried", "wait:0", "run:17"):
            sums.append(Sum("queue", "e<mails", hour, measure, 3))
    return page(sums, since=NOW - timedelta(hours=hours), before=NOW, title="<shop>")


@pytest.mark.parametrize("hours", [0, 1, 30, 24 * 40, 24 * 400])
def test_a_page_stands_for_itself(hours: int) -> None:
    """It is well-formed, loads and runs nothing, and its plots are readable."""
    text = made(hours)
    tags = Tags(text)
    assert not {tag for tag, _ in tags.found} & {"script", "link", "img", "iframe", "a", "object"}
    assert not {name for _, said in tags.found for name in said if name in ("src", "href") or name.startswith("on")}
    assert "url(" not in text
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text
    assert "<b>" not in text
    assert "<mails" not in text
    assert [tag for tag, _ in tags.found].count("svg") == (5 if hours else 0)
    for tag, said in tags.found:
        if tag == "rect":
            assert 0 <= float(said["x"]) <= 640
            assert -0.1 <= float(said["y"]) <= float(said["y"]) + float(said["height"]) <= 180
    assert len(re.findall('class="under"', text)) <= 5 * 181


def test_plots_of_little() -> None:
    """No value, a single value, zeros and gaps have a plot as well."""
    for values in ([], [None], [0], [0.003], [None, 2, None, 3, 4, None]):
        begins = [NOW + timedelta(hours=place) for place in range(len(values))]
        for draw in (columns, lines):
            Tags(draw(begins, [Series("some", "one", values)], count))
    drawn = lines([NOW] * 6, [Series("some", "one", [None, 2, None, 3, 4, None])], count)
    assert (drawn.count("<circle"), drawn.count("<polyline")) == (1, 1)


def test_hours_add_up() -> None:
    """Longer spans are sums of hours."""
    sums = [Sum("queue", "q", LATEST - place * HOUR, "succeeded", 2) for place in range(48)]
    days = spans(sums, hours=24)
    assert [one.count("succeeded") for one in days] == [42, 48, 6]
    assert [one.rate for one in days][1] == 48 / 86400


def test_numbers_are_short_and_have_a_unit() -> None:
    """Numbers are short, with a unit."""
    assert [count(one) for one in (0, 0.25, 7, 1234, 12_345, 1_752_345, None)] == [
        "0",
        "0.25",
        "7",
        "1,234",
        "12.3 k",
        "1.75 M",
        "–",
    ]
    assert [duration(one) for one in (0.0, 12.34, 999.6, 61_000, 7_200_000)] == [
        "0 ms",
        "12.3 ms",
        "1,000 ms",
        "1.02 min",
        "2 h",
    ]
    assert (share(0.0312), share(None), size(1_500), size(12)) == ("3.12 %", "–", "1.5 kB", "12 B")
