"""Queries of S3 Select, as Hypothesis strategies and as text."""

from typing import Any

from hypothesis import strategies as st

from eventkit.spark.select.grammar import Column, Name, Node, Query
from eventkit.spark.select.kinds import PARTS
from eventkit.spark.select.tokens import KEYWORDS

_NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(lambda name: name.lower() not in KEYWORDS)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_FIELDS = st.builds(Name, _NAMES) | st.builds(Name, _TEXTS.filter(bool), st.just(True))
_STEPS = _FIELDS | st.integers(0, 99)


def literal(sort: str, word: str = "") -> Node:
    """Return a literal."""
    return Node(sort, word=word)


PATHS = st.builds(lambda first, rest: Node("path", steps=(first, *rest)), _FIELDS, st.lists(_STEPS, max_size=2))
LITERALS = st.one_of(
    st.builds(lambda number: literal("integer", str(number)), st.integers(0, 10**25)),
    st.builds(lambda whole, part: literal("decimal", f"{whole}.{part}"), st.integers(0, 999), st.integers(0, 99)),
    st.builds(lambda number: literal("float", f"{number}e5"), st.integers(0, 99)),
    st.builds(lambda text: literal("text", text), _TEXTS),
    st.builds(lambda day: literal("moment", f"{day.isoformat()}T"), st.dates()),
    st.sampled_from([literal("boolean", "true"), literal("null"), literal("missing")]),
)


_OPERATORS = "+ - * / % || = <> < <= > >="
OPERATORS = _OPERATORS.split()
_PREDICATES = ("between", "in", "like", "is")


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def parts(least: int, most: int) -> st.SearchStrategy[Any]:
        return st.lists(inner, min_size=least, max_size=most).map(tuple)

    def node(kind: Any, number: int, *words: str) -> st.SearchStrategy[Any]:
        kinds = st.just(kind) if isinstance(kind, str) else st.sampled_from(kind)
        return st.builds(Node, kinds, parts(number, number), st.sampled_from(words or [""]))

    predicates = st.one_of(
        node("between", 3),
        st.builds(Node, st.just("in"), parts(2, 3)),
        st.builds(Node, st.just("like"), parts(2, 3)),
        node("is", 1, "null", "missing"),
    )
    return st.one_of(
        node(["-", "+", "not"], 1),
        node(OPERATORS, 2),
        st.builds(Node, st.sampled_from(["and", "or"]), parts(2, 3)),
        predicates,
        predicates.map(lambda made: Node("not", (made,))),
        st.builds(Node, st.just("case"), parts(2, 3)),
        st.builds(Node, st.just("case of"), parts(3, 4)),
        node("cast", 1, "integer", "text", "moment", "boolean", "float", "decimal", "decimal(10)", "decimal(10, 2)"),
        node(["lower", "upper", "char_length"], 1),
        st.builds(Node, st.just("coalesce"), parts(1, 2)),
        node("substring", 3),
        node("extract", 1, *PARTS),
        node("date_diff", 2, *PARTS),
        node("trim", 2, "leading", "both"),
        node(["sum", "count"], 1),
    )


EXPRESSIONS = st.recursive(PATHS | LITERALS, _larger, max_leaves=8)
QUERIES = st.builds(
    Query,
    st.none() | st.lists(st.builds(Column, EXPRESSIONS, st.none() | _NAMES), min_size=1, max_size=3).map(tuple),
    st.lists(st.none() | _STEPS, max_size=3).map(tuple),
    st.none() | st.builds(Name, _NAMES),
    st.none() | EXPRESSIONS,
    st.none() | st.integers(0, 1000),
)

_TYPES = {"text": "STRING", "moment": "timestamp", "boolean": "bool", "integer": "Int", "float": "float"}


def spelled(query: Query) -> str:
    """Return the query in a possible spelling."""
    columns = "*"
    if query.columns is not None:
        columns = ", ".join(_column(column) for column in query.columns)
    source = "S3Object" + "".join("[*]" if step is None else _step(step) for step in query.steps)
    alias = f" {_name(query.alias)}" if query.alias else ""
    where = f"\nWHERE {spell(query.where)}" if query.where is not None else ""
    limit = f" limit {query.limit}" if query.limit is not None else ""
    return f"select {columns} FROM {source}{alias}{where}{limit}"


def _column(column: Column) -> str:
    return spell(column.expression) + (f' AS "{column.alias}"' if column.alias else "")


def _name(name: Name) -> str:
    return '"' + name.text.replace('"', '""') + '"' if name.quoted else name.text


def _step(step: Any) -> str:
    return f"[{step}]" if isinstance(step, int) else f".{_name(step)}"


def spell(expression: Node) -> str:
    """Return an expression, with brackets around every compound part."""
    match expression:
        case Node("text", _, text):
            return "'" + text.replace("'", "''") + "'"
        case Node("moment", _, text):
            return f"`{text}`"
        case Node("path", _, _, steps):
            return _name(steps[0]) + "".join(map(_step, steps[1:]))  # type: ignore[arg-type]
        case Node("not", (Node(kind, parts, word),)) if kind in _PREDICATES:
            return f"({_predicate(kind, [*map(spell, parts)], word, 'NOT ')})"
        case Node(kind, parts, word) if kind in _PREDICATES:
            return f"({_predicate(kind, [*map(spell, parts)], word, '')})"
        case Node("case", parts):
            return f"CASE {_whens([*map(spell, parts)])} END"
        case Node("case of", (operand, *parts)):
            return f"CASE {spell(operand)} {_whens([*map(spell, parts)])} END"
        case Node("cast", (operand,), type):
            return f"CAST({spell(operand)} AS {_TYPES.get(type, type)})"
        case Node("extract", (operand,), word):
            return f"extract({word} FROM {spell(operand)})"
        case Node("trim", (operand, chars), word):
            return f"trim({word} {spell(chars)} from {spell(operand)})"
        case Node(operator, parts) if operator in (*OPERATORS, "not", "and", "or"):
            texts = [*map(spell, parts)]
            return f"({operator} {texts[0]})" if len(texts) == 1 else "(" + f" {operator} ".join(texts) + ")"
        case Node(sort, (), text):
            return text or sort.upper()
        case Node(function, parts, word):
            return f"{function}({', '.join([*filter(None, [word]), *map(spell, parts)])})"
    raise AssertionError(expression)


def _predicate(kind: str, texts: list[str], word: str, negation: str) -> str:
    operand, *others = texts
    rest = {
        "between": " AND ".join(others),
        "in": f"({', '.join(others)})",
        "like": " ESCAPE ".join(others),
        "is": word,
    }[kind]
    return f"{operand} IS {negation}{rest}" if kind == "is" else f"{operand} {negation}{kind} {rest}"


def _whens(texts: list[str]) -> str:
    pairs = zip(texts[::2], texts[1::2], strict=False)
    otherwise = f" ELSE {texts[-1]}" if len(texts) % 2 else ""
    return " ".join(f"WHEN {when} THEN {then}" for when, then in pairs) + otherwise
