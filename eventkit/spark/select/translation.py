"""Translation of a query of S3 Select to Spark's SQL, with a check of its structure and of the kind of each value."""

import datetime
import re
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from . import SelectError, tree
from .files import File
from .kinds import (
    FUNCTIONS,
    NUMBERS,
    SHORTER,
    SYMBOLS,
    Kind,
    Value,
    castable,
    comparable,
    compare,
    equal_to_any,
    like,
    moment,
    of_text,
    quoted,
    unified,
    wrong_symbol,
)
from .paths import Names, of_variant

SOURCE = "eventkit_select"
"""The placeholder for the view with the file's rows: columns c0, c1, … of CSV, those of Parquet, or r,
a variant for each record of JSON."""

_LONGEST = 200_000
"""The most characters of an expression for Spark: each comparison of untyped values repeats them several times."""


class Translated(NamedTuple):
    """A query for Spark, and the names of its columns; ``names`` is None where each JSON record is returned whole."""

    sql: str
    names: tuple[str, ...] | None
    kinds: tuple[Kind, ...]


def translate(sql: str, query: tree.Query, file: File) -> Translated:
    """Translate *query*, parsed from *sql*, for Spark; raise `SelectError` if it does not fit *file*."""
    _check(sql, query, file)
    return _Translator(sql, file, query.source).query(query)


def _check(sql: str, query: tree.Query, file: File) -> None:
    """Raise for a query that is grammatical but not allowed in S3 Select."""
    for part in query.where.parts if query.where else ():
        if isinstance(part, tree.Aggregate):
            reason = f"{part.function.upper()} is not allowed in WHERE, which applies to one row: select it"
            raise SelectError("UnsupportedSqlStructure", reason, sql, part.at)
    columns = query.columns or ()
    if any(isinstance(part, tree.Aggregate) for column in columns for part in column.expression.parts):
        for column in columns:
            _check_no_rows(sql, column.expression)
    if file.columns is not None and query.source.steps not in ((), (None,)):
        reason = f"{file.format} has no paths: read FROM S3Object, and name columns"
        raise SelectError("InvalidKeyPath", reason, sql, query.source.at)
    seen = set()
    for name, column in zip(_output_names(columns), columns, strict=True):
        if name.lower() in seen:
            reason = f"two columns of the result are called {name}: rename one of them with AS"
            raise SelectError("AmbiguousFieldName", reason, sql, column.expression.at)
        seen.add(name.lower())


def _check_no_rows(sql: str, expression: tree.Expression) -> None:
    """Raise for a column outside of the aggregates, and for an aggregate within one."""
    if isinstance(expression, tree.Path):
        reason = "a column beside an aggregate requires GROUP BY, which S3 Select does not have"
        raise SelectError("UnsupportedSqlStructure", reason, sql, expression.at)
    if not isinstance(expression, tree.Aggregate):
        for child in expression.children:
            _check_no_rows(sql, child)
        return
    for part in expression.argument.parts if expression.argument else ():
        if isinstance(part, tree.Aggregate):
            raise SelectError("UnsupportedSqlStructure", "an aggregate cannot contain an aggregate", sql, part.at)


def _output_names(columns: Sequence[tree.Column]) -> list[str]:
    """Return the names of the columns of the result: their alias, their field or their number."""
    return [column.alias or _field(column.expression) or f"_{number}" for number, column in enumerate(columns, 1)]


def _field(expression: tree.Expression) -> str | None:
    if isinstance(expression, tree.Path) and isinstance(last := expression.steps[-1], tree.Name):
        return last.text
    return None


class _Translator:
    def __init__(self, sql: str, file: File, source: tree.Source) -> None:
        self._sql = sql
        self._file = file
        self._variant = file.format == "json"
        self._names = Names(sql, file, source)

    def query(self, query: tree.Query) -> Translated:
        names: tuple[str, ...] | None
        if query.columns is not None:
            names = tuple(_output_names(query.columns))
            values = [self.value(column.expression) for column in query.columns]
        elif self._file.columns is None:
            names, values = None, [Value("r", Kind.ANY)]
        else:
            names = tuple(column.name for column in self._file.columns)
            inside = [f"c{place}" if self._file.format == "csv" else quoted(name) for place, name in enumerate(names)]
            kinds = [column.kind for column in self._file.columns]
            values = [Value(sql, kind) for sql, kind in zip(inside, kinds, strict=True)]
        columns = ", ".join(
            f"{value.sql} AS {quoted(name)}" for value, name in zip(values, names or ["r"], strict=True)
        )
        where = "" if query.where is None else f" WHERE {self.condition(query.where)}"
        made = f"SELECT {columns} FROM {self._source(query.source)}{where}"
        if query.limit is not None:
            made += f" LIMIT {min(query.limit, 2**31 - 1)}"
        return Translated(made, names, tuple(value.kind for value in values))

    def _source(self, source: tree.Source) -> str:
        """Return the rows of the FROM: those of the file, or of arrays in its records."""
        if not self._variant:
            return SOURCE
        steps = source.steps[1:] if source.steps[:1] == (None,) else source.steps
        made, path = SOURCE, list[tree.Step]()
        for step in steps:
            if step is not None:
                path.append(step)
                continue
            made = f"(SELECT explode(try_cast({of_variant('r', path)} AS ARRAY<VARIANT>)) AS r FROM {made})"
            path = []
        if path:
            made = f"(SELECT {of_variant('r', path)} AS r FROM {made})"
        if not self._names.paths:
            return made
        found = ", ".join(f"{of_variant('r', steps)} AS {name}" for steps, name in self._names.paths.items())
        return f"(SELECT r, {found} FROM {made})"

    def condition(self, expression: tree.Expression) -> str:
        """Return a condition, which is true, false or unknown."""
        value = self.value(expression)
        if value.kind not in (Kind.BOOLEAN, Kind.ANY, Kind.NULL):
            self._refuse("InvalidExpressionType", f"a condition is required, not {value.kind.value}", expression)
        return value.strictly(Kind.BOOLEAN)

    def value(self, expression: tree.Expression) -> Value:
        """Return the expression for Spark."""
        made = self._value(expression)
        if len(made.sql) > _LONGEST:
            self._refuse("UnsupportedSyntax", "the expression is too large: CAST columns to their types", expression)
        return made

    def _value(self, expression: tree.Expression) -> Value:
        match expression:
            case tree.Literal():
                return _literal(expression, self._sql)
            case tree.Path():
                return self._names.value(expression)
            case tree.Unary("not", operand):
                return Value(f"(NOT {self.condition(operand)})", Kind.BOOLEAN)
            case tree.Unary(operator, operand):
                number = self._number(operand, operator)
                return Value(f"({operator} {number.sql})", number.kind)
            case tree.Several(operator, operands):
                joined = f" {operator.upper()} ".join(map(self.condition, operands))
                return Value(f"({joined})", Kind.BOOLEAN)
            case tree.Binary("||", left, right):
                return Value(f"({self._text(left, '||')} || {self._text(right, '||')})", Kind.TEXT)
            case tree.Binary("+" | "-" | "*" | "/" | "%" as operator, left, right):
                return self._arithmetic(operator, self._number(left, operator), self._number(right, operator))
            case tree.Binary(operator, left, right):
                return self._compared(operator, left, right)
            case tree.Between(operand, low, high, negated):
                within = f"{self._compared('>=', operand, low).sql} AND {self._compared('<=', operand, high).sql}"
                return self._negated(f"({within})", negated)
            case tree.In(operand, members, negated):
                value = self.value(operand)
                candidates = [self.value(member) for member in members]
                for candidate, member in zip(candidates, members, strict=True):
                    self._check_comparable("=", value, candidate, member)
                return self._negated(equal_to_any(value, candidates), negated)
            case tree.Like():
                return self._like(expression)
            case tree.Is(operand, what, negated):
                return self._negated(self._is(self.value(operand), what), negated)
            case tree.Case():
                return self._case(expression)
            case tree.Cast():
                return self._cast(expression)
            case tree.Call("coalesce", arguments):
                return self._coalesce(expression, arguments)
            case tree.Call("nullif", (left, right)):
                value, same = self.value(left), self._compared("=", left, right)
                return value._replace(sql=f"(CASE WHEN {same.sql} THEN NULL ELSE {value.sql} END)")
            case tree.Call():
                return self._call(expression)
            case tree.Aggregate():
                return self._aggregate(expression)
        raise AssertionError(expression)

    def _arithmetic(self, operator: str, left: Value, right: Value) -> Value:
        kind = max(left.kind, right.kind, key=NUMBERS.index)
        if kind is Kind.INTEGER and operator == "/":
            operator = "div"
        return Value(f"({left.sql} {operator} {right.sql})", kind)

    def _compared(self, operator: str, left: tree.Expression, right: tree.Expression) -> Value:
        one, other = self.value(left), self.value(right)
        self._check_comparable(operator, one, other, right)
        return Value(compare(operator, one, other), Kind.BOOLEAN)

    def _check_comparable(self, operator: str, left: Value, right: Value, at: tree.Expression) -> None:
        if not comparable(left.kind, right.kind):
            reason = f"{left.kind.value} {operator} {right.kind.value}: CAST one of them to the type of the other"
            self._refuse("InvalidExpressionType", reason, at)

    def _like(self, expression: tree.Like) -> Value:
        operand, pattern = (self._text(part, "LIKE") for part in (expression.operand, expression.pattern))
        known = expression.pattern.text if isinstance(expression.pattern, tree.Literal) else None
        escape = None
        if expression.escape is not None:
            if not (isinstance(expression.escape, tree.Literal) and expression.escape.sort == "text"):
                self._refuse("LikeInvalidInputs", "ESCAPE requires one character in quotes", expression.escape)
            escape = expression.escape.text
        made, wrong = like(operand, pattern, known, escape)
        if wrong:
            self._refuse("LikeInvalidInputs", wrong, expression.escape or expression)
        return self._negated(made, expression.negated)

    def _is(self, value: Value, what: str) -> str:
        absent = f"({value.sql} IS NULL)"
        if what == "null" and self._variant and value.kind is Kind.ANY:
            return f"({absent} OR is_variant_null({value.sql}))"
        return absent

    def _case(self, expression: tree.Case) -> Value:
        conditions = [
            self.condition(when) if expression.operand is None else self._compared("=", expression.operand, when).sql
            for when, _ in expression.whens
        ]
        results = [self.value(then) for _, then in expression.whens]
        results += [self.value(expression.otherwise)] if expression.otherwise is not None else []
        made = self._unified(results, expression)
        whens = " ".join(f"WHEN {when} THEN {then.sql}" for when, then in zip(conditions, made, strict=False))
        otherwise = f" ELSE {made[-1].sql}" if expression.otherwise is not None else ""
        return Value(f"(CASE {whens}{otherwise} END)", made[0].kind)

    def _coalesce(self, expression: tree.Expression, arguments: tuple[tree.Expression, ...]) -> Value:
        made = self._unified([self.value(argument) for argument in arguments], expression)
        kind = made[0].kind
        # Spark treats null in JSON as a value.
        skip = "CASE WHEN is_variant_null({0}) THEN NULL ELSE {0} END" if self._variant and kind is Kind.ANY else "{0}"
        return Value("coalesce(" + ", ".join(skip.format(value.sql) for value in made) + ")", kind)

    def _unified(self, values: list[Value], at: tree.Expression) -> list[Value]:
        found = unified(values, self._variant)
        if found is None:
            kinds = ", ".join(dict.fromkeys(value.kind.value for value in values))
            self._refuse("InvalidExpressionType", f"this may be {kinds}: CAST them to one type", at)
        return found

    def _cast(self, expression: tree.Cast) -> Value:
        value, to = self.value(expression.operand), Kind[expression.type.upper()]
        if not castable(value.kind, to):
            self._refuse("InvalidExpressionType", f"{value.kind.value} cannot become {to.value}", expression)
        if to is Kind.DECIMAL and expression.sizes:
            sizes = ", ".join(map(str, expression.sizes))
            return Value(f"CAST({value.sql} AS DECIMAL({sizes}))", to)
        if to is Kind.TEXT:
            return Value(value.as_text(), to)
        return Value(moment(value.sql) if to is Kind.MOMENT and value.kind is Kind.TEXT else value.strictly(to), to)

    def _call(self, expression: tree.Call) -> Value:
        function = FUNCTIONS[expression.function]
        given = len(expression.arguments)
        made = [
            self._argument(expression, argument, wanted)
            for argument, wanted in zip(expression.arguments, function.takes, strict=False)
        ]
        if expression.function == "to_string":
            self._check_pattern(expression.arguments[1])
        template = function.sql if given == len(function.takes) else SHORTER[expression.function]
        return Value(template.format(*made, word=(expression.word or "").upper()), function.gives)

    def _argument(self, call: tree.Call, argument: tree.Expression, wanted: Kind) -> str:
        value = self.value(argument)
        if value.kind not in (wanted, Kind.ANY, Kind.NULL):
            remedy = "TO_TIMESTAMP makes one" if wanted is Kind.MOMENT else "CAST makes one"
            reason = f"{call.function.upper()} wants {wanted.value} here, not {value.kind.value}: {remedy}"
            self._refuse("IncorrectSqlFunctionArgumentType", reason, argument)
        return value.as_text() if wanted is Kind.TEXT else value.strictly(wanted)

    def _check_pattern(self, pattern: tree.Expression) -> None:
        code = "EvaluatorInvalidTimestampFormatPattern"
        if not (isinstance(pattern, tree.Literal) and pattern.sort == "text"):
            self._refuse(code, "the pattern of TO_STRING must be a text in quotes, as in 'yyyy-MM-dd'", pattern)
        if wrong := wrong_symbol(pattern.text):
            known = ", ".join(sorted(SYMBOLS, key=str.lower))
            self._refuse(code, f"{wrong} is not valid in a pattern: use {known}, S; quote text with ''", pattern)

    def _aggregate(self, expression: tree.Aggregate) -> Value:
        if expression.argument is None:
            return Value("count(1)", Kind.INTEGER)
        value = self.value(expression.argument)
        if expression.function == "count":
            return Value(f"count_if(NOT {self._is(value, 'null')})", Kind.INTEGER)
        moments = expression.function in ("min", "max") and value.kind is Kind.MOMENT
        if value.kind not in (*NUMBERS, Kind.ANY, Kind.NULL) and not moments:
            reason = f"{expression.function.upper()} wants numbers, not {value.kind.value}"
            self._refuse("IncorrectSqlFunctionArgumentType", reason, expression.argument)
        if value.kind in (Kind.ANY, Kind.NULL):
            value = Value(value.strictly(Kind.DECIMAL), Kind.DECIMAL)
        kind = Kind.FLOAT if expression.function == "avg" and value.kind is Kind.INTEGER else value.kind
        return Value(f"{expression.function}({value.sql})", kind)

    def _number(self, expression: tree.Expression, operator: str) -> Value:
        value = self.value(expression)
        if value.kind not in (*NUMBERS, Kind.ANY, Kind.NULL):
            self._refuse("InvalidExpressionType", f"{operator} wants numbers, not {value.kind.value}", expression)
        return value.as_number()

    def _text(self, expression: tree.Expression, operator: str) -> str:
        value = self.value(expression)
        if value.kind not in (Kind.TEXT, Kind.ANY, Kind.NULL):
            code = "LikeInvalidInputs" if operator == "LIKE" else "InvalidExpressionType"
            reason = f"{operator} requires texts, not {value.kind.value}: CAST(… AS STRING) makes one"
            self._refuse(code, reason, expression)
        return value.as_text()

    def _negated(self, condition: str, negated: bool) -> Value:
        return Value(f"(NOT {condition})" if negated else condition, Kind.BOOLEAN)

    def _refuse(self, code: str, reason: str, at: tree.Expression) -> NoReturn:
        raise SelectError(code, reason, self._sql, at.at)


def _literal(found: tree.Literal, sql: str) -> Value:
    """Return the value of a literal."""
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
    """Return an Ion timestamp in Spark's syntax."""
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
