"""Errors of Spark and of the source, as messages for the user."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import EventkitError


class Travelling:
    """An object that Spark sends to its workers; if a package is missing there, the error names the pip command."""

    def __reduce__(self) -> Any:
        # Not importable, so that it is pickled as code, and runs where this package is not installed.
        def arrive(sent: bytes) -> Any:
            import pickle
            import platform

            try:
                made, state = pickle.loads(sent)
            except ModuleNotFoundError as error:
                raise ModuleNotFoundError(
                    f"{error.name} is not installed where Spark's worker runs on {platform.node()}: run "
                    f"pip install 'eventkit-db[spark]' there, with the extra postgres for Postgres, or ship an "
                    f"environment with the job",
                    name=error.name,
                ) from None
            arrived = object.__new__(made)
            arrived.__dict__.update(state)
            return arrived

        # Here, because the daemon of Spark's workers imports this package before PySpark is the installed one.
        from pyspark import cloudpickle

        return arrive, (cloudpickle.dumps((type(self), vars(self))),)  # type: ignore[no-untyped-call]


@contextmanager
def plainly() -> Iterator[None]:
    """Make Spark report an eventkit error by its message, without the traceback through Spark's own code.

    For functions that Spark calls, and those that iterate for it.  A process in which one of them fails does nothing
    else, so no other errors are shortened.
    """
    try:
        yield
    except (ValueError, EventkitError):
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_OURS = re.compile(r"^(?:[\w.]*\.)?(?:ValueError|EventkitError|[A-Z]\w+): (.+)$", re.MULTILINE)


def conditions(error: BaseException) -> list[str]:
    """Return Spark's error classes in *error*, outermost first."""
    return list(dict.fromkeys(_CONDITION.findall(str(error))))


def told(error: BaseException) -> str:
    """Return the reason why Spark has failed, in one line."""
    text = str(error)
    if found := re.search(r"\[INVALID_VARIANT_CAST\] (.{,300}?) Please use", text, re.DOTALL):
        return (
            f"{' '.join(found[1].split())} Write payload:total::double, try_cast(payload:total AS double) or "
            f"try_variant_get(payload, '$.total', 'double'), which are NULL for a value of another type"
        )
    if "PYTHON_DATA_SOURCE_ERROR" in text and (lines := _OURS.findall(text)):
        return str(lines[-1]).strip()
    if found := re.search(r"\[[A-Z][A-Z0-9_.]*\] (.+?)(?: SQLSTATE: \w+|\n==|\n\n|$)", text, re.DOTALL):
        text = found[1]
    text = re.split(r"\n\s*at |\nJVM stacktrace|\n== ", text)[0]
    return " ".join(text.split())[:500]


def is_sparks(error: BaseException) -> bool:
    """Return whether the error comes from Spark."""
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j")
