"""How numbers, moments and the texts of others are shown; the filters of the templates."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from time import time
from typing import Any

from markupsafe import Markup

from ...operations.queue import MOST_COUNTED
from ...retry import Delays, Exponential, Fixed, Linear

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""What cannot be seen, or turns around what stands beside it."""

_STEPS = ((1, 0.001, "ms"), (60, 1, "s"), (3600, 60, "min"), (86_400, 3600, "h"), (float("inf"), 86_400, "d"))

_LENGTHS = {"lease", "keep_done", "keep_dead", "key_ttl"}
"""Settings that are seconds."""

_WIDTH, _HEIGHT = 120, 28


def visible(text: object) -> str:
    """A text in which nothing is hidden, and nothing changes the direction of what follows."""
    return _INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", str(text))


def number(value: float | None) -> str:
    """A number with its thousands apart; one at which counting ended says so."""
    if value is None:
        return "–"
    return f"{value:,}" + ("+" if value == MOST_COUNTED else "")


def amount(value: float) -> str:
    """A number that need not be whole, in as few digits as it takes."""
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def span(seconds: float | None) -> str:
    """A length of time, in the unit in which it is read best."""
    if seconds is None:
        return "–"
    for below, unit, name in _STEPS:
        if seconds < below:
            value = seconds / unit
            return f"{value:.1f} {name}" if value < 10 and unit > 1 else f"{value:.0f} {name}"
    raise AssertionError("the last step has no end")


def moment(milliseconds: int | None) -> Markup | str:
    """A moment, as how long ago it was or how soon it is, and exactly for whoever points at it."""
    if milliseconds is None:
        return "–"
    exact = datetime.fromtimestamp(milliseconds / 1000, UTC)
    away = time() - milliseconds / 1000
    told = "now" if abs(away) < 1 else f"{span(away)} ago" if away > 0 else f"in {span(-away)}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact.isoformat(), f"{exact:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03d} UTC", told
    )


def clock(milliseconds: int | None, precise: bool = True) -> Markup | str:
    """A moment as a clock shows it."""
    if milliseconds is None:
        return "–"
    exact = datetime.fromtimestamp(milliseconds / 1000, UTC)
    told = f"{exact:%Y-%m-%d %H:%M:%S}" + (f".{milliseconds % 1000:03d}" if precise else "")
    return Markup('<time datetime="{}">{}</time>').format(exact.isoformat(), told)


def last_line(text: str | None) -> str:
    """The line of an error that says most: the last of a traceback."""
    lines = (text or "").strip().splitlines()
    return lines[-1] if lines else ""


def setting(name: str, value: Any) -> str:
    """What something is configured to, in words."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if name in _LENGTHS:
        return span(value)
    if isinstance(value, Delays):
        return f"after {', '.join(map(span, value.seconds))}"
    if isinstance(value, Exponential | Linear | Fixed):
        return f"{type(value).__name__.lower()}, from {span(value.base)}, at most {span(value.cap)}"
    return amount(value) if isinstance(value, int | float) else str(value)


def spark(values: Sequence[float], label: str) -> Markup:
    """A line of what was, the latest at the right; nothing where there is too little for a line."""
    if len(values) < 2:
        return Markup('<span class="spark" aria-hidden="true"></span>')
    most = max(values) or 1
    step = _WIDTH / (len(values) - 1)
    points = [
        f"{place * step:.1f},{_HEIGHT - 2 - (_HEIGHT - 4) * value / most:.1f}" for place, value in enumerate(values)
    ]
    line = " ".join(points)
    return Markup(
        '<svg class="spark" viewBox="0 0 {w} {h}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        '<polygon points="0,{h} {line} {w},{h}"/><polyline points="{line}" vector-effect="non-scaling-stroke"/></svg>'
    ).format(w=_WIDTH, h=_HEIGHT, line=line, label=f"{label}: {values[0]:,} to {values[-1]:,}, at most {max(values):,}")


FILTERS = {
    "visible": visible,
    "number": number,
    "amount": amount,
    "span": span,
    "moment": moment,
    "clock": clock,
    "last_line": last_line,
}
