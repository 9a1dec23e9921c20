"""How far a task says that it is.

It is a result with a name of its own beside the task's, so whoever looks needs nothing but the task's id.
"""

from typing import Any

import msgspec

KEPT = 86_400
"""Seconds for which it can be seen after the task has said it last."""


class Progress(msgspec.Struct, frozen=True):
    """How far a task is: a *fraction* from 0 to 1, and a *note*."""

    fraction: float
    note: str = ""


def saved_under(id: int) -> str:
    """The id of the result that is the progress of a task."""
    return f"eventkit:progress:{id}"


def plain(fraction: float, note: str) -> dict[str, Any]:
    """A progress as it is saved."""
    if isinstance(fraction, bool) or not isinstance(fraction, int | float):
        raise TypeError(f"progress is a fraction from 0 to 1, not {type(fraction).__name__}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"progress is a fraction from 0 to 1, not {fraction!r}")
    if not isinstance(note, str):
        raise TypeError(f"the note of a progress is text, not {type(note).__name__}")
    return {"fraction": fraction, "note": note}


def read(saved: Any) -> Progress | None:
    """The progress that was saved; None where none was."""
    return None if saved is None else msgspec.convert(saved, Progress)
