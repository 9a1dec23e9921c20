"""Rows as Arrow tables, through ADBC: for whoever reads millions of them.

ADBC brings an SQLite library of its own.  So it is one more that must not meet another on the same file in the same
process; where a kit has the file open, it is refused here, and where it reads, a kit is.
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
"""Rows in an Arrow batch of ADBC's.  It guesses the types of columns by the first one, so a table should be one."""


@contextmanager
def arrow(url: str) -> Iterator[Callable[[Operation[Any], Sequence[str]], Any]]:
    """What executes an operation that reads; its answer is a ``pyarrow.Table`` with those columns of the statement."""
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
            statement = STATEMENTS[type(operation)]
            names = ", ".join(f'"{name}"' for name in columns)
            cursor.execute(f"SELECT {names} FROM ({statement.sql})", bound(statement, operation))
            return cursor.fetch_arrow_table()

        yield fetch
