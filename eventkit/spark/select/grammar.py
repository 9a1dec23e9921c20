"""Parsing of a query: SELECT, FROM, WHERE and LIMIT, and expressions, from OR, which binds least, to single values.

A general SQL parser cannot take its place: it accepts more than S3 Select, and omits what the errors require, such as
positions, signs and extra commas.
"""

import difflib
from collections.abc import Callable
from typing import Literal

from . import tree
from .kinds import AGGREGATES, CONDITIONAL, DATED, FUNCTIONS, PARTS, TYPES
from .tokens import Cursor
from .tree import Expression

_BEYOND = {
    "group": "GROUP BY",
    "order": "ORDER BY",
    "having": "HAVING",
    "union": "UNION",
    "intersect": "INTERSECT",
    "except": "EXCEPT",
    "offset": "OFFSET",
    "fetch": "FETCH",
    **dict.fromkeys(("join", "inner", "left", "right", "full", "cross", "natural"), "JOIN"),
}
"""Common SQL that S3 Select does not have."""

_LONGEST_CHAIN = 200
"""The most consecutive arithmetic operators, which form a tree of that depth."""

_LITERALS = ("integer", "decimal", "float", "text", "moment")
_WORDS = {"true": ("boolean", "true"), "false": ("boolean", "false"), "null": ("null", ""), "missing": ("missing", "")}
_COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")


def parse(sql: str) -> tree.Query:
    """Parse *sql*, or raise `SelectError`."""
    cursor = Cursor(sql)
    _begin(cursor)
    columns = _columns(cursor)
    source = _source(cursor)
    where = _expression(cursor) if cursor.word("where") else None
    limit = cursor.need_integer("LIMIT") if cursor.word("limit") else None
    cursor.sign(";")
    if not cursor.is_end:
        _beyond(cursor)
        cursor.refuse("ParseUnexpectedToken", f"{cursor.shown} is found where the query should end")
    return tree.Query(columns, source, where, limit)


def _begin(cursor: Cursor) -> None:
    if cursor.is_end:
        cursor.refuse("ParseEmptySelect", "there is no query: write one, as in SELECT * FROM S3Object LIMIT 10")
    if cursor.word("select"):
        if cursor.is_word("distinct"):
            cursor.refuse("UnsupportedSqlStructure", "S3 Select has no DISTINCT: remove duplicates afterwards")
        cursor.word("all")
        return
    if cursor.is_word("with", "insert", "update", "values"):
        reason = f"S3 Select has no {cursor.shown}: a query is SELECT … FROM S3Object … WHERE … LIMIT …"
        cursor.refuse("UnsupportedSqlStructure", reason)
    cursor.refuse("ParseUnexpectedToken", f"a query must begin with SELECT, not {cursor.shown}")


def _columns(cursor: Cursor) -> tuple[tree.Column, ...] | None:
    if cursor.is_word("from") or cursor.is_end:
        cursor.refuse("ParseEmptySelect", "SELECT is empty: name columns, or write *")
    columns: list[tree.Column] = []
    while True:
        if (star := cursor.sign("*")) and not columns and not cursor.is_sign(","):
            return None
        if star:
            at = star.position if columns else None
            reason = "* must be alone: omit it, or the other columns"
            cursor.refuse("ParseAsteriskIsNotAloneInSelectList", reason, at)
        found = _expression(cursor)
        alias = _alias(cursor)
        columns.append(tree.Column(found, alias.text if alias else None))
        if not cursor.sign(","):
            return tuple(columns)


def _alias(cursor: Cursor) -> tree.Name | None:
    if cursor.word("as") and not cursor.is_name:
        cursor.refuse("ParseExpectedIdentForAlias", f"AS needs a name, not {cursor.shown}: quote it if it is one")
    return _name(cursor) if cursor.is_name else None


def _source(cursor: Cursor) -> tree.Source:
    if not cursor.word("from"):
        if cursor.is_end:
            cursor.refuse("ParseSelectMissingFrom", "there is no FROM: a query reads FROM S3Object")
        cursor.refuse("ParseUnexpectedToken", f"{cursor.shown} is found where FROM or a comma is required")
    at = cursor.token.position
    if cursor.is_sign("("):
        cursor.refuse("UnsupportedSqlStructure", "S3 Select has no subqueries: read FROM S3Object")
    table = _name(cursor)
    if table.text.lower() != "s3object":
        cursor.refuse("InvalidDataSource", f"the only table is S3Object, the file: not {table.text}", at)
    steps: list[tree.Step | None] = []
    while sign := cursor.sign(".", "["):
        if sign.text == ".":
            if cursor.is_sign("*"):
                cursor.refuse("ParseInvalidPathComponent", "a path cannot contain .*: name a field, or write [*]")
            steps.append(_name(cursor))
        elif cursor.sign("*"):
            cursor.need_sign("]", "[*")
            steps.append(None)
        else:
            steps.append(_place(cursor))
    alias = _alias(cursor)
    if cursor.is_sign(","):
        cursor.refuse("UnsupportedSqlStructure", "S3 Select reads one table: omit the tables after the comma")
    _beyond(cursor)
    return tree.Source(tuple(steps), alias, at=at)


def _beyond(cursor: Cursor) -> None:
    if cursor.is_word(*_BEYOND):
        what = _BEYOND[cursor.token.text]
        reason = f"S3 Select has no {what}: select the rows without it, and do the rest in Spark or in the application"
        cursor.refuse("UnsupportedSqlStructure", reason)


def _expression(cursor: Cursor) -> Expression:
    with cursor:
        return _several(cursor, "or", lambda cursor: _several(cursor, "and", _negation))


def _several(cursor: Cursor, operator: Literal["and", "or"], read: Callable[[Cursor], Expression]) -> Expression:
    at = cursor.token.position
    operands = [read(cursor)]
    while cursor.word(operator):
        operands.append(read(cursor))
    return operands[0] if len(operands) == 1 else tree.Several(operator, tuple(operands), at=at)


def _expressions(cursor: Cursor) -> list[Expression]:
    """Parse one or more expressions with commas between them."""
    found = [_expression(cursor)]
    while cursor.sign(","):
        found.append(_expression(cursor))
    return found


def _negation(cursor: Cursor) -> Expression:
    if token := cursor.word("not"):
        with cursor:
            return tree.Unary("not", _negation(cursor), at=token.position)
    return _predicate(cursor)


def _predicate(cursor: Cursor) -> Expression:
    """Parse an operand and at most one comparison: ``a < b < c`` is an error."""
    left = _sum(cursor)
    at = cursor.token.position
    if token := cursor.sign(*_COMPARISONS):
        operator = "<>" if token.text == "!=" else token.text
        found: Expression = tree.Binary(operator, left, _sum(cursor), at=at)
    elif cursor.word("is"):
        negated = cursor.word("not") is not None
        what = cursor.word("null", "missing")
        if what is None:
            cursor.refuse("ParseExpectedKeyword", f"IS requires NULL or MISSING, not {cursor.shown}")
        found = tree.Is(left, what.text, negated, at=at)
    else:
        negated = cursor.word("not") is not None
        if cursor.word("between"):
            low = _sum(cursor)
            cursor.need_word("and", "BETWEEN")
            found = tree.Between(left, low, _sum(cursor), negated, at=at)
        elif cursor.word("in"):
            found = tree.In(left, _members(cursor), negated, at=at)
        elif cursor.word("like"):
            pattern = _sum(cursor)
            escape = _sum(cursor) if cursor.word("escape") else None
            found = tree.Like(left, pattern, escape, negated, at=at)
        elif negated:
            cursor.refuse("ParseExpectedKeyword", f"NOT requires BETWEEN, IN or LIKE here, not {cursor.shown}")
        else:
            return left
    if cursor.is_sign(*_COMPARISONS) or cursor.is_word("is", "between", "in", "like"):
        cursor.refuse("ParseUnexpectedToken", f"{cursor.shown} after a comparison: put brackets around one of them")
    return found


def _members(cursor: Cursor) -> tuple[Expression, ...]:
    cursor.need_sign("(", "IN", "ParseExpectedMember")
    if cursor.is_word("select"):
        cursor.refuse("UnsupportedSqlStructure", "S3 Select has no subqueries: list the values of IN")
    members = _expressions(cursor)
    cursor.need_sign(")", "IN")
    return tuple(members)


def _sum(cursor: Cursor) -> Expression:
    return _chain(cursor, ("+", "-", "||"), lambda cursor: _chain(cursor, ("*", "/", "%"), _signed))


def _chain(cursor: Cursor, operators: tuple[str, ...], read: Callable[[Cursor], Expression]) -> Expression:
    found = read(cursor)
    for _ in range(_LONGEST_CHAIN):
        token = cursor.sign(*operators)
        if token is None:
            return found
        found = tree.Binary(token.text, found, read(cursor), at=token.position)
    return cursor.refuse("UnsupportedSyntax", f"more than {_LONGEST_CHAIN} operators in a row: shorten the query")


def _signed(cursor: Cursor) -> Expression:
    if token := cursor.sign("-", "+"):
        with cursor:
            return tree.Unary(token.text, _signed(cursor), at=token.position)
    return _alone(cursor)


def _alone(cursor: Cursor) -> Expression:
    token = cursor.token
    if token.sort in _LITERALS:
        return tree.Literal(token.sort, cursor.take().text, at=token.position)
    if cursor.word(*_WORDS):
        return tree.Literal(*_WORDS[token.text], at=token.position)
    if cursor.word("case"):
        return _case(cursor, token.position)
    if cursor.word("cast"):
        return _cast(cursor, token.position)
    if cursor.is_word("left", "right") and cursor.is_call:
        cursor.refuse("UnsupportedFunction", f"S3 Select has no {token.shown}(): use SUBSTRING")
    if cursor.sign("("):
        if cursor.is_word("select"):
            cursor.refuse("UnsupportedSqlStructure", "S3 Select has no subqueries: run it separately, first")
        inner = _expression(cursor)
        cursor.need_sign(")", "the bracket")
        return inner
    if cursor.is_name:
        return _call(cursor) if token.sort == "name" and cursor.is_call else _path(cursor)
    if cursor.is_end:
        return cursor.refuse("ParseExpectedExpression", "the query ends where a value is required")
    if token.sort == "keyword":
        reason = f'{token.shown} is a keyword, where a value is required: write "{token.text}" if it is a name'
        return cursor.refuse("ParseUnexpectedKeyword", reason)
    return cursor.refuse("ParseUnexpectedToken", f"{token.shown} is found where a value is required")


def _path(cursor: Cursor) -> Expression:
    """Parse names and array indexes, as in ``s.lines[0]."unit price"``."""
    at = cursor.token.position
    steps: list[tree.Step] = [_name(cursor)]
    while sign := cursor.sign(".", "["):
        steps.append(_name(cursor) if sign.text == "." else _place(cursor))
    return tree.Path(tuple(steps), at=at)


def _name(cursor: Cursor) -> tree.Name:
    """Parse a field of a path."""
    token = cursor.token
    if token.sort == "keyword":
        reason = f'{token.shown} is a keyword: write "{token.text}" if it is a name'
        cursor.refuse("ParseUnexpectedKeyword", reason)
    if cursor.is_sign("*"):
        cursor.refuse("ParseInvalidPathComponent", "a path cannot contain .*: write * alone for all columns")
    if not cursor.is_name:
        cursor.refuse("ParseInvalidPathComponent", f"a path requires a name, not {token.shown}")
    return tree.Name(cursor.take().text, token.sort == "quoted")


def _place(cursor: Cursor) -> tree.Step:
    """Parse the rest of a path step in square brackets: a number, or a name as a text."""
    if cursor.is_sign("*"):
        cursor.refuse("ParseInvalidPathComponent", "[*] is allowed only in FROM: select one element, as in [0]")
    if cursor.token.sort == "text" and cursor.token.text:
        found: tree.Step = tree.Name(cursor.take().text, quoted=True)
    else:
        found = cursor.need_integer("[", "ParseInvalidPathComponent")
        if found > 2**31 - 1:
            cursor.refuse("ParseInvalidPathComponent", "the index is too large")
    cursor.need_sign("]", "[")
    return found


def _case(cursor: Cursor, at: int) -> Expression:
    """Parse the rest after the word CASE."""
    operand = None if cursor.is_word("when") else _expression(cursor)
    whens = []
    while cursor.word("when"):
        condition = _expression(cursor)
        cursor.need_word("then", "WHEN")
        whens.append((condition, _expression(cursor)))
    if not whens:
        cursor.refuse("ParseExpectedWhenClause", f"CASE requires WHEN, not {cursor.shown}")
    otherwise = _expression(cursor) if cursor.word("else") else None
    cursor.need_word("end", "CASE")
    return tree.Case(operand, tuple(whens), otherwise, at=at)


def _cast(cursor: Cursor, at: int) -> Expression:
    """Parse the rest after the word CAST."""
    cursor.need_sign("(", "CAST", "ParseExpectedLeftParenAfterCast")
    operand = _expression(cursor)
    cursor.need_word("as", "CAST")
    token = cursor.token
    type = TYPES.get(token.text.lower()) if token.sort == "name" else None
    if type is None:
        known = ", ".join(name.upper() for name in TYPES)
        cursor.refuse("ParseExpectedTypeName", f"there is no type {token.shown}: the types are {known}")
    cursor.take()
    sizes = _sizes(cursor, token.text.upper()) if type == "decimal" else ()
    if cursor.is_sign("("):
        cursor.refuse("ParseInvalidTypeParam", f"{token.text.upper()} has no size; DECIMAL has")
    cursor.need_sign(")", "CAST")
    return tree.Cast(operand, type, sizes, at=at)


def _sizes(cursor: Cursor, of: str) -> tuple[int, ...]:
    at = cursor.token.position
    if not cursor.sign("("):
        return ()
    sizes = [cursor.need_integer(of, "ParseInvalidTypeParam")]
    if cursor.sign(","):
        sizes.append(cursor.need_integer(of, "ParseInvalidTypeParam"))
    cursor.need_sign(")", of)
    if not 1 <= sizes[0] <= 38 or sizes[-1] > sizes[0]:
        reason = "a DECIMAL must have 1 to 38 digits, and a scale within them"
        cursor.refuse("ParseInvalidTypeParam", reason, at)
    return tuple(sizes)


def _call(cursor: Cursor) -> Expression:
    """Parse the call of a function: its name and a bracket are next."""
    token = cursor.take()
    function, shown, at = token.text.lower(), token.text.upper(), token.position
    cursor.take()
    if function in AGGREGATES:
        return _aggregate(cursor, function, at)
    if function not in FUNCTIONS and function not in CONDITIONAL:
        cursor.refuse("UnsupportedFunction", _unknown(token.text), at)
    word = None
    arguments: list[Expression] = []
    if function in DATED:
        word = _part(cursor, shown)
        cursor.need_sign(",", shown)
    elif function == "extract":
        word = _part(cursor, shown)
        cursor.need_word("from", "EXTRACT")
    if function == "trim":
        side = cursor.word("leading", "trailing", "both")
        word = side.text if side else "both"
        if not cursor.is_word("from"):
            arguments.append(_expression(cursor))
        if cursor.word("from"):
            arguments.insert(0, _expression(cursor))
    elif not cursor.is_sign(")"):
        arguments.append(_expression(cursor))
        if function == "substring" and cursor.word("from"):
            arguments.append(_expression(cursor))
            if cursor.word("for"):
                arguments.append(_expression(cursor))
        if cursor.sign(","):
            arguments += _expressions(cursor)
    _count(cursor, function, len(arguments), at)
    cursor.need_sign(")", shown, "ParseExpectedRightParenBuiltinFunctionCall")
    return tree.Call(function, tuple(arguments), word, at=at)


def _count(cursor: Cursor, function: str, found: int, at: int) -> None:
    """Raise if a function has too few or too many arguments."""
    most: int | None
    if function in CONDITIONAL:
        least, most = CONDITIONAL[function]
    else:
        most = len(FUNCTIONS[function].takes)
        least = most - FUNCTIONS[function].spare
    if found < least or (most is not None and found > most):
        wanted = f"{least} or more" if most is None else str(least) if least == most else f"{least} or {most}"
        reason = f"{function.upper()} takes {wanted} arguments, not {found}"
        cursor.refuse("EvaluatorInvalidArguments", reason, at)


def _aggregate(cursor: Cursor, function: str, at: int) -> Expression:
    shown = function.upper()
    if cursor.is_word("distinct"):
        reason = f"S3 Select has no {shown}(DISTINCT …): use eventkit query, or Spark itself"
        cursor.refuse("UnsupportedSqlStructure", reason)
    cursor.word("all")
    argument = None
    if star := cursor.sign("*"):
        if function != "count":
            cursor.refuse("ParseUnsupportedCallWithStar", f"{shown} requires a value, not *", star.position)
    elif cursor.is_sign(")"):
        cursor.refuse("ParseNonUnaryAgregateFunctionCall", f"{shown} requires a value")
    else:
        argument = _expression(cursor)
    if cursor.is_sign(","):
        cursor.refuse("ParseNonUnaryAgregateFunctionCall", f"{shown} requires one value, not several")
    cursor.need_sign(")", shown, "ParseExpectedRightParenBuiltinFunctionCall")
    return tree.Aggregate(function, argument, at=at)


def _part(cursor: Cursor, function: str) -> str:
    part = cursor.token.text.lower()
    if cursor.token.sort != "name" or part not in PARTS:
        known = ", ".join(PARTS)
        reason = f"{function} requires a part of a date ({known}), not {cursor.shown}; times are in UTC"
        cursor.refuse("ParseExpectedDatePart", reason)
    cursor.take()
    return part


def _unknown(name: str) -> str:
    known = [*FUNCTIONS, *CONDITIONAL, *AGGREGATES, "cast"]
    close = difflib.get_close_matches(name.lower(), known, 1, 0.7)
    meant = f"did you mean {close[0].upper()}?" if close else "it has " + ", ".join(sorted(map(str.upper, known)))
    return f"S3 Select has no function {name}: {meant}"
