"""Tables in Markdown."""

from collections.abc import Iterable

from .rounds import Spread


class Table:
    """A table under a heading, with a note below it."""

    def __init__(self, title: str, columns: Iterable[str], note: str = "") -> None:
        self.title = title
        self.columns = list(columns)
        self.note = note
        self.rows: list[list[str]] = []

    def add(self, cells: Iterable[str]) -> None:
        """Add a row."""
        self.rows.append(list(cells))

    def markdown(self) -> str:
        """Return the section."""
        lines = [f"## {self.title}", "", _line(self.columns), _line("---" for _ in self.columns)]
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


def percent(share: float) -> str:
    """Return a fraction as a percentage."""
    return f"{share:.2%}".replace("%", " %")


def verdict(reached: bool) -> str:
    """Return whether a bar is reached, as text."""
    return "yes" if reached else "**no**"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
