"""Translation of a query of S3 Select to Spark's SQL, with a check of its structure and of the kind of each value."""

import difflib
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from ..session import quoted
from .files import Field, File, kind_of
from .kinds import (
    AGGREGATES,
    FUNCTIONS,
    NUMBERS,
    ORDERED,
    SYMBOLS,
    Kind,
    Value,
    castable,
    comparable,
    compare,
    equal_to_any,
    like,
    moment,
    of_ion,
    of_text,
    of_variant,
    same,
    unified,
    wrong_symbol,
)
from .tokens import LITERALS, Name, Node, Order, Query, SelectError, Step

SOURCE = "eventkit_select"
"""The placeholder for the view with the file's rows: columns c0, c1, … of CSV, those of Parquet, or r,
a variant for each record of JSON."""

_LONGEST = 200_000
"""The most characters of an expression for Spark: each comparison of untyped values repeats them several times."""

_ORDER = "eventkit order {}"
"""The name of a value by which the rows are ordered."""


class Translated(NamedTuple):
    """A query for Spark, and the names of its columns; ``names`` is None where each JSON record is returned whole."""

    sql: str
    names: tuple[str, ...] | None
    kinds: tuple[Kind, ...]


def translate(sql: str, query: Query, file: File) -> Translated:
    """Translate *query*, parsed from *sql*, for Spark; raise `SelectError` if it does not fit *file*."""
    return _Translator(sql, file, query).translated()


class _Translator:
    def __init__(self, sql: str, file: File, query: Query) -> None:
        self._sql = sql
        self._file = file
        self._query = query
        self._variant = file.format == "json"
        self._columns = file.columns or ()
        last = query.steps[-1] if query.steps else None
        self._alias = query.alias or (last if isinstance(last, Name) else Name("S3Object"))
        self._paths: dict[tuple[Step, ...], str] = {}
        """The paths into JSON records, with the column of each."""
        self._keys: dict[str, str] = {}
        """The values of GROUP BY, with what Spark groups by; empty inside of aggregates."""

    def translated(self) -> Translated:
        query, names = self._query, None
        where = "" if query.where is None else f" WHERE {self.condition(query.where)}"
        orders = [Order(self._meant(order.expression), order.descending) for order in query.orders]
        self._keys = dict(map(self._key, query.groups))
        group = f" GROUP BY {', '.join(self._keys.values())}" if self._keys else ""
        self._check([order.expression for order in orders])
        if query.columns is not None:
            names = query.names
            values = [self.value(column.expression) for column in query.columns]
        elif self._file.columns is None:
            values = [Value("r", Kind.ANY)]
        else:
            names = tuple(column.name for column in self._columns)
            csv = self._file.format == "csv"
            values = [
                Value(f"c{place}" if csv else quoted(column.name), column.kind)
                for place, column in enumerate(self._columns)
            ]
        shown = names or ("r",)
        columns = [f"{value.sql} AS {quoted(name)}" for value, name in zip(values, shown, strict=True)]
        keys = [key for order in orders for key in self._sorted(order)]
        # A name of the result would hide one of the source that the order needs.
        columns += [f"{key} AS {quoted(_ORDER.format(place))}" for place, (key, _) in enumerate(keys)]
        made = f"SELECT {', '.join(columns)} FROM {self._source()}{where}{group}"
        if keys:
            sides = [f"{quoted(_ORDER.format(place))} {side} NULLS LAST" for place, (_, side) in enumerate(keys)]
            made = f"SELECT {', '.join(map(quoted, shown))} FROM ({made}) ORDER BY {', '.join(sides)}"
        made += "" if query.limit is None else f" LIMIT {min(query.limit, 2**31 - 1)}"
        return Translated(made, names, tuple(value.kind for value in values))

    def _meant(self, node: Node) -> Node:
        """Return the column of the result whose alias *node* is, or *node* itself."""
        if node.kind == "path" and len(node.steps) == 1:
            for expression, alias in self._query.columns or ():
                if alias is not None and same(node.steps[0], alias):
                    return expression
        return node

    def _key(self, node: Node) -> tuple[str, str]:
        """Return a value of GROUP BY, and what Spark groups by: it cannot compare variants."""
        known = any(node.steps and same(node.steps[0], one.name) for one in self._columns)
        node = node if known else self._meant(node)
        self._refuse_aggregates(node, "GROUP BY cannot contain an aggregate")
        value = self._checked(node, ORDERED, "InvalidExpressionType", "GROUP BY requires a simple value")
        return value.sql, f"to_json({value.sql})" if self._variant and value.kind is Kind.ANY else value.sql

    def _sorted(self, order: Order) -> list[tuple[str, str]]:
        """Return what Spark orders by: an untyped value by its number, and then by its text."""
        value = self._checked(order.expression, ORDERED, "InvalidExpressionType", "ORDER BY requires a simple value")
        side = "DESC" if order.descending else "ASC"
        if value.kind is not Kind.ANY:
            return [(value.sql, side)]
        return [(value.leniently(Kind.DECIMAL), side), (value.leniently(Kind.TEXT), side)]

    def _check(self, orders: Sequence[Node]) -> None:
        """Raise for a query that is grammatical but not allowed."""
        query = self._query
        if query.where is not None:
            self._refuse_aggregates(query.where, "WHERE applies to one row, and cannot contain an aggregate: select it")
        columns = query.columns or ()
        if self._keys and query.columns is None:
            reason = "* beside GROUP BY: name the columns of GROUP BY, and aggregates"
            self._refuse("UnsupportedSqlStructure", reason, query.at)
        together = [*(column.expression for column in columns), *orders]
        if self._keys or any(part.kind in AGGREGATES for expression in together for part in expression.whole):
            for expression in together:
                self._check_no_rows(expression)
        if self._file.columns is not None and query.steps not in ((), (None,)):
            reason = f"{self._file.format} has no paths: read FROM S3Object, and name columns"
            self._refuse("InvalidKeyPath", reason, query.at)
        seen = set()
        for name, column in zip(query.names, columns, strict=True):
            if name.lower() in seen:
                reason = f"two columns of the result are called {name}: rename one of them with AS"
                self._refuse("AmbiguousFieldName", reason, column.expression.at)
            seen.add(name.lower())

    def _check_no_rows(self, node: Node) -> None:
        """Raise for a column outside of GROUP BY and of the aggregates, and for an aggregate within one."""
        if self._keys and node.kind not in (*AGGREGATES, *LITERALS) and self._alone(self.value, node).sql in self._keys:
            return
        if node.kind == "path":
            reason = "a column beside an aggregate must be in GROUP BY, which S3's service does not have"
            self._refuse("UnsupportedSqlStructure", reason, node.at)
        for part in node.parts:
            if node.kind not in AGGREGATES:
                self._check_no_rows(part)
            else:
                self._refuse_aggregates(part, "an aggregate cannot contain an aggregate")

    def _refuse_aggregates(self, node: Node, reason: str) -> None:
        for part in node.whole:
            if part.kind in AGGREGATES:
                self._refuse("UnsupportedSqlStructure", reason, part.at)

    def _source(self) -> str:
        if not self._variant:
            return SOURCE
        steps = self._query.steps
        made, path = SOURCE, list[Step]()
        for step in steps[1:] if steps[:1] == (None,) else steps:
            if step is not None:
                path.append(step)
                continue
            made = f"(SELECT explode(try_cast({of_variant('r', path)} AS ARRAY<VARIANT>)) AS r FROM {made})"
            path = []
        if path:
            made = f"(SELECT {of_variant('r', path)} AS r FROM {made})"
        if not self._paths:
            return made
        found = ", ".join(f"{of_variant('r', path)} AS {name}" for path, name in self._paths.items())
        return f"(SELECT r, {found} FROM {made})"

    def condition(self, node: Node) -> str:
        """Return a condition, which is true, false or unknown."""
        value = self._checked(node, (Kind.BOOLEAN,), "InvalidExpressionType", "a condition is required")
        return value.strictly(Kind.BOOLEAN)

    def _alone(self, value: Callable[[Node], Value], node: Node) -> Value:
        """Return the *value* of an expression in one row, also where rows are grouped."""
        keys, self._keys = self._keys, {}
        try:
            return value(node)
        finally:
            self._keys = keys

    def value(self, node: Node) -> Value:
        made = self._value(node)
        if made.sql in self._keys:
            return Value(f"any_value({made.sql})", made.kind)
        if len(made.sql) > _LONGEST:
            self._refuse("UnsupportedSyntax", "the expression is too large: CAST columns to their types", node.at)
        return made

    def _value(self, node: Node) -> Value:
        match node:
            case Node("path"):
                return self._path(node)
            case Node(kind) if kind in LITERALS:
                return self._literal(node)
            case Node("not", (operand,)):
                return Value(f"(NOT {self.condition(operand)})", Kind.BOOLEAN)
            case Node("and" | "or" as operator, operands):
                joined = f" {operator.upper()} ".join(map(self.condition, operands))
                return Value(f"({joined})", Kind.BOOLEAN)
            case Node("+" | "-" as operator, (operand,)):
                number = self._number(operand, operator)
                return Value(f"({operator} {number.sql})", number.kind)
            case Node("+" | "-" | "*" | "/" | "%" as operator, (left, right)):
                one, other = self._number(left, operator), self._number(right, operator)
                widest = max(one.kind, other.kind, key=NUMBERS.index)
                sign = "div" if widest is Kind.INTEGER and operator == "/" else operator
                return Value(f"({one.sql} {sign} {other.sql})", widest)
            case Node("||", (left, right)):
                return Value(f"({self._text(left, '||')} || {self._text(right, '||')})", Kind.TEXT)
            case Node("=" | "<>" | "<" | "<=" | ">" | ">=" as operator, (left, right)):
                return Value(self._compared(operator, left, right), Kind.BOOLEAN)
            case Node("between", (operand, low, high)):
                within = f"({self._compared('>=', operand, low)} AND {self._compared('<=', operand, high)})"
                return Value(within, Kind.BOOLEAN)
            case Node("in", (operand, *members)):
                value = self.value(operand)
                candidates = [self.value(member) for member in members]
                for candidate, member in zip(candidates, members, strict=True):
                    self._check_comparable("=", value, candidate, member)
                return Value(equal_to_any(value, candidates), Kind.BOOLEAN)
            case Node("like", (operand, pattern, *escape)):
                return self._like(node, operand, pattern, *escape)
            case Node("is", (operand,), what):
                return Value(self._absent(self.value(operand), what), Kind.BOOLEAN)
            case Node("case" | "case of"):
                return self._case(node)
            case Node("cast", (operand,), type):
                return self._cast(node, self.value(operand), type)
            case Node("coalesce", arguments):
                made = self._unified([self.value(argument) for argument in arguments], node)
                # Spark treats null in JSON as a value.
                nulls = self._variant and made[0].kind is Kind.ANY
                skip = "CASE WHEN is_variant_null({0}) THEN NULL ELSE {0} END" if nulls else "{0}"
                return Value(f"coalesce({', '.join(skip.format(value.sql) for value in made)})", made[0].kind)
            case Node("nullif", (left, right)):
                value, same = self.value(left), self._compared("=", left, right)
                return value._replace(sql=f"(CASE WHEN {same} THEN NULL ELSE {value.sql} END)")
            case Node(function) if function in AGGREGATES:
                return self._alone(self._aggregate, node)
        return self._call(node)

    def _compared(self, operator: str, left: Node, right: Node) -> str:
        one, other = self.value(left), self.value(right)
        self._check_comparable(operator, one, other, right)
        return compare(operator, one, other)

    def _check_comparable(self, operator: str, left: Value, right: Value, at: Node) -> None:
        if not comparable(left.kind, right.kind):
            reason = f"{left.kind.value} {operator} {right.kind.value}: CAST one of them to the type of the other"
            self._refuse("InvalidExpressionType", reason, at.at)

    def _like(self, node: Node, operand: Node, pattern: Node, escape: Node | None = None) -> Value:
        text, like_text = self._text(operand, "LIKE"), self._text(pattern, "LIKE")
        if escape is not None and escape.kind != "text":
            self._refuse("LikeInvalidInputs", "ESCAPE requires one character in quotes", escape.at)
        known = pattern.word if pattern.kind in LITERALS else None
        made, wrong = like(text, like_text, known, escape.word if escape else None)
        if wrong:
            self._refuse("LikeInvalidInputs", wrong, (escape or node).at)
        return Value(made, Kind.BOOLEAN)

    def _absent(self, value: Value, what: str) -> str:
        """Return the condition that a value is missing, or null if that is *what* to look for."""
        absent = f"({value.sql} IS NULL)"
        if what == "null" and self._variant and value.kind is Kind.ANY:
            return f"({absent} OR is_variant_null({value.sql}))"
        return absent

    def _case(self, node: Node) -> Value:
        operand, parts = (node.parts[0], node.parts[1:]) if node.kind == "case of" else (None, node.parts)
        conditions = [
            self.condition(when) if operand is None else self._compared("=", operand, when)
            for when in parts[: len(parts) // 2 * 2 : 2]
        ]
        results = self._unified([self.value(part) for part in [*parts[1::2], *parts[len(conditions) * 2 :]]], node)
        whens = " ".join(f"WHEN {when} THEN {then.sql}" for when, then in zip(conditions, results, strict=False))
        otherwise = f" ELSE {results[-1].sql}" if len(results) > len(conditions) else ""
        return Value(f"(CASE {whens}{otherwise} END)", results[0].kind)

    def _unified(self, values: list[Value], at: Node) -> list[Value]:
        found = unified(values, self._variant)
        if found is None:
            kinds = ", ".join(dict.fromkeys(value.kind.value for value in values))
            self._refuse("InvalidExpressionType", f"this may be {kinds}: CAST them to one type", at.at)
        return found

    def _cast(self, node: Node, value: Value, type: str) -> Value:
        to = Kind[type.partition("(")[0].upper()]
        if not castable(value.kind, to):
            self._refuse("InvalidExpressionType", f"{value.kind.value} cannot become {to.value}", node.at)
        if "(" in type:
            return Value(f"CAST({value.sql} AS {type.upper()})", to)
        if to is Kind.TEXT:
            return Value(value.as_text(), to)
        return Value(moment(value.sql) if to is Kind.MOMENT and value.kind is Kind.TEXT else value.strictly(to), to)

    def _call(self, node: Node) -> Value:
        function = FUNCTIONS[node.kind]
        made = [self._argument(node, *given) for given in zip(node.parts, function.takes, strict=False)]
        if node.kind == "to_string":
            self._check_pattern(node.parts[1])
        template = function.sql if len(made) == len(function.takes) else function.shorter
        return Value(template.format(*made, word=node.word.upper()), function.gives)

    def _argument(self, call: Node, argument: Node, wanted: Kind) -> str:
        remedy = "TO_TIMESTAMP makes one" if wanted is Kind.MOMENT else "CAST makes one"
        reason = f"{call.kind.upper()} wants {wanted.value} here"
        value = self._checked(argument, (wanted,), "IncorrectSqlFunctionArgumentType", reason, f": {remedy}")
        return value.as_text() if wanted is Kind.TEXT else value.strictly(wanted)

    def _check_pattern(self, pattern: Node) -> None:
        code = "EvaluatorInvalidTimestampFormatPattern"
        if pattern.kind != "text":
            self._refuse(code, "the pattern of TO_STRING must be a text in quotes, as in 'yyyy-MM-dd'", pattern.at)
        if wrong := wrong_symbol(pattern.word):
            known = ", ".join(sorted(sorted(SYMBOLS), key=str.lower))
            self._refuse(code, f"{wrong} is not valid in a pattern: use {known}, S; quote text with ''", pattern.at)

    def _aggregate(self, node: Node) -> Value:
        function = node.kind
        if not node.parts:
            return Value("count(1)", Kind.INTEGER)
        if function == "count":
            return Value(f"count_if(NOT {self._absent(self.value(node.parts[0]), 'null')})", Kind.INTEGER)
        kinds = (*NUMBERS, Kind.MOMENT) if function in ("min", "max") else NUMBERS
        reason = f"{function.upper()} wants numbers"
        value = self._checked(node.parts[0], kinds, "IncorrectSqlFunctionArgumentType", reason)
        if value.kind in (Kind.ANY, Kind.NULL):
            value = Value(value.strictly(Kind.DECIMAL), Kind.DECIMAL)
        kind = Kind.FLOAT if function == "avg" and value.kind is Kind.INTEGER else value.kind
        return Value(f"{function}({value.sql})", kind)

    def _number(self, node: Node, operator: str) -> Value:
        return self._checked(node, NUMBERS, "InvalidExpressionType", f"{operator} wants numbers").as_number()

    def _text(self, node: Node, operator: str) -> str:
        code = "LikeInvalidInputs" if operator == "LIKE" else "InvalidExpressionType"
        remedy = ": CAST(… AS STRING) makes one"
        return self._checked(node, (Kind.TEXT,), code, f"{operator} requires texts", remedy).as_text()

    def _checked(self, node: Node, kinds: Sequence[Kind], code: str, wanted: str, remedy: str = "") -> Value:
        """Return the value of an expression, which must be of one of *kinds*, or untyped."""
        value = self.value(node)
        if value.kind not in (*kinds, Kind.ANY, Kind.NULL):
            self._refuse(code, f"{wanted}, not {value.kind.value}{remedy}", node.at)
        return value

    def _literal(self, node: Node) -> Value:
        text = node.word
        match node.kind:
            case "null" | "missing":
                return Value("NULL", Kind.NULL)
            case "boolean":
                return Value(text.upper(), Kind.BOOLEAN)
            case "text":
                return Value(of_text(text), Kind.TEXT)
            case "moment":
                try:
                    return Value(f"TIMESTAMP{of_text(of_ion(text))}", Kind.MOMENT)
                except ValueError as error:
                    self._refuse("ValueParseFailure", f"{text} is no moment: {error}", node.at)
            case "integer" if int(text[:20]) < 2**63 and len(text.lstrip("0")) < 20:
                return Value(f"{int(text)}L", Kind.INTEGER)
            case "integer" | "decimal" if len(text) <= 38:
                return Value(f"{text.rstrip('.')}BD", Kind.DECIMAL)
            case _:
                return Value(f"CAST('{text}' AS DOUBLE)", Kind.FLOAT)

    def _path(self, node: Node) -> Value:
        steps, at = node.steps, node.at
        # A column with the name of the table remains accessible.
        hidden = len(steps) == 1 and any(same(steps[0], column.name) for column in self._columns)
        if same(steps[0], *self._alias) and not hidden:
            steps = steps[1:]
        if self._file.columns is None:
            return Value(self._paths.setdefault(steps, f"p{len(self._paths)}") if steps else "r", Kind.ANY)
        if not steps:
            self._refuse("EvaluatorBindingDoesNotExist", "a row is not a value: write * for all its columns", at)
        if isinstance(steps[0], int):
            self._refuse("EvaluatorBindingDoesNotExist", "a row is not an array: name a column, as in s._1", at)
        place = self._column(steps[0], at)
        if self._file.format == "parquet":
            return self._nested(self._columns[place], steps[1:], at)
        if len(steps) > 1:
            reason = f"{self._columns[place].name} is a text: a column of CSV has no fields"
            self._refuse("EvaluatorBindingDoesNotExist", reason, at)
        return Value(f"c{place}", Kind.ANY)

    def _column(self, name: Name, at: int) -> int:
        csv = self._file.format == "csv"
        if csv and not name.quoted and re.fullmatch(r"_[1-9][0-9]{0,8}", name.text):
            number = int(name.text[1:])
            if number > len(self._columns):
                reason = f"{name.text} is beyond the first row, which has {len(self._columns)} columns"
                self._refuse("InvalidColumnIndex", reason, at)
            return number - 1
        if csv and self._file.csv.header != "use":
            reason = f"{name.text} is a name, but the header is not used: write _1, or pass --csv-header use"
            self._refuse("MissingHeaders", reason, at)
        return self._among([column.name for column in self._columns], name, "the file", at)

    def _nested(self, column: Field, steps: Sequence[Step], at: int) -> Value:
        from pyarrow import types

        sql, type = quoted(column.name), column.type
        for step in steps:
            if isinstance(step, int) and (types.is_list(type) or types.is_large_list(type)):
                sql, type = f"get({sql}, {step})", type.value_type
            elif isinstance(step, Name) and types.is_struct(type):
                inner = type.field(self._among([field.name for field in type], step, column.name, at))
                sql, type = f"{sql}.{quoted(inner.name)}", inner.type
            else:
                shown = f"[{step}]" if isinstance(step, int) else f".{step.text}"
                self._refuse("EvaluatorBindingDoesNotExist", f"{column.name} is {type}, and has no {shown}", at)
        return Value(sql, kind_of(type))

    def _among(self, names: Sequence[str], name: Name, where: str, at: int) -> int:
        """Return the index of the name that *name* refers to in *names*."""
        found = [place for place, known in enumerate(names) if same(name, known)]
        if len(found) > 1:
            found = [place for place in found if names[place] == name.text] or found
        if len(found) > 1:
            several = ", ".join(f'"{names[place]}"' for place in found)
            self._refuse("AmbiguousFieldName", f"{name.text} may be {several}: quote the one you mean", at)
        if not found:
            close = difflib.get_close_matches(name.text, names, 1)
            known = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
            meant = f"did you mean {close[0]}?" if close else f"there is {known}"
            self._refuse("EvaluatorBindingDoesNotExist", f"{where} has no column {name.text}: {meant}", at)
        return found[0]

    def _refuse(self, code: str, reason: str, at: int) -> NoReturn:
        raise SelectError(code, reason, self._sql, at)
