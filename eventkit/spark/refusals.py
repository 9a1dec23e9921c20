"""What is refused is told in one line."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import EventkitError


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
