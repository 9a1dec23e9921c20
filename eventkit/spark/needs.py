"""The columns and rows of each topic that a query needs, taken from the plan of Spark's optimizer.

Spark pushes conditions towards the tables as far as its rules allow, and selects the columns that are used.  A
condition directly above a table in the optimized plan holds for every row that can matter, and only such conditions
count here.  An unrecognised plan needs everything; and Spark applies its conditions again in any case.
"""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

COLUMNS = frozenset({"offset", "topic", "key", "payload", "headers", "created_at"})


class Need(NamedTuple):
    """Some columns of the events after *after* up to *last*, from a time in milliseconds on, of some keys."""

    columns: frozenset[str] = COLUMNS
    after: int = 0
    last: int | None = None
    since: int | None = None
    keys: tuple[str, ...] = ()

    def narrowed(self, column: str, operator: str, values: list[Any]) -> "Need":
        """Return the need with one more condition."""
        if column == "key" and operator in ("=", "in"):
            return self._replace(keys=tuple(values))
        low, high = operator in (">", ">=", "="), operator in ("<", "<=", "=")
        if column == "offset":
            offset = values[0]
            after = max(self.after, offset if operator == ">" else offset - 1) if low else self.after
            bound = offset - (operator == "<")
            last = min(bound, bound if self.last is None else self.last) if high else self.last
            return self._replace(after=after, last=last)
        if column == "created_at" and low:
            # An upper bound is left to Spark: it may come from now(), which is later when the query runs.
            since = (values[0] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
            return self._replace(since=max(self.since or 0, since))
        return self

    def joined(self, other: "Need") -> "Need":
        """Return what both need together."""
        return Need(
            self.columns | other.columns,
            min(self.after, other.after),
            None if self.last is None or other.last is None else max(self.last, other.last),
            None if self.since is None or other.since is None else min(self.since, other.since),
            tuple(dict.fromkeys(self.keys + other.keys)) if self.keys and other.keys else (),
        )


EVERYTHING = Need()

_LITERALS: dict[str, Callable[[str], Any]] = {
    "long": int,
    "string": str,
    "timestamp": lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC),
}
_OPERATORS = {"GreaterThan": ">", "GreaterThanOrEqual": ">=", "LessThan": "<", "LessThanOrEqual": "<=", "EqualTo": "="}
_TURNED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "="}
_NAME = re.compile(r"(\d+):(\w+)")


class Node(NamedTuple):
    """A node of a plan or of an expression."""

    kind: str
    fields: dict[str, Any]
    children: list["Node"]


def needs(plan: str, utc: bool) -> dict[int, Need]:
    """Return what an optimized *plan*, as Spark's JSON, needs of each table whose columns are called ``number:name``.

    Times in it are readable if the session's time zone is *utc*.
    """
    found: dict[int, Need] = {}
    for tree in _trees(json.loads(plan)):
        for number, need in _leaves(tree, utc):
            found[number] = need.joined(found[number]) if number in found else need
    return found


def _inside(value: Any) -> Iterator[Any]:
    """Yield every list and every dictionary in *value*, which may be nested to any depth."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            yield value
            waiting += value.values() if isinstance(value, dict) else value


def _trees(value: Any) -> Iterator[Node]:
    """Yield every plan and every expression in *value*."""
    for one in _inside(value):
        if one and isinstance(one, list) and isinstance(one[0], dict) and "num-children" in one[0]:
            yield _tree(one)


def _tree(nodes: list[dict[str, Any]]) -> Node:
    """Return the tree of the nodes, which are listed in preorder."""
    made: list[Node] = []
    for fields in reversed(nodes):
        children = [made.pop() for _ in range(fields["num-children"])]
        made.append(Node(fields["class"].rpartition(".")[2], fields, children))
    return made.pop()


def _leaves(root: Node, utc: bool) -> Iterator[tuple[int, Need]]:
    """Yield the tables in a plan, each with the need that the nodes directly above it show."""
    waiting: list[tuple[Node, list[Node]]] = [(root, [])]
    while waiting:
        node, above = waiting.pop()
        waiting += [(child, [node, *above[:1]]) for child in node.children]
        if node.kind == "LogicalRDD" and (names := list(_references(node.fields["output"]))):
            filters = above[:1] if above and above[0].kind == "Filter" else []
            projects = [one for one in above[len(filters) :][:1] if one.kind == "Project"]
            need = EVERYTHING
            for conjunct in (one for found in filters for one in _conjuncts(_tree(found.fields["condition"]))):
                need = _narrowed(need, conjunct, utc)
            if projects:
                used = _references([one.fields for one in (*filters, *projects)])
                need = need._replace(columns=frozenset(column for _, column in used))
            yield names[0][0], need


def _references(value: Any) -> Iterator[tuple[int, str]]:
    """Yield the columns ``number:name`` anywhere in *value*."""
    for one in _inside(value):
        if isinstance(one, dict) and (match := _NAME.fullmatch(str(one.get("name", "")))):
            yield int(match[1]), match[2]


def _conjuncts(condition: Node) -> Iterator[Node]:
    waiting = [condition]
    while waiting:
        node = waiting.pop()
        if node.kind == "And":
            waiting += node.children
        else:
            yield node


def _narrowed(need: Need, conjunct: Node, utc: bool) -> Need:
    """Return *need* with one more condition, if that compares a column with constants."""
    if conjunct.kind not in (*_OPERATORS, "In"):
        return need
    operator = _OPERATORS.get(conjunct.kind, "in")
    column, *others = conjunct.children
    if operator != "in" and column.kind == "Literal":
        column, others, operator = others[0], [column], _TURNED[operator]
    match = _NAME.fullmatch(column.fields["name"]) if column.kind == "AttributeReference" else None
    values = [_constant(node, utc) for node in others]
    if match is None or not values or None in values:
        return need
    return need.narrowed(match[2], operator, values)


def _constant(node: Node, utc: bool) -> Any:
    """Return the value of a literal; None for an unsupported type."""
    kind, value = node.fields.get("dataType"), node.fields.get("value")
    if node.kind != "Literal" or kind not in _LITERALS or value is None or (kind == "timestamp" and not utc):
        return None
    try:
        return _LITERALS[kind](value)
    except ValueError:
        return None
