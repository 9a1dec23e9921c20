"""A data source that writes as eventkit's does, and dies once at a chosen step.

Steps are counted in each process that has a connection: one before each statement, one before the commit, and one
after it.  The fault ends the writing process, all of Spark with it, its connection, or the server of the
database.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from eventkit.operations import Operation, Plan, Rows, Scope
from eventkit.spark.options import WriteOptions
from eventkit.spark.source import EventkitSource
from eventkit.spark.writer import _FEW, BatchWriter, StreamWriter, _Writing

COMMIT, TASK = "commit", "task"
STEPS = {COMMIT: 6, TASK: 3}
"""The number of steps in each place: mark, lock, move, drop, commit and after; stage, commit and after."""


class Fault(NamedTuple):
    """The process to kill and the place, until the flag file exists."""

    place: str
    step: int
    victim: str
    flag: str

    def strike(self, url: str) -> None:
        """Strike, the first time."""
        try:
            os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        if self.victim == "connection":
            with psycopg.connect(url.partition("?")[0], autocommit=True) as driver:
                driver.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND state = 'idle in transaction'"
                )
            return
        if self.victim.isdecimal():
            # A way to stop a server of Postgres at once without leaving a process behind.
            os.kill(int(self.victim), signal.SIGQUIT)
            return
        if self.victim == "spark":
            # The session that all of its processes were started in.
            os.killpg(os.getsid(0), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class Steps:
    """A counter of steps."""

    def __init__(self, fault: Fault, url: str) -> None:
        self._fault = fault
        self._url = url
        self._left = fault.step

    def next(self) -> None:
        """Count one step, perhaps the last."""
        self._left -= 1
        if not self._left:
            self._fault.strike(self._url)


class Deadly:
    """An operation with steps between its statements."""

    writes = True
    scope = Scope.ALL

    def __init__(self, operation: Operation[Any], steps: Steps) -> None:
        self.operation = operation
        self.steps = steps

    def plan(self) -> Plan[Any]:
        """Run the plan of the operation."""
        plan = self.operation.plan()
        rows: Rows | None = None
        while True:
            try:
                statement = plan.send(rows)
            except StopIteration as done:
                self.steps.next()
                return done.value
            self.steps.next()
            rows = yield statement


class DeadlyConnection:
    """A connection whose operations may die."""

    def __init__(self, connection: Any, steps: Steps) -> None:
        self._connection = connection
        self._steps = steps

    def execute(self, operation: Operation[Any]) -> Any:
        """Return the answer, if the process survives."""
        answer = self._connection.execute(Deadly(operation, self._steps))
        self._steps.next()
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class DeadlyWriting(_Writing):
    """The part of both writers that uses such a connection."""

    def __init__(self, options: WriteOptions, schema: StructType, fault: Fault) -> None:
        super().__init__(options, schema)
        self._fault = fault

    def _connect(self, create: bool = True) -> Any:
        connection = super()._connect(create)
        if (self._fault.place == COMMIT) != create:
            return connection
        return DeadlyConnection(connection, Steps(self._fault, self._options.address.resolve()))


class DeadlySource(EventkitSource):
    """A source for ``format("deadly")``, with options ``place``, ``step``, ``victim`` and ``flag``."""

    @classmethod
    def name(cls) -> str:
        return "deadly"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options, fault = self._parted()
        writer = BatchWriter(options, schema, overwrite)
        writer._writing = DeadlyWriting(options, schema, fault)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options, fault = self._parted()
        writer = StreamWriter(options, schema, overwrite)
        writer._writing = DeadlyWriting(options, schema, fault)
        return writer

    def _parted(self) -> tuple[WriteOptions, Fault]:
        options = {name.lower(): value for name, value in self.options.items()}
        fault = Fault(options.pop("place"), int(options.pop("step")), options.pop("victim"), options.pop("flag"))
        return WriteOptions.parse(options), fault


def steps() -> Iterator[tuple[str, int]]:
    """Return every place and step."""
    return ((place, step) for place, last in STEPS.items() for step in range(1, last + 1))


def copy_files(spark: Any, folder: Path, checkpoint: Path, partitions: int, form: str, **options: Any) -> None:
    """Write the unwritten lines of the files in *folder*, a file at a time; return when all are written."""
    files = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder))
    # The size of a line decides whether rows wait in the database or travel with the message.
    lines = files.selectExpr("value AS payload").repartition(partitions)
    query = lines.writeStream.format(form).options(checkpointLocation=str(checkpoint), **options)
    query.trigger(availableNow=True).start().awaitTermination()


def fill(folder: Path, files: int, lines: int) -> list[str]:
    """Make the files and return their lines, in order, each of them distinct JSON."""
    folder.mkdir()
    written = []
    for number in range(files):
        # A third of every other file is too large to travel with a message, so its rows wait in the database.
        padding = " " * (2 * _FEW * 3 // lines if number % 2 else 0)
        texts = [f"[{number}, {line}{padding}]" for line in range(lines)]
        (folder / f"{number:04}.txt").write_text("\n".join(texts), "utf-8")
        written += texts
    return sorted(json_of(text) for text in written)


def json_of(text: str) -> str:
    """Return the text without insignificant whitespace."""
    return text.replace(" ", "")
