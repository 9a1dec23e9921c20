"""Calls of the SQL functions, through a plain driver or a SQLAlchemy session."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .orders import opened

WAYS = ("driver", "session")


class Caller:
    """A connection that calls SQL functions; `call` returns the JSON answer as Python values."""

    def __init__(self, way: str, prefix: str, run: Callable[[str], Any], engine: Any) -> None:
        self.prefix = prefix
        self._way = way
        self._run = run
        self._engine = engine
        self._session: Any = None

    def call(self, name: str, *arguments: Any) -> Any:
        """Return the answer of the function, called in the open transaction or in one of its own."""
        values = ", ".join(map(_literal, arguments))
        text = self.ask(f"SELECT CAST({self.prefix}eventkit_{name}({values}) AS text)")
        return None if text is None else json.loads(text)

    def ask(self, sql: str) -> Any:
        """Return the first value of the first row of *sql*."""
        if self._way == "driver":
            return self._run(sql)
        if self._session is not None:
            return self._session.connection().exec_driver_sql(sql).scalar()
        with opened(self._engine, "Session") as session:
            answer = session.connection().exec_driver_sql(sql).scalar()
            session.commit()
            return answer

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[None]:
        """Run the calls of the body in one transaction."""
        if self._way == "driver":
            self._run("BEGIN")
            yield
            self._run("COMMIT" if commit else "ROLLBACK")
            return
        with opened(self._engine, "Session") as session:
            self._session = session
            yield
            self._session = None
            session.commit() if commit else session.rollback()


def fields(record: Any) -> dict[str, Any]:
    """Return the fields of a record as JSON represents them."""
    return {name: getattr(record, name) for name in record.__struct_fields__}


def _literal(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).upper().replace("NONE", "NULL")
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)
