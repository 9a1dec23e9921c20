"""Statements as they are typed, or come through a pipe: each ends with a semicolon at the end of a line."""

import sys
from collections.abc import Iterator
from contextlib import suppress


def statements() -> Iterator[str]:
    """One statement after the other, until there are no more, or somebody says exit."""
    if sys.stdin.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401  # input() has a history, and can be edited, where this is loaded
    gathered: list[str] = []
    while (line := _line("eventkit> " if not gathered else "      ... ")) is not None:
        if not gathered and line.strip().rstrip(";").lower() in ("exit", "quit", "\\q"):
            return
        if gathered or line.strip():
            gathered.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(gathered)
            gathered = []
    if gathered:
        yield "\n".join(gathered)


def _line(prompt: str) -> str | None:
    """The next line; None where there is no more."""
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None
    try:
        return input(prompt)
    except EOFError:
        print()
        return None
