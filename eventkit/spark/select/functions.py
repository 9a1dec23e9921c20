"""The kinds of values, and the functions of S3 Select: what each takes, what it gives, and how Spark says it."""

from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """What is known of a value before it is there; the word is that of messages."""

    INTEGER = "an INT"
    DECIMAL = "a DECIMAL"
    FLOAT = "a FLOAT"
    TEXT = "a STRING"
    BOOLEAN = "a BOOL"
    MOMENT = "a TIMESTAMP"
    NULL = "NULL"
    ANY = "an untyped value"
    """A field of CSV or JSON: it is what it is asked to be."""
    NESTED = "a list or a struct"


NUMBERS = (Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT)
"""From narrow to wide."""


_MINUTES = "'(T[0-9][0-9]:[0-9][0-9])(?=[-+Z]|\\u0024)', '\\u00241:00'"
MOMENT = f"trim(TRAILING 'T' FROM regexp_replace(CAST({{0}} AS STRING), {_MINUTES}))"
"""A text as Spark reads moments: a day of Ion ends in T, and its minutes need no seconds."""


class Function(NamedTuple):
    """``takes`` has one kind for each argument, the last ``spare`` of which may be left out."""

    takes: tuple[Kind, ...]
    gives: Kind
    sql: str
    spare: int = 0


FUNCTIONS = {
    "char_length": Function((Kind.TEXT,), Kind.INTEGER, "char_length({0})"),
    "character_length": Function((Kind.TEXT,), Kind.INTEGER, "char_length({0})"),
    "lower": Function((Kind.TEXT,), Kind.TEXT, "lower({0})"),
    "upper": Function((Kind.TEXT,), Kind.TEXT, "upper({0})"),
    # What lies before the first character counts towards the length, as in the standard; Spark counts from the end.
    "substring": Function(
        (Kind.TEXT, Kind.INTEGER, Kind.INTEGER),
        Kind.TEXT,
        "substring({0}, int(greatest({1}, 1)), int(greatest({2} - (greatest({1}, 1) - {1}), 0)))",
        spare=1,
    ),
    "trim": Function((Kind.TEXT, Kind.TEXT), Kind.TEXT, "trim({word} {1} FROM {0})", spare=1),
    "utcnow": Function((), Kind.MOMENT, "current_timestamp()"),
    "to_timestamp": Function((Kind.TEXT,), Kind.MOMENT, f"CAST({MOMENT} AS TIMESTAMP)"),
    "to_string": Function((Kind.MOMENT, Kind.TEXT), Kind.TEXT, "date_format({0}, {1})"),
    "date_add": Function((Kind.INTEGER, Kind.MOMENT), Kind.MOMENT, "timestampadd({word}, int({0}), {1})"),
    "date_diff": Function((Kind.MOMENT, Kind.MOMENT), Kind.INTEGER, "timestampdiff({word}, {0}, {1})"),
    "extract": Function((Kind.MOMENT,), Kind.INTEGER, "bigint(extract({word} FROM {0}))"),
}
"""Those that are called like any other; COALESCE and NULLIF take any kind, and are known to `checking` by name."""

SHORTER = {
    "substring": "substring({0}, int(greatest({1}, 1)))",
    "trim": "trim({word} FROM {0})",
}
"""How Spark says it where the spare argument is left out."""

DATED = ("date_add", "date_diff")
"""Functions whose first argument is a part of a date."""

CONDITIONAL = {"coalesce": (1, None), "nullif": (2, 2)}
"""How many arguments they take, at least and at most."""

AGGREGATES = ("avg", "count", "max", "min", "sum")

PARTS = ("year", "month", "day", "hour", "minute", "second")
"""Of a date."""

TYPES = {
    "bool": "boolean",
    "boolean": "boolean",
    "int": "integer",
    "integer": "integer",
    "float": "float",
    "decimal": "decimal",
    "numeric": "decimal",
    "string": "text",
    "timestamp": "moment",
}
"""The names that CAST takes, and those of `Kind` in lower case."""
