"""Rows as Arrow tables, through ADBC: for whoever reads millions of them."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from typing import Any

import adbc_driver_postgresql as adbc
import pyarrow as pa
from adbc_driver_manager import AdbcConnection, AdbcStatement
from psycopg.conninfo import make_conninfo
from psycopg.sql import Literal

from eventkit.operations import Operation

from .address import parse
from .session import options
from .statements import parameters, statements


@contextmanager
def arrow(url: str) -> Iterator[Callable[[Operation[Any], Sequence[str]], Any]]:
    """What executes an operation that reads; its answer is a ``pyarrow.Table`` with those columns of the statement."""
    address = parse(url)
    known = statements(address.schema)
    told = {name: value for name, value in options(address, address.conninfo).items() if name != "prepare_threshold"}
    database = _database(make_conninfo(address.conninfo, **told))
    with closing(AdbcConnection(database)) as connection, closing(AdbcStatement(connection)) as executing:

        def fetch(operation: Operation[Any], columns: Sequence[str]) -> Any:
            statement = known[type(operation)]
            # ADBC reads by COPY, which is what makes it fast, and COPY takes no parameters.
            values = [Literal(value).as_string() for value in parameters(statement, operation)]
            sql = re.sub(r"\$(\d+)", lambda place: values[int(place[1]) - 1], statement.sql)
            names = ", ".join(f'"{name}"' for name in columns)
            executing.set_sql_query(f"SELECT {names} FROM ({sql}) AS fetched")
            found, _ = executing.execute_query()
            return pa.RecordBatchReader.from_stream(found).read_all()

        yield fetch


@lru_cache(maxsize=8)
def _database(conninfo: str) -> Any:
    """No connection, but what ADBC asks a server for before the first one: its types, which takes ten times as long."""
    return adbc.connect(conninfo)
