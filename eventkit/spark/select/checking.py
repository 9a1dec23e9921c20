"""What a query may combine: aggregates with rows, and values of one kind with those of another."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields

from . import tree
from .files import File
from .functions import NUMBERS, Kind
from .refusing import SelectError


def structure(sql: str, query: tree.Query, file: File) -> None:
    """Refuse what is grammatical and yet no query of S3 Select."""
    if query.where is not None:
        for part in parts(query.where):
            if isinstance(part, tree.Aggregate):
                reason = f"{part.function.upper()} cannot stand in WHERE, which looks at one row: select it"
                raise SelectError("UnsupportedSqlStructure", reason, sql, part.at)
    columns = query.columns or ()
    aggregated = [any(isinstance(part, tree.Aggregate) for part in parts(column.expression)) for column in columns]
    for column in columns:
        if any(aggregated):
            _no_rows(sql, column.expression)
    if file.columns is not None and query.source.steps not in ((), (None,)):
        reason = f"{file.format} has no paths: read FROM S3Object, and name columns"
        raise SelectError("InvalidKeyPath", reason, sql, query.source.at)
    _no_name_twice(sql, columns)


def _no_rows(sql: str, expression: tree.Expression) -> None:
    """Refuse a column outside of the aggregates, and an aggregate within one."""
    if isinstance(expression, tree.Path):
        reason = "a column of each row beside an aggregate of all wants GROUP BY, which S3 Select does not have"
        raise SelectError("UnsupportedSqlStructure", reason, sql, expression.at)
    if isinstance(expression, tree.Aggregate):
        for part in parts(expression.argument) if expression.argument else ():
            if isinstance(part, tree.Aggregate):
                raise SelectError("UnsupportedSqlStructure", "an aggregate takes no aggregate", sql, part.at)
        return
    for child in _children(expression):
        _no_rows(sql, child)


def _no_name_twice(sql: str, columns: Sequence[tree.Column]) -> None:
    seen = set()
    for name, column in zip(output_names(columns), columns, strict=True):
        if name.lower() in seen:
            reason = f"two columns come out as {name}: give one of them another name with AS"
            raise SelectError("AmbiguousFieldName", reason, sql, column.expression.at)
        seen.add(name.lower())


def output_names(columns: Sequence[tree.Column]) -> list[str]:
    """What the columns are called that come out: by their alias, their field or their number."""
    return [column.alias or _field(column.expression) or f"_{number}" for number, column in enumerate(columns, 1)]


def _field(expression: tree.Expression) -> str | None:
    if isinstance(expression, tree.Path) and isinstance(last := expression.steps[-1], tree.Name):
        return last.text
    return None


def parts(expression: tree.Expression) -> Iterator[tree.Expression]:
    """The expression, and all that is in it."""
    yield expression
    for child in _children(expression):
        yield from parts(child)


def _children(expression: tree.Expression) -> Iterator[tree.Expression]:
    def within(value: object) -> Iterator[tree.Expression]:
        if isinstance(value, tree.Expression):
            yield value
        elif isinstance(value, tuple):
            for item in value:
                yield from within(item)

    for field in fields(expression):
        yield from within(getattr(expression, field.name))


def common(kinds: Sequence[Kind]) -> Kind | None:
    """The kind of a value that may be any of these; None where they do not go together."""
    known = set(kinds) - {Kind.NULL}
    if not known:
        return Kind.NULL
    if len(known) == 1:
        return known.pop()
    if known <= set(NUMBERS):
        return max(known, key=NUMBERS.index)
    return Kind.ANY if Kind.ANY in known and Kind.NESTED not in known else None


def comparable(left: Kind, right: Kind) -> bool:
    """Whether one may be compared with the other."""
    if Kind.NESTED in (left, right):
        return False
    return left is right or not {Kind.ANY, Kind.NULL}.isdisjoint((left, right)) or {left, right} <= set(NUMBERS)


def castable(kind: Kind, to: Kind) -> bool:
    """Whether some value of a kind can become one of the other."""
    if kind in (Kind.ANY, Kind.NULL, Kind.TEXT) or kind is to:
        return True
    if kind is Kind.NESTED or Kind.MOMENT in (kind, to):
        return kind is Kind.MOMENT and to is Kind.TEXT
    return True


_SYMBOLS = "y yy yyyy M MM MMM MMMM d dd a h hh H HH m mm s ss X XX XXX x xx xxx"
SYMBOLS = frozenset(_SYMBOLS.split())
"""Of a pattern of TO_STRING, beside fractions of a second, and what S3 Select has and Spark too."""


def wrong_symbol(pattern: str) -> str | None:
    """The part of a pattern of TO_STRING that means nothing."""
    for found in re.finditer(r"'(?:[^']|'')*'|([A-Za-z])\1*|'", pattern):
        text = found[0]
        if text == "'" or (found[1] and text not in SYMBOLS and not re.fullmatch("S{1,9}", text)):
            return text
    return None
