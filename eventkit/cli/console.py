"""Printing: tables, lines, JSON, progress and logs."""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from typing import Any

from eventkit.logs import JSONLines, TextLines, escaped


class Refused(Exception):
    """A usage error, or missing input: exit code 2."""


class Failed(Exception):
    """The command failed, or its answer is negative: exit code 1."""


_WIDEST = 80
"""The maximum number of characters of a table cell in a terminal; pipes get all."""

_ALARMING = {"dead": "red", "paused": "yellow", "lag": "yellow", "skipped": "yellow"}
"""Columns whose values other than zero are coloured."""


def plain(value: Any) -> Any:
    """Convert *value* for JSON: records to objects, times under their public names, durations to seconds."""
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
            # JavaScript and jq round integers above 53 bits.
            fields[name] = str(item) if name == "token" else plain(item)
        elif hasattr(type(value), public):
            fields[public] = getattr(value, public)
        else:
            fields[stem] = None if item is None else item / 1000
    return fields


def document(value: Any) -> None:
    """Print one JSON document, indented in a terminal."""
    import msgspec

    text = msgspec.json.encode(plain(value))
    print((msgspec.json.format(text, indent=2) if sys.stdout.isatty() else text).decode(), flush=True)


def line(value: Any) -> None:
    """Print one JSON object on a line, and flush."""
    import msgspec

    print(msgspec.json.encode(plain(value)).decode(), flush=True)


def listing(records: Iterable[Any], columns: Sequence[str], json: bool, nothing: str) -> None:
    """Print records as a table of *columns*, or as JSON; *nothing* is the text if there are none."""
    rows = [plain(record) for record in records]
    if json:
        document(rows)
    elif rows:
        table(columns, [[row.get(column) for column in columns] for row in rows])
    else:
        note(nothing)


def details(record: Any, json: bool) -> None:
    """Print one record: its fields as lines, or as JSON."""
    fields = plain(record)
    if json:
        document(fields)
        return
    width = max(map(len, fields))
    for name, value in fields.items():
        text = str(value) if isinstance(value, str) and "\n" in value else cell(value)
        print(f"{name:<{width}}  " + harmless(text).replace("\n", "\n" + " " * (width + 2)))


def answer(text: str, value: Any, json: bool) -> None:
    """Print the result of a command: *text*, or *value* as JSON."""
    if json:
        document(value)
    else:
        print(text, flush=True)


def note(text: str) -> None:
    """Print a remark on stderr."""
    print(text, file=sys.stderr, flush=True)


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation, unless *yes*; raise `Refused` without it."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused(f"{question} Pass --yes to confirm")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("cancelled: nothing was changed")


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under the names of their columns."""
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
    """Return the table for a terminal."""
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
    """Return the positions of numeric columns."""
    return {
        place
        for place in range(len(columns))
        if any(isinstance(row[place], int | float) for row in rows)
        and all(row[place] is None or isinstance(row[place], int | float) for row in rows)
    }


def cell(value: Any) -> str:
    """Format *value* for a table cell."""
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
    """Format a payload as JSON for a table cell."""
    import msgspec

    return msgspec.json.encode(plain(value)).decode()


def shortened(text: str) -> str:
    """Shorten *text* to fit a table cell."""
    first = text.splitlines()[0] if text else ""
    text = first if first == text else f"{first} …"
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def harmless(text: str) -> str:
    """Escape control characters, which a terminal would interpret."""
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def span(seconds: float | None) -> str:
    """Format a duration with its two largest units."""
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
"""A title, which may be empty, and the columns and rows of its table."""


def parts(found: Sequence[Part]) -> None:
    """Print several tables."""
    for number, (title, columns, rows) in enumerate(found):
        if title:
            print(f"{chr(10) if number else ''}{title}")
        table(columns, rows)


def watched(every: float, snapshot: Callable[[], Sequence[Part]], nothing: str) -> None:
    """Refresh the tables of *snapshot* until interrupted; a terminal shows them in place."""
    if not sys.stdout.isatty():
        while True:
            parts(snapshot())
            time.sleep(every)
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    found = snapshot()
    with (
        suppress(KeyboardInterrupt),
        Live(_picture(found, nothing), console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            time.sleep(every)
            found = snapshot()
            live.update(_picture(found, nothing), refresh=True)
    parts(found)


def _picture(found: Sequence[Part], nothing: str) -> Any:
    from rich.console import Group
    from rich.text import Text

    shown: list[Any] = [Text(time.strftime("%H:%M:%S") + "   Ctrl-C to quit", style="dim")]
    for title, columns, rows in found:
        shown += [Text(title, style="bold"), rich_table(columns, rows)] if title else [rich_table(columns, rows)]
    return Group(*shown) if found else Group(*shown, Text(nothing))


def interrupted() -> None:
    """End the line on which a terminal shows ^C."""
    if sys.stderr.isatty():
        print(file=sys.stderr)


def received(moment: datetime, heads: Sequence[str | None], value: Any) -> None:
    """Print an event or notification on one line: time, *heads* and payload."""
    clock = moment.astimezone().strftime("%H:%M:%S.%f")[:-3]
    leading = "  ".join(harmless(head) for head in heads if head is not None)
    text = payload(value)
    if sys.stdout.isatty():
        clock, leading = f"\x1b[2m{clock}\x1b[0m", f"\x1b[36m{leading}\x1b[0m"
    print(f"{clock}  {leading}  {text}", flush=True)


Advance = Callable[[int, int], None]
"""Updates a progress bar to a position in units of its total, and a number of items."""


@contextmanager
def progress(what: str, total: int | None, of: str) -> Iterator[Advance]:
    """Show a progress bar up to *total*, or a spinner and a count if the total is unknown."""
    if not sys.stderr.isatty():
        yield lambda _so_far, _count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

    known = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn(compact=True)) if total else (SpinnerColumn(),)
    shown = Progress(
        TextColumn("{task.description}"),
        *known,
        TextColumn("{task.fields[count]:,} " + of + "  {task.fields[rate]:,}/s"),
        console=Console(stderr=True),
        transient=True,
    )
    with shown:
        task = shown.add_task(what, total=total, count=0, rate=0)

        def advance(so_far: int, count: int) -> None:
            elapsed = shown.tasks[task].elapsed or 0
            shown.update(task, completed=so_far, count=count, rate=round(count / elapsed) if elapsed > 0.2 else 0)

        yield advance


@contextmanager
def progress_of(what: str, of: str) -> Iterator[Advance]:
    """Show progress by items, where the first call of the `Advance` brings the total."""
    with ExitStack() as shown:
        advance: Advance | None = None

        def report(done: int, total: int) -> None:
            nonlocal advance
            if advance is None:
                advance = shown.enter_context(progress(what, total or None, of))
            advance(done, done)

        yield report


_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[1;31m"}


def start_logging(json: bool) -> None:
    """Configure logging for the command, the application and its libraries."""
    handler = logging.StreamHandler(sys.stdout if json else sys.stderr)
    if json:
        handler.setFormatter(JSONLines())
    elif sys.stderr.isatty():
        handler.setFormatter(_Colours())
    else:
        handler.setFormatter(TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # Alembic logs its plugins each time a connection loads it.
    logging.getLogger("alembic").setLevel(logging.WARNING)


class _Colours(TextLines):
    """A formatter for terminals, with colours by level."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        text = escaped(record.getMessage().rstrip())
        line = f"\x1b[2m{clock}\x1b[0m  {_COLOURS.get(record.levelno, '')}{text}\x1b[0m"
        if not record.name.startswith("eventkit"):
            line += f"  \x1b[2m{record.name}\x1b[0m"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line
