"""What is refused is told in one line."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import cloudpickle

from ..errors import EventkitError


class Travelling:
    """An object that Spark sends to its workers; where a package is missing there, the error has the command for it."""

    def __reduce__(self) -> Any:
        # Not importable, so that it is sent as code, and runs where this package is not installed.
        def arrive(sent: bytes) -> Any:
            import pickle
            import platform

            try:
                made, state = pickle.loads(sent)
            except ModuleNotFoundError as error:
                raise ModuleNotFoundError(
                    f"{error.name} is not installed where Spark's worker runs on {platform.node()}: run "
                    f"pip install 'eventkit-db[spark]' there, with postgres among the extras for Postgres, or send an "
                    f"environment along",
                    name=error.name,
                ) from None
            arrived = object.__new__(made)
            arrived.__dict__.update(state)
            return arrived

        return arrive, (cloudpickle.dumps((type(self), vars(self))),)  # type: ignore[no-untyped-call]


@contextmanager
def plainly() -> Iterator[None]:
    """Have Spark tell an error of ours by its message, without the way there, which leads through Spark's own code.

    For functions that Spark calls, and those that iterate for it.  The process in which one of them fails does nothing
    else any more, so nobody else's errors are shortened.
    """
    try:
        yield
    except (ValueError, EventkitError):
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
