"""How far something long has come, on stderr where that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

Tell = Callable[[int, int], None]
"""Is told how far it is, in units of the total, and how many things that makes."""


@contextmanager
def progress(what: str, total: int | None, of: str) -> Iterator[Tell]:
    """Show a bar up to *total*, or only what was done so far where nobody knows how much there is."""
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

        def tell(so_far: int, count: int) -> None:
            elapsed = shown.tasks[task].elapsed or 0
            shown.update(task, completed=so_far, count=count, rate=round(count / elapsed) if elapsed > 0.2 else 0)

        yield tell


@contextmanager
def progress_of(what: str, of: str) -> Iterator[Tell]:
    """The same where only whoever does it knows the total: is told how many things are done, of how many."""
    with ExitStack() as shown:
        tell: Tell | None = None

        def told(done: int, total: int) -> None:
            nonlocal tell
            if tell is None:
                tell = shown.enter_context(progress(what, total or None, of))
            tell(done, done)

        yield told
