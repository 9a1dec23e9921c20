"""Tables in Markdown, and how numbers appear in them."""

from collections.abc import Callable, Iterable

from .rounds import Spread

NO_BAR = ("–", "–")
"""The cells of a bar and its verdict where there is no bar."""


class Table:
    """A table under a heading, with a note below it; *columns* are divided by ``|``."""

    def __init__(self, title: str, columns: str, note: str = "") -> None:
        self.title, self.columns, self.note = title, columns, note
        self.rows: list[list[str]] = []

    def add(self, *cells: str) -> None:
        """Add a row."""
        self.rows.append(list(cells))

    def markdown(self) -> str:
        """Return the section."""
        lines = [f"## {self.title}", "", _line([self.columns]), _line("---" for _ in self.columns.split("|"))]
        lines += [_line(row) for row in self.rows]
        if self.note:
            lines += ["", self.note]
        return "\n".join(lines) + "\n"


def thousands(number: float | None) -> str:
    """Return a rate with separators; a dash for None."""
    return "–" if number is None else f"{number:,.0f}"


def ratio(spread: Spread | None) -> str:
    """Return a ratio with its minimum and maximum."""
    return "–" if spread is None else f"**{spread.median:.2f}** ({spread.least:.2f}–{spread.most:.2f})"


def milliseconds(seconds: float) -> str:
    """Return a duration."""
    return f"{seconds * 1000:.3f} ms" if abs(seconds) < 0.01 else f"{seconds * 1000:.0f} ms"


def megabytes(number: float) -> str:
    """Return a size."""
    return f"{number:.0f} MB"


def percent(share: float) -> str:
    """Return a fraction as a percentage."""
    return f"{share:.2%}".replace("%", " %")


def verdict(reached: bool) -> str:
    """Return whether a bar is reached, as text."""
    return "yes" if reached else "**no**"


def at_least(value: float | None, bar: float | None, shown: Callable[[float], str] = "{:,}".format) -> tuple[str, str]:
    """Return the cells of a bar that *value* should reach."""
    return NO_BAR if value is None or bar is None else (f"≥ {shown(bar)}", verdict(value >= bar))


def at_most(value: float | None, bar: float | None, shown: Callable[[float], str] = "{:,}".format) -> tuple[str, str]:
    """Return the cells of a bar that *value* should not exceed."""
    return NO_BAR if value is None or bar is None else (f"≤ {shown(bar)}", verdict(value <= bar))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
