"""Comparisons, of which each side may be of a kind that shows only row by row."""

from collections.abc import Sequence

from .converting import EXACT, as_text, leniently
from .functions import NUMBERS, Kind
from .naming import Value, of_text

_UNKNOWN = "CAST(NULL AS BOOLEAN)"


def compare(operator: str, left: Value, right: Value) -> str:
    """*left* and *right* compared.

    An untyped value is what it is compared with: a number, a moment, a text; if it cannot be, the answer is unknown.
    Two untyped values are numbers if both can be, and texts otherwise.
    """
    kinds = (left.kind, right.kind)
    if Kind.NULL in kinds:
        return _UNKNOWN
    if Kind.ANY not in kinds:
        return f"({left.sql} {operator} {right.sql})"
    if kinds == (Kind.ANY, Kind.ANY):
        texts = f"{_text(left)} {operator} {_text(right)}"
        return f"coalesce({_exactly(operator, left, right)}, {_roughly(operator, left, right)}, {texts})"
    kind = right.kind if left.kind is Kind.ANY else left.kind
    if kind is Kind.TEXT:
        return f"({_text(left)} {operator} {_text(right)})"
    if kind is Kind.FLOAT:
        return f"({_roughly(operator, left, right)})"
    if kind in NUMBERS:
        # What is too large to be exact is compared as a float.
        return f"coalesce({_exactly(operator, left, right)}, {_roughly(operator, left, right)})"
    return f"({leniently(left, kind)} {operator} {leniently(right, kind)})"


def equal_to_any(left: Value, members: Sequence[Value]) -> str:
    """Whether *left* is one of *members*."""
    kinds = {member.kind for member in members}
    if kinds == {Kind.TEXT}:
        return f"({as_text(left)} IN ({', '.join(member.sql for member in members)}))"
    if left.kind in NUMBERS and kinds <= set(NUMBERS):
        return f"({left.sql} IN ({', '.join(member.sql for member in members)}))"
    return "(" + " OR ".join(compare("=", left, member) for member in members) + ")"


def like(operand: str, pattern: str, known: str | None, escape: str | None) -> tuple[str, str | None]:
    """Whether *operand* looks like *pattern*, and what is wrong with them; *known* is the pattern, if it is.

    Spark has always an escape, so without one it gets a character that no pattern has.
    """
    if escape is None:
        return f"({operand} LIKE {pattern} ESCAPE {of_text(_unused(known or ''))})", None
    if len(escape) != 1 or escape in "%_":
        return "", f"ESCAPE wants one character that is neither % nor _, not {escape!r}"
    if known is not None:
        rest = known.replace(escape * 2, "").replace(f"{escape}%", "").replace(f"{escape}_", "")
        if escape in rest:
            return "", f"in the pattern, {escape} has to stand before %, _ or itself"
    return f"({operand} LIKE {pattern} ESCAPE {of_text(escape)})", None


def _unused(pattern: str) -> str:
    return next(char for char in map(chr, range(1, 0xD7FF)) if char not in pattern)


def _text(value: Value) -> str:
    return as_text(value) if value.kind is Kind.ANY else value.sql


def _exactly(operator: str, left: Value, right: Value) -> str:
    return " ".join((_exact(left), operator, _exact(right)))


def _exact(value: Value) -> str:
    return f"try_cast({value.sql} AS {EXACT})" if value.kind is Kind.ANY else value.sql


def _roughly(operator: str, left: Value, right: Value) -> str:
    return f"{leniently(left, Kind.FLOAT)} {operator} {leniently(right, Kind.FLOAT)}"
