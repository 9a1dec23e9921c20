"""Rows as Arrow tables, through ADBC, for reads of millions of rows."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar, cast

import adbc_driver_postgresql as adbc
import pyarrow as pa
from adbc_driver_manager import AdbcConnection, AdbcStatement
from psycopg.conninfo import make_conninfo
from psycopg.sql import Literal

from eventkit.operations import Operation

from .address import Address, parse
from .errors import translated
from .session import NoAnswer, options
from .statements import parameters, statements

T = TypeVar("T")

_BATCH = 2**20
"""Bytes per batch of ADBC; the wait for each batch has a limit."""


@contextmanager
def arrow(url: str) -> Iterator[Callable[[Operation[Any], Sequence[str]], Any]]:
    """Provide a function that executes an operation that reads, and returns the columns as a ``pyarrow.Table``."""
    address = parse(url)
    known = statements(address.schema)
    settings = {k: v for k, v in options(address, address.conninfo).items() if k != "prepare_threshold"}
    opened: list[Any] = []
    bounded = partial(_bounded, address, opened)
    conninfo = make_conninfo(address.conninfo, **settings)
    [connection] = bounded(lambda: [AdbcConnection(_database(conninfo))])
    opened.append(connection)
    try:
        executing = AdbcStatement(connection)
        opened.insert(0, executing)
        executing.set_options(**{adbc.StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(_BATCH)})

        def read() -> Iterator[Any]:
            reader = pa.RecordBatchReader.from_stream(executing.execute_query()[0])
            yield reader.schema
            yield from reader

        def fetch(operation: Operation[Any], columns: Sequence[str]) -> Any:
            statement = known[operation.heading]
            # ADBC is fast because it reads by COPY, which takes no parameters.
            values = [Literal(value).as_string() for value in parameters(statement, operation)]
            sql = re.sub(r"\$(\d+)", lambda place: values[int(place[1]) - 1], statement.sql)
            names = ", ".join(f'"{name}"' for name in columns)
            executing.set_sql_query(f"SELECT {names} FROM ({sql}) AS fetched")
            schema, *batches = bounded(read)
            return pa.Table.from_batches(batches, schema)

        yield fetch
    finally:
        for each in opened:
            each.close()


def _bounded(address: Address, opened: list[Any], call: Callable[[], Iterable[T]]) -> Iterator[T]:
    """Yield the items of *call*; raise `Disconnected` if the server does not answer or continue in time.

    libpq waits in C without a limit, and a cancel request needs an answer from the same peer.  So the call runs in a
    thread, which keeps *opened* when the wait ends early: closing it would crash the thread.
    """
    answers: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()
    held = tuple(opened)
    opened.clear()

    def run(*_held: Any) -> None:
        try:
            for answer in call():
                answers.put((answer, None))
            answers.put((None, StopIteration()))
        except BaseException as error:
            answers.put((None, error))

    Thread(target=run, args=held, name="eventkit arrow", daemon=True).start()
    seconds = address.answer_timeout + address.busy_timeout
    error: BaseException | None = None
    while error is None:
        try:
            answer, error = answers.get(timeout=seconds)
        except Empty:
            silence = NoAnswer(f"no answer within {seconds:.1f} s")
            raise translated(silence, address) or silence from silence
        if error is None:
            yield cast(T, answer)
    opened.extend(held)
    if not isinstance(error, StopIteration):
        raise error


@lru_cache(maxsize=8)
def _database(conninfo: str) -> Any:
    """Return ADBC's database; kept because it begins by reading the server's types, ten times the cost of a connect."""
    return adbc.connect(conninfo)
