"""Plots as SVG: columns that stand on each other, and lines.

Colours are classes, so that the page decides on them for light and for dark.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 640, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 8, 10, 24


class Series(NamedTuple):
    """Values in the order of time, None where there is none, under a name and in the colour of a class."""

    name: str
    color: str
    values: Sequence[float | None]


def columns(begins: Sequence[datetime], series: Sequence[Series], number: Callable[[float], str]) -> str:
    """Series that add up, as columns; *begins* says when each begins."""
    totals = [sum(one.values[place] or 0 for one in series) for place in range(len(begins))]
    frame = _Frame(begins, max(totals, default=0), number)
    shapes = []
    for place, begin in enumerate(begins):
        base = 0.0
        for one in series:
            value = one.values[place] or 0
            if value:
                top, bottom = frame.y(base + value), frame.y(base)
                shapes.append(
                    f'<rect class="{one.color}" x="{frame.x(place):.1f}" y="{top:.1f}" '
                    f'width="{max(frame.step - 1, 0.8):.1f}" height="{bottom - top:.1f}"/>'
                )
            base += value
        shapes.append(frame.hover(place, begin, [(one.name, one.values[place]) for one in series]))
    return frame.drawn("".join(shapes), series)


def lines(begins: Sequence[datetime], series: Sequence[Series], number: Callable[[float], str]) -> str:
    """Series beside each other, as lines that break where there is no value."""
    frame = _Frame(begins, max((value for one in series for value in one.values if value), default=0), number)
    shapes = []
    for one in series:
        for run in _runs(one.values):
            points = " ".join(f"{frame.x(place) + frame.step / 2:.1f},{frame.y(value):.1f}" for place, value in run)
            if len(run) == 1:
                x, _, y = points.partition(",")
                shapes.append(f'<circle class="{one.color}" cx="{x}" cy="{y}" r="2.5"/>')
            else:
                shapes.append(f'<polyline class="line {one.color}" points="{points}"/>')
    shapes += [
        frame.hover(place, begin, [(one.name, one.values[place]) for one in series])
        for place, begin in enumerate(begins)
    ]
    return frame.drawn("".join(shapes), series)


class _Frame:
    """Where things are: axes, their numbers, and what is said under the pointer."""

    def __init__(self, begins: Sequence[datetime], most: float, number: Callable[[float], str]) -> None:
        self._begins = begins
        self._number = number
        self._top, self._tick = _round(most)
        self.step = (WIDTH - _LEFT - _RIGHT) / max(len(begins), 1)

    def x(self, place: int) -> float:
        return _LEFT + place * self.step

    def y(self, value: float) -> float:
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - value / self._top)

    def hover(self, place: int, begin: datetime, values: Sequence[tuple[str, float | None]]) -> str:
        said = [f"{begin:%Y-%m-%d %H:%M} UTC"]
        said += [f"{name}: {self._number(value)}" for name, value in values if value is not None]
        return (
            f'<rect class="under" x="{self.x(place):.1f}" y="{_TOP}" width="{self.step:.1f}" '
            f'height="{HEIGHT - _TOP - _BOTTOM}"><title>{escape(chr(10).join(said))}</title></rect>'
        )

    def drawn(self, shapes: str, series: Sequence[Series]) -> str:
        label = escape(", ".join(one.name for one in series), quote=True)
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
            f"{self._rows()}{self._moments()}{shapes}</svg>"
        )

    def _rows(self) -> str:
        count = round(self._top / self._tick)
        return "".join(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{self.y(value):.1f}" y2="{self.y(value):.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{self.y(value) + 3:.1f}" text-anchor="end">{escape(self._number(value))}</text>'
            for value in (self._tick * row for row in range(count + 1))
        )

    def _moments(self) -> str:
        if not self._begins:
            return ""
        days = self._begins[-1] - self._begins[0] >= timedelta(hours=36)
        every = -(-len(self._begins) // 8)
        if days and len(self._begins) > 1:
            a_day = max(1, round(timedelta(days=1) / (self._begins[1] - self._begins[0])))
            every = -(-every // a_day) * a_day
        first = next((place for place, begin in enumerate(self._begins) if not days or begin.hour == 0), 0)
        return "".join(
            f'<text x="{self.x(place):.1f}" y="{HEIGHT - 8}">'
            f"{self._begins[place]:{'%d %b' if days else '%H:%M'}}</text>"
            for place in range(first, len(self._begins), every)
            if self.x(place) < WIDTH - 40
        )


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """The values that follow each other without a gap, with their places."""
    runs: list[list[tuple[int, float]]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((place, value))
    return [run for run in runs if run]


def _round(most: float) -> tuple[float, float]:
    """Where an axis ends that shows *most*, and the step of its numbers."""
    if most <= 0:
        return 1.0, 1.0
    power = 10.0 ** (len(f"{most:.0f}") - 1) if most >= 1 else 10.0 ** -(len(f"{1 / most:.0f}"))
    tick = next(size * power for size in (0.2, 0.25, 0.5, 1, 2, 2.5, 5, 10) if most <= size * power * 5)
    return tick * -(-most // tick), tick


def steps(first: datetime, last: datetime, hours: int) -> list[datetime]:
    """The moments from one up to another at which spans of so many hours begin."""
    size = timedelta(hours=hours)
    begin = datetime.fromtimestamp(first.timestamp() // size.total_seconds() * size.total_seconds(), UTC)
    return [begin + size * number for number in range(int((last - begin) / size) + 1)]
