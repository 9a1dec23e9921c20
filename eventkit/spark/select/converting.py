"""Values of one kind as those of another, in Spark's SQL."""

import datetime
import re
from collections.abc import Sequence

from . import tree
from .checking import common
from .functions import MOMENT, Kind
from .naming import Value, of_text
from .refusing import SelectError

LONGEST = 200_000
"""Characters of an expression for Spark: each comparison of untyped values names them several times."""

EXACT = "DECIMAL(38, 18)"
"""Whole numbers of 64 bits, and money, without rounding."""

SPARK = {
    Kind.INTEGER: "BIGINT",
    Kind.DECIMAL: EXACT,
    Kind.FLOAT: "DOUBLE",
    Kind.TEXT: "STRING",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.MOMENT: "TIMESTAMP",
}


def literal(found: tree.Literal, sql: str) -> Value:
    """What stands in the query itself."""
    text = found.text
    match found.sort:
        case "null" | "missing":
            return Value("NULL", Kind.NULL)
        case "boolean":
            return Value(text.upper(), Kind.BOOLEAN)
        case "text":
            return Value(of_text(text), Kind.TEXT)
        case "moment":
            return Value(f"TIMESTAMP{of_text(_moment(found, sql))}", Kind.MOMENT)
        case "integer" if int(text[:20]) < 2**63 and len(text.lstrip("0")) < 20:
            return Value(f"{int(text)}L", Kind.INTEGER)
        case "integer" | "decimal" if len(text) <= 38:
            return Value(f"{text.rstrip('.')}BD", Kind.DECIMAL)
        case _:
            return Value(f"CAST('{text}' AS DOUBLE)", Kind.FLOAT)


def _moment(found: tree.Literal, sql: str) -> str:
    """A timestamp of Ion as Spark reads it."""
    date, _, time = found.text.partition("T")
    year, month, day = [*map(int, date.split("-")), 1, 1][:3] if "-" in date else (int(date), 1, 1)
    try:
        datetime.date(year, month, day)
        if time:
            whole, dot, rest = time.partition(".")
            zone = rest.lstrip("0123456789") if dot else ""
            datetime.time.fromisoformat(whole + zone)
    except ValueError as error:
        reason = f"{found.text} is no moment: {error}"
        raise SelectError("ValueParseFailure", reason, sql, found.at) from None
    seconds = "" if re.match(r"\d\d:\d\d:", time) else ":00"
    return f"{year:04}-{month:02}-{day:02}" + (f"T{time[:5]}{seconds}{time[5:]}" if time else "")


def strictly(value: Value, kind: Kind) -> str:
    """*value* as one of *kind*; what is none ends the query."""
    if value.kind is kind:
        return value.sql
    if kind is Kind.MOMENT and value.kind is Kind.ANY:
        return moment(value.sql)
    return f"CAST({value.sql} AS {SPARK[kind]})"


def leniently(value: Value, kind: Kind) -> str:
    """*value* as one of *kind*, or NULL."""
    if value.kind is not Kind.ANY:
        return strictly(value, kind)
    if kind is Kind.MOMENT:
        return f"try_{moment(value.sql)}"
    return f"try_cast({value.sql} AS {SPARK[kind]})"


def moment(text: str) -> str:
    """The moment that a text says."""
    return f"CAST({MOMENT.format(text)} AS TIMESTAMP)"


def as_text(value: Value) -> str:
    """*value* as a text."""
    if value.kind is Kind.TEXT:
        return value.sql
    if value.kind is Kind.MOMENT:
        return f"date_format({value.sql}, 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSSXXX')"
    return f"CAST({value.sql} AS STRING)"


def as_number(value: Value) -> Value:
    """*value* as what can be calculated with."""
    if value.kind in (Kind.ANY, Kind.NULL):
        return Value(strictly(value, Kind.FLOAT), Kind.FLOAT)
    return value


def as_any(value: Value, variant: bool) -> str:
    """*value* as a field of the file: a variant in JSON, a text in CSV."""
    if value.kind is Kind.ANY:
        return value.sql
    return f"CAST({value.sql} AS VARIANT)" if variant else as_text(value)


def unified(values: Sequence[Value], variant: bool) -> list[Value] | None:
    """*values* as those of one kind, or None where there is no such."""
    kind = common([value.kind for value in values])
    if kind is None:
        return None
    if kind is Kind.ANY:
        return [Value(as_any(value, variant), kind) for value in values]
    return [value if value.kind in (kind, Kind.NULL) else Value(strictly(value, kind), kind) for value in values]
