"""Output of commands: tables, lines, JSON, progress and logs.

A command returns a `Result`, or what is `Followed` or `Watched`, and ``show`` prints it, as text or as JSON.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from typing import IO, Any, NamedTuple, Protocol

import msgspec

from eventkit.logs import JSONLines, TextLines, escaped


class Refused(Exception):
    """A usage error, or missing input: exit code 2."""


class Failed(Exception):
    """The command failed, or its answer is negative: exit code 1."""


class Result(NamedTuple):
    """The result of a command: a value, which is JSON with ``--json``, or else what *text* prints."""

    value: Any
    text: Callable[[], object]

    def show(self, json: bool) -> None:
        """Print it."""
        if json:
            document(self.value)
        else:
            self.text()


def answer(text: str, value: Any) -> Result:
    """Return a sentence, which is *value* in JSON."""
    return Result(value, lambda: print(text, flush=True))


def details(record: Any) -> Result:
    """Return one record: a line for each field."""
    fields = plain(record)

    def text() -> None:
        width = max(map(len, fields))
        for name, value in fields.items():
            print(f"{name:<{width}}  " + harmless(cell(value)).replace("\n", "\n" + " " * (width + 2)))

    return Result(fields, text)


def listing(records: Iterable[Any], columns: Sequence[str], nothing: str) -> Result:
    """Return records: a table of *columns*, or the text *nothing* if there are none."""
    rows = plain(list(records))
    return Result(rows, lambda: Table.of(columns, rows).show() if rows else note(nothing))


def tables(value: Any, found: "Iterable[Table]", nothing: str) -> Result:
    """Return the tables that have rows, or the text *nothing* if there are none."""
    shown = [table for table in found if table.rows]
    return Result(value, lambda: show_all(shown) if shown else note(nothing))


class Followed(NamedTuple):
    """Events or notifications as they arrive, until interrupted: a line with the fields *heads* and the payload."""

    records: AbstractContextManager[Iterable[Any]]
    heads: Sequence[str]

    def show(self, json: bool) -> None:
        """Print them."""
        with until_interrupted(), self.records as records:
            for record in records:
                print(encoded(record) if json else self._line(record), flush=True)

    def _line(self, record: Any) -> str:
        clock = record.created_at.astimezone().strftime("%H:%M:%S.%f")[:-3]
        heads = (getattr(record, name) for name in self.heads)
        leading = "  ".join(harmless(str(head)) for head in heads if head is not None)
        if sys.stdout.isatty():
            clock, leading = f"\x1b[2m{clock}\x1b[0m", f"\x1b[36m{leading}\x1b[0m"
        return f"{clock}  {leading}  {encoded(record.payload)}"


class Watched(NamedTuple):
    """Statistics: shown once, or refreshed until interrupted if there is an interval *every*."""

    read: Callable[[], Any]
    tables: Callable[[Any], "Iterable[Table]"]
    nothing: str
    every: float | None

    def show(self, json: bool) -> None:
        """Print them; a terminal refreshes them in place."""
        with suppress(KeyboardInterrupt):
            if self.every is not None and sys.stdout.isatty() and not json:
                self._in_place(self.every)
            while self.every is not None:
                if json:
                    print(encoded({"at": time.time(), "found": self.read()}), flush=True)
                else:
                    show_all(self._found())
                time.sleep(self.every)
            found = self.read()
            tables(found, self.tables(found), self.nothing).show(json)

    def _in_place(self, every: float) -> None:
        from rich.console import Console
        from rich.live import Live

        found = self._found()
        try:
            with Live(self._picture(found), console=Console(highlight=False), screen=True, auto_refresh=False) as live:
                while True:
                    time.sleep(every)
                    found = self._found()
                    live.update(self._picture(found), refresh=True)
        except KeyboardInterrupt:
            show_all(found)
            raise

    def _found(self) -> "list[Table]":
        return [table for table in self.tables(self.read()) if table.rows]

    def _picture(self, found: "list[Table]") -> Any:
        from rich.console import Group
        from rich.text import Text

        shown: list[Any] = [Text(time.strftime("%H:%M:%S") + "   Ctrl-C to quit", style="dim")]
        for table in found:
            shown += [Text(table.title, style="bold"), table.rich()] if table.title else [table.rich()]
        return Group(*shown) if found else Group(*shown, Text(self.nothing))


_WIDEST = 80
"""The maximum number of characters of a table cell in a terminal; pipes get all."""

_ALARMING = {"dead": "red", "paused": "yellow", "lag": "yellow", "skipped": "yellow"}
"""Columns whose values other than zero are coloured."""

_CELLS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "payload": lambda row: encoded(row["payload"]),
    "oldest": lambda row: span(row["oldest_ready_age"]),
    "consumers": lambda row: len(row["consumers"]),
    "scopes": lambda row: " ".join(row["scopes"]),
}
"""Columns whose text differs from the value in JSON."""


class Table(NamedTuple):
    """Rows under the names of their columns."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    title: str = ""

    @classmethod
    def of(cls, columns: Sequence[str], records: Iterable[Mapping[str, Any]], title: str = "") -> "Table":
        """Return the table of these fields of the records."""
        rows = [[_CELLS[name](row) if name in _CELLS else row.get(name) for name in columns] for row in records]
        return cls(columns, rows, title)

    def show(self) -> None:
        """Print it: with lines and colours in a terminal, else aligned."""
        if sys.stdout.isatty():
            from rich.console import Console

            Console(highlight=False).print(self.rich())
            return
        texts = [[harmless(cell(value)).replace("\n", " ") for value in row] for row in (self.columns, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        right = self._right()
        for row in texts:
            padded = (
                text.rjust(width) if place in right else text.ljust(width)
                for place, (text, width) in enumerate(zip(row, widths, strict=True))
            )
            print("  ".join(padded).rstrip())

    def rich(self) -> Any:
        """Return the table for a terminal."""
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        right = self._right()
        made = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, 1))
        for place, column in enumerate(self.columns):
            number = place in right
            made.add_column(column, justify="right" if number else "left", overflow="fold", no_wrap=number)
        for row in self.rows:
            cells = zip(self.columns, row, strict=True)
            styles = [_ALARMING.get(column, "") if value else "" for column, value in cells]
            made.add_row(*map(Text, (_shortened(harmless(cell(value))) for value in row), styles))
        return made

    def _right(self) -> set[int]:
        """Return the positions of numeric columns."""
        kinds = [{type(value) for value in values} - {type(None)} for values in zip(*self.rows, strict=True)]
        return {place for place, kind in enumerate(kinds) if kind and kind <= {int, float, bool}}


def show_all(tables: Sequence[Table]) -> None:
    """Print several tables under their titles."""
    for number, table in enumerate(tables):
        if table.title:
            print(f"{chr(10) if number else ''}{table.title}")
        table.show()


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
        stem, item = name.removesuffix("_ms"), getattr(value, name)
        public = next((public for public in (f"{stem}_at", stem) if hasattr(type(value), public)), None)
        if name == stem:
            fields[name] = str(item) if name == "token" else plain(item)  # JavaScript rounds integers above 53 bits.
        elif public is not None:
            fields[public] = getattr(value, public)
        else:
            fields[stem] = None if item is None else item / 1000
    return fields


def encoded(value: Any) -> str:
    """Return *value* as JSON on one line."""
    return msgspec.json.encode(plain(value)).decode()


def document(value: Any) -> None:
    """Print one JSON document, indented in a terminal."""
    text = encoded(value)
    print(msgspec.json.format(text, indent=2) if sys.stdout.isatty() else text, flush=True)


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
    return str(value) if isinstance(value, str | int) else encoded(value)


def _shortened(text: str) -> str:
    first = text.splitlines()[0] if text else ""
    text = first if first == text else f"{first} …"
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def harmless(text: str) -> str:
    """Escape control characters, which a terminal would interpret."""
    return "\n".join(map(escaped, text.split("\n")))


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


@contextmanager
def until_interrupted() -> Iterator[None]:
    """End at an interrupt, and end the line on which a terminal shows ^C."""
    try:
        yield
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            print(file=sys.stderr)


class Advance(Protocol):
    """Updates a progress bar: units done, their total if known, and the number of items if they are not the units."""

    def __call__(self, done: int, total: int | None = None, items: int | None = None) -> None: ...


@contextmanager
def progress(what: str, of: str) -> Iterator[Advance]:
    """Show a progress bar in a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total=None, items=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[count]:,} " + of + "  {task.fields[rate]:,}/s"),
        console=Console(stderr=True),
        transient=True,
    )
    with shown:
        task = shown.add_task(what, total=None, count=0, rate=0)
        began = last = time.monotonic()

        def advance(done: int, total: int | None = None, items: int | None = None) -> None:
            nonlocal last
            now, count = time.monotonic(), done if items is None else items
            if now - last > 0.1:  # Callers report each row.
                last, rate = now, round(count / (now - began))
                shown.update(task, completed=done, total=total or None, count=count, rate=rate)

        yield advance


def rate(number: int, what: str, began: float) -> Result:
    """Return the number of items since *began*, and their rate."""
    seconds = time.monotonic() - began
    text = f"{number:,} {what} in {span(seconds)} ({number / seconds if seconds else 0:,.0f}/s)"
    return answer(text, {"number": number, "seconds": seconds})


_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[1;31m"}


def start_logging(json: bool, stream: IO[str]) -> None:
    """Configure logging for the command, the application and its libraries."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONLines() if json else _Colours() if stream.isatty() else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # Alembic logs its plugins each time a connection loads it.
    logging.getLogger("alembic").setLevel(logging.WARNING)


class _Colours(TextLines):
    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        text = escaped(record.getMessage().rstrip())
        line = f"\x1b[2m{clock}\x1b[0m  {_COLOURS.get(record.levelno, '')}{text}\x1b[0m"
        if not record.name.startswith("eventkit"):
            line += f"  \x1b[2m{record.name}\x1b[0m"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line
