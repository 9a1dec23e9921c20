"""The kinds of values, their conversions, comparisons and paths in Spark's SQL, and the functions of S3 Select."""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from .tokens import Name, Step


class Kind(Enum):
    """The static type of a value; the text is used in messages."""

    INTEGER = "an INT"
    DECIMAL = "a DECIMAL"
    FLOAT = "a FLOAT"
    TEXT = "a STRING"
    BOOLEAN = "a BOOL"
    MOMENT = "a TIMESTAMP"
    NULL = "NULL"
    ANY = "an untyped value"
    """A field of CSV or JSON: converted as its context requires."""
    NESTED = "a list or a struct"


NUMBERS = (Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT)
"""From narrow to wide."""

ORDERED = (*NUMBERS, Kind.TEXT, Kind.BOOLEAN, Kind.MOMENT)
"""The kinds of values that have an order, besides untyped ones."""

_EXACT = "DECIMAL(38, 18)"
"""The exact type for integers of 64 bits and for money."""

_SPARK = {
    Kind.INTEGER: "BIGINT",
    Kind.DECIMAL: _EXACT,
    Kind.FLOAT: "DOUBLE",
    Kind.TEXT: "STRING",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.MOMENT: "TIMESTAMP",
}

_MINUTES = "'(T[0-9][0-9]:[0-9][0-9])(?=[-+Z]|\\u0024)', '\\u00241:00'"
MOMENT = f"trim(TRAILING 'T' FROM regexp_replace(CAST({{0}} AS STRING), {_MINUTES}))"
"""A text as Spark parses timestamps: an Ion date ends in T, and its minutes need no seconds."""


class Function(NamedTuple):
    """A function, with a kind for each parameter; the last one is optional if there is *shorter* SQL without it."""

    takes: tuple[Kind, ...]
    gives: Kind
    sql: str
    shorter: str = ""


FUNCTIONS = {
    "char_length": Function((Kind.TEXT,), Kind.INTEGER, "char_length({0})"),
    "character_length": Function((Kind.TEXT,), Kind.INTEGER, "char_length({0})"),
    "lower": Function((Kind.TEXT,), Kind.TEXT, "lower({0})"),
    "upper": Function((Kind.TEXT,), Kind.TEXT, "upper({0})"),
    # Positions before the first character count towards the length, as in the standard; Spark counts from the end.
    "substring": Function(
        (Kind.TEXT, Kind.INTEGER, Kind.INTEGER),
        Kind.TEXT,
        "substring({0}, int(greatest({1}, 1)), int(greatest({2} - (greatest({1}, 1) - {1}), 0)))",
        shorter="substring({0}, int(greatest({1}, 1)))",
    ),
    "trim": Function((Kind.TEXT, Kind.TEXT), Kind.TEXT, "trim({word} {1} FROM {0})", "trim({word} FROM {0})"),
    "utcnow": Function((), Kind.MOMENT, "current_timestamp()"),
    "to_timestamp": Function((Kind.TEXT,), Kind.MOMENT, f"CAST({MOMENT} AS TIMESTAMP)"),
    "to_string": Function((Kind.MOMENT, Kind.TEXT), Kind.TEXT, "date_format({0}, {1})"),
    "date_add": Function((Kind.INTEGER, Kind.MOMENT), Kind.MOMENT, "timestampadd({word}, int({0}), {1})"),
    "date_diff": Function((Kind.MOMENT, Kind.MOMENT), Kind.INTEGER, "timestampdiff({word}, {0}, {1})"),
    "extract": Function((Kind.MOMENT,), Kind.INTEGER, "bigint(extract({word} FROM {0}))"),
}
"""The functions with ordinary calls; COALESCE and NULLIF take any kind, and `translation` handles them by name."""

PARTED = {"date_add": ",", "date_diff": ",", "extract": "from"}
"""Functions that begin with a part of a date, and the sign or word after it."""

COUNTS: dict[str, tuple[int, int | None]] = {
    **{name: (len(made.takes) - bool(made.shorter), len(made.takes)) for name, made in FUNCTIONS.items()},
    "coalesce": (1, None),
    "nullif": (2, 2),
}
"""The least and the most arguments of each function."""

AGGREGATES = ("avg", "count", "max", "min", "sum")

PARTS = ("year", "month", "day", "hour", "minute", "second")
"""The parts of a date."""

TYPES = {
    **dict.fromkeys(("bool", "boolean"), "boolean"),
    **dict.fromkeys(("int", "integer"), "integer"),
    "float": "float",
    **dict.fromkeys(("decimal", "numeric"), "decimal"),
    "string": "text",
    "timestamp": "moment",
}
"""The names of types in CAST, with their kinds."""

_SYMBOLS = "y yy yyyy M MM MMM MMMM d dd a h hh H HH m mm s ss X XX XXX x xx xxx"
SYMBOLS = frozenset(_SYMBOLS.split())
"""The symbols that both S3 Select and Spark accept in a pattern of TO_STRING, beside fractions of a second."""


def wrong_symbol(pattern: str) -> str | None:
    """Return the first invalid part of a pattern of TO_STRING, or None."""
    for found in re.finditer(r"'(?:[^']|'')*'|([A-Za-z])\1*|'", pattern):
        text = found[0]
        if text == "'" or (found[1] and text not in SYMBOLS and not re.fullmatch("S{1,9}", text)):
            return text
    return None


class Value(NamedTuple):
    """An expression in Spark's SQL, with its kind."""

    sql: str
    kind: Kind

    def strictly(self, kind: Kind) -> str:
        """Return the value converted to *kind*; an invalid one ends the query."""
        if self.kind is kind:
            return self.sql
        if kind is Kind.MOMENT and self.kind is Kind.ANY:
            return moment(self.sql)
        return f"CAST({self.sql} AS {_SPARK[kind]})"

    def leniently(self, kind: Kind) -> str:
        """Return the value converted to *kind*, or NULL."""
        if self.kind is not Kind.ANY:
            return self.strictly(kind)
        if kind is Kind.MOMENT:
            return f"try_{moment(self.sql)}"
        return f"try_cast({self.sql} AS {_SPARK[kind]})"

    def as_text(self) -> str:
        """Return the value converted to a text."""
        if self.kind is Kind.MOMENT:
            return f"date_format({self.sql}, 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSSXXX')"
        return self.strictly(Kind.TEXT)

    def as_number(self) -> "Value":
        """Return the value converted to a number."""
        if self.kind in (Kind.ANY, Kind.NULL):
            return Value(self.strictly(Kind.FLOAT), Kind.FLOAT)
        return self

    def as_any(self, variant: bool) -> str:
        """Return the value converted to a field of the file: a variant in JSON, a text in CSV."""
        if self.kind is Kind.ANY:
            return self.sql
        return f"CAST({self.sql} AS VARIANT)" if variant else self.as_text()


def moment(text: str) -> str:
    """Return the timestamp of a text."""
    return f"CAST({MOMENT.format(text)} AS TIMESTAMP)"


def of_ion(text: str) -> str:
    """Return an Ion timestamp in Spark's syntax; raise `ValueError` if there is no such moment."""
    date, _, time = text.partition("T")
    found = date + "-01" * (2 - date.count("-"))
    if time:
        seconds = "" if re.match(r"\d\d:\d\d:", time) else ":00"
        found += f"T{time[:5]}{seconds}{time[5:]}"
    datetime.fromisoformat(found)
    return found


def of_text(text: str) -> str:
    """Return a text quoted for Spark, with escapes for escape characters and variables."""
    # The JVM does not accept lone surrogates, and Spark replaces ${…} before it parses.
    return "'" + re.sub(r"['\\$\x00-\x1f\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text) + "'"


def comparable(left: Kind, right: Kind) -> bool:
    """Return whether a comparison of these kinds is allowed."""
    if Kind.NESTED in (left, right):
        return False
    return left is right or not {Kind.ANY, Kind.NULL}.isdisjoint((left, right)) or {left, right} <= set(NUMBERS)


def castable(kind: Kind, to: Kind) -> bool:
    """Return whether some values of a kind can be cast to another."""
    if kind in (Kind.ANY, Kind.NULL, Kind.TEXT) or kind is to:
        return True
    if kind is Kind.NESTED or Kind.MOMENT in (kind, to):
        return kind is Kind.MOMENT and to is Kind.TEXT
    return True


def unified(values: Sequence[Value], variant: bool) -> list[Value] | None:
    """Return *values* converted to one common kind, or None if there is none."""
    kinds = {value.kind for value in values} - {Kind.NULL}
    if Kind.ANY in kinds and Kind.NESTED not in kinds:
        return [Value(value.as_any(variant), Kind.ANY) for value in values]
    if len(kinds) > 1 and not kinds <= set(NUMBERS):
        return None
    kind = max(kinds, key=list(Kind).index, default=Kind.NULL)
    return [value if value.kind in (kind, Kind.NULL) else Value(value.strictly(kind), kind) for value in values]


def compare(operator: str, left: Value, right: Value) -> str:
    """Return the comparison of *left* and *right*.

    An untyped value is converted to the kind of the other one, a number, a time or a text; if it cannot be, the result
    is unknown.  Two untyped values are compared as numbers if both can be converted, and as texts otherwise.
    """
    kinds = (left.kind, right.kind)
    if Kind.NULL in kinds:
        return "CAST(NULL AS BOOLEAN)"
    if Kind.ANY not in kinds:
        return f"({left.sql} {operator} {right.sql})"
    # Numbers too large for an exact comparison are compared as floats.
    exactly = f"{_exact(left)} {operator} {_exact(right)}"
    roughly = f"{left.leniently(Kind.FLOAT)} {operator} {right.leniently(Kind.FLOAT)}"
    texts = f"{left.as_text()} {operator} {right.as_text()}"
    kind = right.kind if left.kind is Kind.ANY else left.kind
    if kind is Kind.ANY:
        return f"coalesce({exactly}, {roughly}, {texts})"
    if kind is Kind.TEXT:
        return f"({texts})"
    if kind in (Kind.INTEGER, Kind.DECIMAL):
        return f"coalesce({exactly}, {roughly})"
    return f"({left.leniently(kind)} {operator} {right.leniently(kind)})"


def _exact(value: Value) -> str:
    return f"try_cast({value.sql} AS {_EXACT})" if value.kind is Kind.ANY else value.sql


def equal_to_any(left: Value, members: Sequence[Value]) -> str:
    """Return the condition that *left* equals one of *members*."""
    kinds = {member.kind for member in members}
    if kinds == {Kind.TEXT}:
        return f"({left.as_text()} IN ({', '.join(member.sql for member in members)}))"
    if left.kind in NUMBERS and kinds <= set(NUMBERS):
        return f"({left.sql} IN ({', '.join(member.sql for member in members)}))"
    return "(" + " OR ".join(compare("=", left, member) for member in members) + ")"


def like(operand: str, pattern: str, known: str | None, escape: str | None) -> tuple[str, str | None]:
    """Return the condition that *operand* matches *pattern*, and the error in them; *known* is the pattern if constant.

    Spark always has an escape character, so the default is one that occurs in no pattern.
    """
    if escape is None:
        escape, known = next(char for char in map(chr, range(1, 0xD7FF)) if char not in (known or "")), None
    if len(escape) != 1 or escape in "%_":
        return "", f"ESCAPE requires one character that is neither % nor _, not {escape!r}"
    if known is not None:
        rest = known.replace(escape * 2, "").replace(f"{escape}%", "").replace(f"{escape}_", "")
        if escape in rest:
            return "", f"in the pattern, {escape} must precede %, _ or itself"
    return f"({operand} LIKE {pattern} ESCAPE {of_text(escape)})", None


def same(step: Step, known: str, quoted: bool = False) -> bool:
    """Return whether a step of a path names a field: in any case, unless one of them is *quoted*."""
    return isinstance(step, Name) and (
        step.text == known or (not step.quoted and not quoted and step.text.lower() == known.lower())
    )


def of_variant(record: str, steps: Sequence[Step]) -> str:
    """Return the value at *steps* in a variant: by exact name, or else, if the name is not quoted, in any case."""
    exact = _at(record, steps)
    if all(isinstance(step, int) or step.quoted for step in steps):
        return exact
    found = record
    for step in steps:
        if isinstance(step, int) or step.quoted:
            found = _at(found, [step])
        else:
            entries = f"map_entries(try_cast({found} AS MAP<STRING, VARIANT>))"
            found = f"try_element_at(filter({entries}, e -> lower(e.key) = {of_text(step.text.lower())}), 1).value"
    return f"coalesce({exact}, {found})"


def _at(record: str, steps: Sequence[Step]) -> str:
    path = "$"
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif '"' in step.text or "?" in step.text or not step.text:
            # Spark's paths cannot express these.
            record = record if path == "$" else f"variant_get({record}, {of_text(path)})"
            record = f"try_element_at(try_cast({record} AS MAP<STRING, VARIANT>), {of_text(step.text)})"
            path = "$"
        else:
            path += f"[{json.dumps(step.text, ensure_ascii=False)}]" if "\\" not in step.text else f"['{step.text}']"
    return record if path == "$" else f"variant_get({record}, {of_text(path)})"
