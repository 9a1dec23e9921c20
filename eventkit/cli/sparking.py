"""Starting Spark, in the one place where that is done, so that nothing is heard of it but answers."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from .refusals import Failed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session() -> "SparkSession":
    """A session that says nothing but answers."""
    import logging
    import warnings

    from eventkit.spark import starting

    # What it tells here, it raises as well.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    warnings.simplefilter("ignore", FutureWarning)
    with _aside() as log:
        try:
            return starting.session()
        except (FileNotFoundError, ModuleNotFoundError) as error:
            raise Failed(str(error)) from None
        except Exception as error:
            if type(error).__module__.startswith("pyspark"):
                log.seek(0)
                told = [line for line in log.read().splitlines() if line.strip()]
                raise Failed(f"Spark does not start: {told[-1] if told else error}") from error
            raise


@contextmanager
def _aside() -> Iterator[IO[str]]:
    """Have what is started meanwhile write elsewhere: Java says much before it can be told not to.

    It also ends later than this process, which nobody is to wait for who reads here.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    before = [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)
        try:
            yield log
        finally:
            for descriptor, own in zip((1, 2), before, strict=True):
                os.dup2(own, descriptor)
                os.close(own)
