"""S3 Select's SQL over one file of CSV, JSON or Parquet, and the errors in a query, with S3's codes and their position.

`grammar` parses a query, and `translation` checks it and only then translates it into Spark's SQL, so that errors are
reported in milliseconds.  `query` runs it.
"""

__all__ = ["SelectError"]


class SelectError(ValueError):
    """A query that cannot be answered.

    ``code`` is S3 Select's name for the reason, as in docs/sql.md, and ``position`` the offset in the query, from 0, or
    None.
    """

    def __init__(self, code: str, reason: str, sql: str = "", position: int | None = None) -> None:
        super().__init__(code, reason, sql, position)
        self.code = code
        self.reason = reason
        self.sql = sql
        self.position = position

    def __str__(self) -> str:
        if self.position is None:
            return f"{self.code}: {self.reason}"
        before = self.sql[: self.position]
        line, column = before.count("\n") + 1, self.position - (before.rfind("\n") + 1) + 1
        return f"{self.code} at line {line}, column {column}: {self.reason}"
