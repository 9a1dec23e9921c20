"""Rows as Arrow tables, through ADBC, for reads of millions of rows.

ADBC contains an SQLite library of its own, which must not share a file with another one in the same process.
`reserved` refuses it where a kit has the file open, and refuses a kit while it reads.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import adbc_driver_sqlite.dbapi as adbc
import msgspec

from eventkit.operations import Operation

from .address import parse
from .file import reserved
from .statements import STATEMENTS, bound

ROWS = 50_000
"""Rows in a batch of ADBC, which infers the types of columns from the first batch: large enough for a whole table."""


@contextmanager
def arrow(url: str) -> Iterator[Callable[[Operation[Any], Sequence[str]], Any]]:
    """Provide a function that executes an operation that reads, and returns the columns as a ``pyarrow.Table``."""
    address = parse(url)
    with (
        reserved(msgspec.structs.replace(address, library="adbc")),
        adbc.connect(f"file:{quote(address.path)}?mode=rw", autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(ROWS)})
        cursor.execute(f"PRAGMA busy_timeout = {round(address.busy_timeout * 1000)}")
        cursor.execute("PRAGMA query_only = 1")

        def fetch(operation: Operation[Any], columns: Sequence[str]) -> Any:
            statement = STATEMENTS[operation.heading]
            names = ", ".join(f'"{name}"' for name in columns)
            cursor.execute(f"SELECT {names} FROM ({statement.sql})", bound(statement, statement.values(operation)))
            return cursor.fetch_arrow_table()

        yield fetch
