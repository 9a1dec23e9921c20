"""Queries of S3 Select, as Hypothesis strategies and as text."""

from typing import Any

from hypothesis import strategies as st

from eventkit.spark.select import tree
from eventkit.spark.select.kinds import PARTS
from eventkit.spark.select.tokens import KEYWORDS

_NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(lambda name: name.lower() not in KEYWORDS)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_FIELDS = st.builds(tree.Name, _NAMES) | st.builds(tree.Name, _TEXTS.filter(bool), st.just(True))
_STEPS = _FIELDS | st.integers(0, 99)
PATHS = st.builds(lambda first, rest: tree.Path((first, *rest)), _FIELDS, st.lists(_STEPS, max_size=2))
LITERALS = st.one_of(
    st.builds(lambda number: tree.Literal("integer", str(number)), st.integers(0, 10**25)),
    st.builds(lambda whole, part: tree.Literal("decimal", f"{whole}.{part}"), st.integers(0, 999), st.integers(0, 99)),
    st.builds(lambda number: tree.Literal("float", f"{number}e5"), st.integers(0, 99)),
    st.builds(lambda text: tree.Literal("text", text), _TEXTS),
    st.builds(lambda day: tree.Literal("moment", f"{day.isoformat()}T"), st.dates()),
    st.sampled_from([tree.Literal("boolean", "true"), tree.Literal("null"), tree.Literal("missing")]),
)


_OPERATORS = "+ - * / % || = <> < <= > >="
OPERATORS = _OPERATORS.split()


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    one = st.lists(inner, min_size=1, max_size=2).map(tuple)
    return st.one_of(
        st.builds(tree.Unary, st.sampled_from(["-", "+", "not"]), inner),
        st.builds(tree.Binary, st.sampled_from(OPERATORS), inner, inner),
        st.builds(tree.Several, st.sampled_from(["and", "or"]), several),
        st.builds(tree.Between, inner, inner, inner, st.booleans()),
        st.builds(tree.In, inner, one, st.booleans()),
        st.builds(tree.Like, inner, inner, st.none() | inner, st.booleans()),
        st.builds(tree.Is, inner, st.sampled_from(["null", "missing"]), st.booleans()),
        st.builds(tree.Case, st.none() | inner, st.tuples(st.tuples(inner, inner)), st.none() | inner),
        st.builds(tree.Cast, inner, st.sampled_from(["integer", "text", "moment", "boolean", "float"])),
        st.builds(tree.Cast, inner, st.just("decimal"), st.sampled_from([(), (10,), (10, 2)])),
        st.builds(tree.Call, st.sampled_from(["lower", "upper", "char_length"]), st.tuples(inner)),
        st.builds(tree.Call, st.just("coalesce"), one),
        st.builds(tree.Call, st.just("substring"), st.tuples(inner, inner, inner)),
        st.builds(tree.Call, st.just("extract"), st.tuples(inner), st.sampled_from(PARTS)),
        st.builds(tree.Call, st.just("date_diff"), st.tuples(inner, inner), st.sampled_from(PARTS)),
        st.builds(tree.Call, st.just("trim"), st.tuples(inner, inner), st.sampled_from(["leading", "both"])),
        st.builds(tree.Aggregate, st.sampled_from(["sum", "count"]), inner),
    )


EXPRESSIONS = st.recursive(PATHS | LITERALS, _larger, max_leaves=8)
QUERIES = st.builds(
    tree.Query,
    st.none() | st.lists(st.builds(tree.Column, EXPRESSIONS, st.none() | _NAMES), min_size=1, max_size=3).map(tuple),
    st.builds(
        tree.Source, st.lists(st.none() | _STEPS, max_size=3).map(tuple), st.none() | st.builds(tree.Name, _NAMES)
    ),
    st.none() | EXPRESSIONS,
    st.none() | st.integers(0, 1000),
)

_TYPES = {"text": "STRING", "moment": "timestamp", "boolean": "bool", "integer": "Int", "float": "float"}


def spelled(query: tree.Query) -> str:
    """Return the query in a possible spelling."""
    columns = "*"
    if query.columns is not None:
        columns = ", ".join(_column(column) for column in query.columns)
    source = "S3Object" + "".join("[*]" if step is None else _step(step) for step in query.source.steps)
    alias = f" {_name(query.source.alias)}" if query.source.alias else ""
    where = f"\nWHERE {spell(query.where)}" if query.where is not None else ""
    limit = f" limit {query.limit}" if query.limit is not None else ""
    return f"select {columns} FROM {source}{alias}{where}{limit}"


def _column(column: tree.Column) -> str:
    return spell(column.expression) + (f' AS "{column.alias}"' if column.alias else "")


def _name(name: tree.Name) -> str:
    return '"' + name.text.replace('"', '""') + '"' if name.quoted else name.text


def _step(step: Any) -> str:
    return f"[{step}]" if isinstance(step, int) else f".{_name(step)}"


def spell(expression: tree.Expression) -> str:
    """Return an expression, with brackets around every compound part."""
    inner = spell
    match expression:
        case tree.Literal("text", text):
            return "'" + text.replace("'", "''") + "'"
        case tree.Literal("moment", text):
            return f"`{text}`"
        case tree.Literal(sort, text):
            return text or sort.upper()
        case tree.Path(steps):
            return _name(steps[0]) + "".join(map(_step, steps[1:]))  # type: ignore[arg-type]
        case tree.Unary(operator, operand):
            return f"({operator} {inner(operand)})"
        case tree.Binary(operator, left, right):
            return f"({inner(left)} {operator} {inner(right)})"
        case tree.Several(operator, operands):
            return "(" + f" {operator} ".join(map(inner, operands)) + ")"
        case tree.Between(operand, low, high, negated):
            return f"({inner(operand)} {_not(negated)}BETWEEN {inner(low)} AND {inner(high)})"
        case tree.In(operand, members, negated):
            return f"({inner(operand)} {_not(negated)}in ({', '.join(map(inner, members))}))"
        case tree.Like(operand, pattern, escape, negated):
            end = f" ESCAPE {inner(escape)}" if escape else ""
            return f"({inner(operand)} {_not(negated)}like {inner(pattern)}{end})"
        case tree.Is(operand, what, negated):
            return f"({inner(operand)} IS {_not(negated)}{what})"
        case tree.Case(operand, whens, otherwise):
            pairs = " ".join(f"WHEN {inner(when)} THEN {inner(then)}" for when, then in whens)
            end = f" ELSE {inner(otherwise)}" if otherwise else ""
            return f"CASE {inner(operand) if operand else ''} {pairs}{end} END"
        case tree.Cast(operand, type, sizes):
            size = f"({', '.join(map(str, sizes))})" if sizes else ""
            return f"CAST({inner(operand)} AS {_TYPES.get(type, type)}{size})"
        case tree.Call("extract", (operand,), word):
            return f"extract({word} FROM {inner(operand)})"
        case tree.Call("trim", (operand, chars), word):
            return f"trim({word} {inner(chars)} from {inner(operand)})"
        case tree.Call(function, arguments, word):
            return f"{function}({', '.join([*filter(None, [word]), *map(inner, arguments)])})"
        case tree.Aggregate(function, argument):
            return f"{function}({inner(argument) if argument else '*'})"
    raise AssertionError(expression)


def _not(negated: bool) -> str:
    return "NOT " if negated else ""
