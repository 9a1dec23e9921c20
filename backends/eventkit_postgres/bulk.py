"""Rows as Arrow tables, through ADBC: for whoever reads millions of them."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
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
    with (
        adbc.connect(make_conninfo(address.conninfo, **told), autocommit=True) as connection,
        connection.cursor() as cursor,
    ):

        def fetch(operation: Operation[Any], columns: Sequence[str]) -> Any:
            statement = known[type(operation)]
            # ADBC reads by COPY, which is what makes it fast, and COPY takes no parameters.
            values = [Literal(value).as_string() for value in parameters(statement, operation)]
            sql = re.sub(r"\$(\d+)", lambda place: values[int(place[1]) - 1], statement.sql)
            names = ", ".join(f'"{name}"' for name in columns)
            cursor.execute(f"SELECT {names} FROM ({sql}) AS fetched")
            return cursor.fetch_arrow_table()

        yield fetch
