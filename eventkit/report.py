"""Hourly sums as a page: one file of HTML with plots in SVG, which loads nothing and runs nothing."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import NamedTuple

from .operations.bulk import Sum
from .rollup import FAILURES, HOUR, Span, spans

WIDTH, HEIGHT = 640, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 8, 10, 24


class Series(NamedTuple):
    """A named series of values in order of time, None where there is none; *color* is a CSS class."""

    name: str
    color: str
    values: Sequence[float | None]


def columns(begins: Sequence[datetime], series: Sequence[Series], number: Callable[[float], str]) -> str:
    """Return stacked columns; *begins* are the times at which they begin."""
    totals = (sum(one.values[place] or 0 for one in series) for place in range(len(begins)))
    frame = _Frame(begins, max(totals, default=0), number)
    shapes = []
    for place in range(len(begins)):
        base = 0.0
        for one in series:
            if value := one.values[place] or 0:
                top, bottom = frame.y(base + value), frame.y(base)
                shapes.append(
                    f'<rect class="{one.color}" x="{frame.x(place):.1f}" y="{top:.1f}" '
                    f'width="{max(frame.step - 1, 0.8):.1f}" height="{bottom - top:.1f}"/>'
                )
            base += value
    return frame.drawn(shapes, series)


def lines(begins: Sequence[datetime], series: Sequence[Series], number: Callable[[float], str]) -> str:
    """Return lines, which break where a value is missing."""
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
    return frame.drawn(shapes, series)


class _Frame:
    """The axes of a plot, their labels and the tooltips, which lie above all shapes."""

    def __init__(self, begins: Sequence[datetime], most: float, number: Callable[[float], str]) -> None:
        self._begins = begins
        self._number = number
        self._top, self._tick = _round(most)
        self.step = (WIDTH - _LEFT - _RIGHT) / max(len(begins), 1)

    def x(self, place: int) -> float:
        return _LEFT + place * self.step

    def y(self, value: float) -> float:
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - value / self._top)

    def _tooltip(self, place: int, series: Sequence[Series]) -> str:
        values = [(one.name, one.values[place]) for one in series]
        texts = [f"{self._begins[place]:%Y-%m-%d %H:%M} UTC"]
        texts += [f"{name}: {self._number(value)}" for name, value in values if value is not None]
        return (
            f'<rect class="under" x="{self.x(place):.1f}" y="{_TOP}" width="{self.step:.1f}" '
            f'height="{HEIGHT - _TOP - _BOTTOM}"><title>{escape(chr(10).join(texts))}</title></rect>'
        )

    def drawn(self, shapes: Sequence[str], series: Sequence[Series]) -> str:
        label = escape(", ".join(one.name for one in series), quote=True)
        tooltips = (self._tooltip(place, series) for place in range(len(self._begins)))
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
            f"{self._rows()}{self._moments()}{''.join(shapes)}{''.join(tooltips)}</svg>"
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
    """Return the runs of values without a gap, with their positions."""
    runs: list[list[tuple[int, float]]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((place, value))
    return [run for run in runs if run]


def _round(most: float) -> tuple[float, float]:
    """Return the end of an axis that fits *most*, and its tick."""
    if most <= 0:
        return 1.0, 1.0
    power = 10.0 ** (len(f"{most:.0f}") - 1) if most >= 1 else 10.0 ** -(len(f"{1 / most:.0f}"))
    tick = next(size * power for size in (0.2, 0.25, 0.5, 1, 2, 2.5, 5, 10) if most <= size * power * 5)
    return tick * -(-most // tick), tick


_MOST = 180
"""The maximum number of columns in a plot; narrower columns cannot be read."""

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2129; --soft: #667085; --rule: #e4e7ec; --paper: #fff; --card: #f9fafb;
  --good: #2f7d5b; --bad: #c4402f; --one: #3566b0; --two: #8a5fb5; --three: #c77d17; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ec; --soft: #98a2b3; --rule: #2c313a; --paper: #14171c;
  --card: #1b1f26; --good: #4fb286; --bad: #ef7765; --one: #7aa7ee; --two: #b893e6; --three: #e6a54b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1360px; padding: 32px 24px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 19px; margin: 40px 0 8px; } h3 { font-size: 15px; margin: 0 0 4px; }
p { color: var(--soft); margin: 4px 0 16px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 10px; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th { color: var(--soft); font-weight: 500; } th:first-child, td:first-child { text-align: left; }
.scroll { overflow-x: auto; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 16px;
  margin: 12px 0; }
figure { margin: 0; padding: 14px 14px 8px; background: var(--card); border: 1px solid var(--rule);
  border-radius: 8px; }
figcaption { font-weight: 600; } .legend { font-weight: 400; color: var(--soft); font-size: 13px; margin-left: 10px; }
.legend i { display: inline-block; width: 9px; height: 9px; border-radius: 2px; margin: 0 4px 0 10px; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 11px; }
.grid { stroke: var(--rule); } .line { fill: none !important; stroke-width: 1.8; stroke-linejoin: round; }
.under { fill: transparent; } .under:hover { fill: var(--soft); opacity: .15; }
.good { fill: var(--good); stroke: var(--good); background: var(--good); } rect, circle { stroke: none !important; }
.bad { fill: var(--bad); stroke: var(--bad); background: var(--bad); }
.one { fill: var(--one); stroke: var(--one); background: var(--one); }
.two { fill: var(--two); stroke: var(--two); background: var(--two); }
.three { fill: var(--three); stroke: var(--three); background: var(--three); }
"""


def page(sums: Iterable[Sum], *, since: datetime, before: datetime, title: str = "eventkit") -> str:
    """Return the report on a period as HTML."""
    sums = list(sums)
    hours = _hours(sums)
    whole = spans(sums, hours=24 * 366 * 1000)
    by_name: dict[tuple[str, str], list[Span]] = {}
    for span in spans(sums, hours=hours):
        by_name.setdefault((span.subject, span.name), []).append(span)
    begins = _begins(sums, hours)
    queues = [span for span in whole if span.subject == "queue"]
    streams = [span for span in whole if span.subject == "stream"]
    seconds = max((before - since).total_seconds(), 1)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{since.astimezone(UTC):%Y-%m-%d %H:%M} to {before.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        f"; one column per {f'{hours} hours' if hours > 1 else 'hour'}</p>",
    ]
    if not sums:
        parts.append("<p>No rollup data for this period: run eventkit rollup, or choose another period.</p>")
    if queues:
        parts += [_queue_table(queues, seconds), *(_queue(one, by_name["queue", one.name], begins) for one in queues)]
    if streams:
        parts += ["<h2>Streams</h2>", _stream_table(streams, seconds), '<div class="plots">']
        parts += [_stream(one.name, by_name["stream", one.name], begins) for one in streams]
        parts.append("</div>")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _hours(sums: Sequence[Sum]) -> int:
    if not sums:
        return 1
    between = (max(one.hour for one in sums) - min(one.hour for one in sums)) // HOUR + 1
    return next((size for size in (1, 3, 6, 12, 24) if between <= size * _MOST), -(-between // _MOST // 24) * 24 + 24)


def _begins(sums: Sequence[Sum], hours: int) -> list[datetime]:
    if not sums:
        return []
    first, last, step = min(one.hour for one in sums), max(one.hour for one in sums), hours * HOUR
    return [datetime.fromtimestamp(hour / 1000, UTC) for hour in range(first // step * step, last + 1, step)]


def _queue_table(queues: Sequence[Span], seconds: float) -> str:
    heads = ["queue", "enqueued", "ended", "per minute", "failed", "failure rate", "dead"]
    heads += ["wait p50", "p95", "p99", "run p50", "p95", "p99"]
    rows = [
        [
            one.name,
            count(one.count("enqueued")),
            count(one.attempts),
            count(one.attempts / seconds * 60),
            count(one.count(*FAILURES)),
            share(one.failure_rate),
            count(one.count("dead", "expired")),
            *(duration(one.percentile(latency, part)) for latency in ("wait", "run") for part in (0.5, 0.95, 0.99)),
        ]
        for one in queues
    ]
    return "<h2>Queues</h2>" + _table(heads, rows)


def _stream_table(streams: Sequence[Span], seconds: float) -> str:
    rows = [
        [one.name, count(one.count("events")), count(one.count("events") / seconds * 60), size(one.count("bytes"))]
        for one in streams
    ]
    return _table(["stream", "events", "per minute", "payload"], rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _queue(whole: Span, found: Sequence[Span], begins: Sequence[datetime]) -> str:
    at = {span.begin: span for span in found}
    there = [at.get(begin) for begin in begins]
    ended = [
        Series("succeeded", "good", [one and one.count("succeeded") for one in there]),
        Series("failed", "bad", [one and one.count(*FAILURES) for one in there]),
    ]
    failing = [Series("failed", "bad", [one and one.failure_rate for one in there])]
    plots = [
        _figure("Finished attempts", ended, columns(begins, ended, count)),
        _figure("Failure rate", failing, lines(begins, failing, share)),
    ]
    for latency, caption in (("wait", "Wait, from due to started"), ("run", "Run, from started to ended")):
        series = [
            Series(f"p{part:.0f}", color, [one and one.percentile(latency, part / 100) for one in there])
            for part, color in ((50, "one"), (95, "two"), (99, "three"))
        ]
        plots.append(_figure(caption, series, lines(begins, series, duration)))
    return f'<h2>{escape(whole.name)}</h2><div class="plots">{"".join(plots)}</div>'


def _stream(name: str, found: Sequence[Span], begins: Sequence[datetime]) -> str:
    at = {span.begin: span for span in found}
    series = [Series("events", "one", [at[begin].count("events") if begin in at else None for begin in begins])]
    return _figure(name, series, columns(begins, series, count))


def _figure(caption: str, series: Sequence[Series], drawing: str) -> str:
    legend = "".join(f'<i class="{one.color}"></i>{escape(one.name)}' for one in series)
    return f'<figure><figcaption>{escape(caption)}<span class="legend">{legend}</span></figcaption>{drawing}</figure>'


def count(value: float | None) -> str:
    """Format a number."""
    if value is None:
        return "–"
    if value >= 10_000:
        return _scaled(value, (("M", 1e6), ("k", 1e3)))
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.2g}"


def share(value: float | None) -> str:
    """Format a share in percent."""
    return "–" if value is None else f"{value * 100:.3g} %"


def duration(milliseconds: float | None) -> str:
    """Format a latency with a suitable unit."""
    if milliseconds is None:
        return "–"
    return _scaled(milliseconds, (("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)))


def size(value: float) -> str:
    """Format a number of bytes with a suitable unit."""
    return _scaled(value, (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1)))


def _scaled(value: float, units: Sequence[tuple[str, float]]) -> str:
    """Format *value* in the largest unit that it reaches, or in the smallest."""
    unit, scale = next(((unit, scale) for unit, scale in units if value >= scale), units[-1])
    value /= scale
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
