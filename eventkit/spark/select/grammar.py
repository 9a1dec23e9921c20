"""Reading a query: SELECT, FROM, WHERE, LIMIT, and nothing else."""

from . import tree
from .cursor import Cursor
from .expressions import expression, name, place
from .tokens import Sort

_BEYOND = {
    "group": "GROUP BY",
    "order": "ORDER BY",
    "having": "HAVING",
    "union": "UNION",
    "intersect": "INTERSECT",
    "except": "EXCEPT",
    "offset": "OFFSET",
    "fetch": "FETCH",
    "join": "JOIN",
    "inner": "JOIN",
    "left": "JOIN",
    "right": "JOIN",
    "full": "JOIN",
    "cross": "JOIN",
    "natural": "JOIN",
}
"""SQL that many know and S3 Select does not have."""


def parse(sql: str) -> tree.Query:
    """The query that *sql* is; what it is not is a `SelectError`."""
    cursor = Cursor(sql)
    _begin(cursor)
    columns = _columns(cursor)
    source = _source(cursor)
    where = None
    if cursor.word("where"):
        where = expression(cursor)
    limit = None
    if cursor.word("limit"):
        limit = cursor.need_integer("LIMIT")
    cursor.sign(";")
    if cursor.token.sort is not Sort.END:
        _beyond(cursor)
        cursor.refuse("ParseUnexpectedToken", f"{cursor.shown} stands where the query should end")
    return tree.Query(columns, source, where, limit)


def _begin(cursor: Cursor) -> None:
    if cursor.token.sort is Sort.END:
        cursor.refuse("ParseEmptySelect", "there is no query: write one, as in SELECT * FROM S3Object LIMIT 10")
    if cursor.word("select"):
        if cursor.is_word("distinct"):
            cursor.refuse("UnsupportedSqlStructure", "S3 Select has no DISTINCT: leave it out, and do it afterwards")
        cursor.word("all")
        return
    if cursor.is_word("with", "insert", "update", "values"):
        reason = f"S3 Select has no {cursor.shown}: a query is SELECT … FROM S3Object … WHERE … LIMIT …"
        cursor.refuse("UnsupportedSqlStructure", reason)
    cursor.refuse("ParseUnexpectedToken", f"a query begins with SELECT, not with {cursor.shown}")


def _columns(cursor: Cursor) -> tuple[tree.Column, ...] | None:
    if cursor.is_word("from") or cursor.token.sort is Sort.END:
        cursor.refuse("ParseEmptySelect", "nothing stands after SELECT: name columns, or write *")
    if cursor.sign("*"):
        if cursor.is_sign(","):
            reason = "* stands alone: leave it out, or the other columns"
            cursor.refuse("ParseAsteriskIsNotAloneInSelectList", reason)
        return None
    columns = [_column(cursor)]
    while cursor.sign(","):
        if star := cursor.sign("*"):
            reason = "* stands alone: leave it out, or the other columns"
            cursor.refuse("ParseAsteriskIsNotAloneInSelectList", reason, star.position)
        columns.append(_column(cursor))
    return tuple(columns)


def _column(cursor: Cursor) -> tree.Column:
    found = expression(cursor)
    if cursor.word("as"):
        if cursor.token.sort not in (Sort.NAME, Sort.QUOTED):
            cursor.refuse("ParseExpectedIdentForAlias", f"AS wants a name, not {cursor.shown}: quote it if it is one")
        return tree.Column(found, cursor.take().text)
    if cursor.token.sort in (Sort.NAME, Sort.QUOTED):
        return tree.Column(found, cursor.take().text)
    return tree.Column(found)


def _source(cursor: Cursor) -> tree.Source:
    if not cursor.word("from"):
        if cursor.token.sort is Sort.END:
            cursor.refuse("ParseSelectMissingFrom", "there is no FROM: a query reads FROM S3Object")
        cursor.refuse("ParseUnexpectedToken", f"{cursor.shown} stands where FROM or a comma should")
    at = cursor.token.position
    if cursor.is_sign("("):
        cursor.refuse("UnsupportedSqlStructure", "S3 Select has no query in a query: read FROM S3Object")
    table = name(cursor)
    if table.text.lower() != "s3object":
        cursor.refuse("InvalidDataSource", f"there is one table, S3Object, the file: not {table.text}", at)
    steps: list[tree.Step | None] = []
    while True:
        if cursor.sign("."):
            if cursor.is_sign("*"):
                cursor.refuse("ParseInvalidPathComponent", "a path has no .*: name a field, or write [*]")
            steps.append(name(cursor))
        elif cursor.sign("["):
            if cursor.sign("*"):
                cursor.need_sign("]", "[*")
                steps.append(None)
            else:
                steps.append(place(cursor))
        else:
            break
    alias = None
    if cursor.word("as") or cursor.token.sort in (Sort.NAME, Sort.QUOTED):
        if cursor.token.sort not in (Sort.NAME, Sort.QUOTED):
            cursor.refuse("ParseExpectedIdentForAlias", f"AS wants a name, not {cursor.shown}: quote it if it is one")
        alias = name(cursor)
    if cursor.is_sign(","):
        cursor.refuse("UnsupportedSqlStructure", "S3 Select reads one table: leave out what follows the comma")
    _beyond(cursor)
    return tree.Source(tuple(steps), alias, at=at)


def _beyond(cursor: Cursor) -> None:
    if cursor.token.sort is Sort.KEYWORD and cursor.token.text in _BEYOND:
        what = _BEYOND[cursor.token.text]
        reason = f"S3 Select has no {what}: select the rows with it, and do the rest in Spark or where you read them"
        cursor.refuse("UnsupportedSqlStructure", reason)
