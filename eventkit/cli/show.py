"""Printing, in the one place where that is done: as a table, as lines, or as JSON.

With ``--json``, a command prints one JSON document, an array where there may be several; and one that goes on for
ever prints an object a line.  Tables have lines and colours in a terminal, and none in a pipe.
"""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from .refusals import Refused

_WIDEST = 80
"""Characters of a cell in a terminal; a pipe gets them all."""

_ALARMING = {"dead": "red", "paused": "yellow", "lag": "yellow", "skipped": "yellow"}
"""Columns in which something, as opposed to nothing, is to be seen at once."""


def plain(value: Any) -> Any:
    """*value* as JSON has it: records as objects, moments under their public names, durations in seconds."""
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if names := getattr(value, "_fields", None):
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    names = getattr(value, "__struct_fields__", None)
    if names is None:
        return value
    fields: dict[str, Any] = {}
    for name in names:
        stem = name.removesuffix("_ms")
        public = next((public for public in (f"{stem}_at", stem) if hasattr(type(value), public)), stem)
        item = getattr(value, name)
        if stem == name:
            # JavaScript and jq round what is longer than 53 bits.
            fields[name] = str(item) if name == "token" else plain(item)
        elif hasattr(type(value), public):
            fields[public] = getattr(value, public)
        else:
            fields[stem] = None if item is None else item / 1000
    return fields


def document(value: Any) -> None:
    """One JSON document; in a terminal, indented."""
    import msgspec

    text = msgspec.json.encode(plain(value))
    print((msgspec.json.format(text, indent=2) if sys.stdout.isatty() else text).decode(), flush=True)


def line(value: Any) -> None:
    """One JSON object on a line of its own, at once."""
    import msgspec

    print(msgspec.json.encode(plain(value)).decode(), flush=True)


def listing(records: Iterable[Any], columns: Sequence[str], json: bool, nothing: str) -> None:
    """Several records: a table of some *columns*, or JSON of them all; *nothing* is said where there are none."""
    rows = [plain(record) for record in records]
    if json:
        document(rows)
    elif rows:
        table(columns, [[row.get(column) for column in columns] for row in rows])
    else:
        note(nothing)


def details(record: Any, json: bool) -> None:
    """One record: its fields below each other, or as JSON."""
    fields = plain(record)
    if json:
        document(fields)
        return
    width = max(map(len, fields))
    for name, value in fields.items():
        text = str(value) if isinstance(value, str) and "\n" in value else cell(value)
        print(f"{name:<{width}}  " + harmless(text).replace("\n", "\n" + " " * (width + 2)))


def answer(text: str, value: Any, json: bool) -> None:
    """What a command came to: a sentence, or JSON."""
    if json:
        document(value)
    else:
        print(text, flush=True)


def note(text: str) -> None:
    """Something beside the answer, which no pipe gets."""
    print(text, file=sys.stderr, flush=True)


def confirm(question: str, yes: bool) -> None:
    """Go on only if whoever sits there says so."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused(f"{question} Say --yes, because nobody is here to be asked")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("nothing was done")


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Rows under the names of their columns."""
    if sys.stdout.isatty():
        from rich.console import Console

        Console(highlight=False).print(rich_table(columns, rows))
        return
    texts = [list(columns), *([harmless(cell(value)).replace("\n", " ") for value in row] for row in rows)]
    widths = [max(len(row[place]) for row in texts) for place in range(len(columns))]
    right = _right(columns, rows)
    for row in texts:
        line = "  ".join(
            text.rjust(width) if place in right else text.ljust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        print(line.rstrip())


def rich_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
    """The same for a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    right = _right(columns, rows)
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, 1))
    for place, column in enumerate(columns):
        made.add_column(column, justify="right" if place in right else "left", overflow="fold", no_wrap=place in right)
    for row in rows:
        made.add_row(
            *(
                Text(shortened(harmless(cell(value))), style=_ALARMING.get(column, "") if value else "")
                for column, value in zip(columns, row, strict=True)
            )
        )
    return made


def _right(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> set[int]:
    """The columns of numbers."""
    return {
        place
        for place in range(len(columns))
        if any(isinstance(row[place], int | float) for row in rows)
        and all(row[place] is None or isinstance(row[place], int | float) for row in rows)
    }


def cell(value: Any) -> str:
    """*value* as somebody reads it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str | int):
        return str(value)
    import msgspec

    return msgspec.json.encode(value).decode()


def payload(value: Any) -> str:
    """A payload in a table: its JSON."""
    import msgspec

    return msgspec.json.encode(plain(value)).decode()


def shortened(text: str) -> str:
    """*text*, so that a table stays one."""
    first = text.splitlines()[0] if text else ""
    text = first if first == text else f"{first} …"
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def harmless(text: str) -> str:
    """*text* without what a terminal would obey."""
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def span(seconds: float | None) -> str:
    """A duration as somebody reads it: its two greatest units."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f}s"
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number:.0f}{unit}")
    return " ".join(parts[:2])


Part = tuple[str, Sequence[str], Sequence[Sequence[Any]]]
"""A table under a title, which may be empty."""


def parts(found: Sequence[Part]) -> None:
    """Several tables."""
    for number, (title, columns, rows) in enumerate(found):
        if title:
            print(f"{chr(10) if number else ''}{title}")
        table(columns, rows)


def watched(every: float, look: Callable[[], Sequence[Part]], nothing: str) -> None:
    """Show what *look* gives again and again, until somebody interrupts; in a terminal, always in the same place."""
    if not sys.stdout.isatty():
        while True:
            parts(look())
            time.sleep(every)
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    found = look()
    with (
        suppress(KeyboardInterrupt),
        Live(_picture(found, nothing), console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            time.sleep(every)
            found = look()
            live.update(_picture(found, nothing), refresh=True)
    parts(found)


def _picture(found: Sequence[Part], nothing: str) -> Any:
    from rich.console import Group
    from rich.text import Text

    shown: list[Any] = [Text(time.strftime("%H:%M:%S") + "   ctrl-c to leave", style="dim")]
    for title, columns, rows in found:
        shown += [Text(title, style="bold"), rich_table(columns, rows)] if title else [rich_table(columns, rows)]
    return Group(*shown) if found else Group(*shown, Text(nothing))


def interrupted() -> None:
    """Leave the line on which a terminal shows the ^C."""
    if sys.stderr.isatty():
        print(file=sys.stderr)


def heard(moment: datetime, heads: Sequence[str | None], value: Any) -> None:
    """What has just come, on a line: when, what leads it, and its payload."""
    clock = moment.astimezone().strftime("%H:%M:%S.%f")[:-3]
    leading = "  ".join(harmless(head) for head in heads if head is not None)
    text = payload(value)
    if sys.stdout.isatty():
        clock, leading = f"\x1b[2m{clock}\x1b[0m", f"\x1b[36m{leading}\x1b[0m"
    print(f"{clock}  {leading}  {text}", flush=True)
