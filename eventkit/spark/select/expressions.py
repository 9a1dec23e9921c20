"""Reading an expression: from OR, which binds least, to what stands alone."""

from . import tree
from .calls import call, case, cast
from .cursor import Cursor
from .tokens import Sort
from .tree import Expression

_LONGEST_CHAIN = 200
"""Operators of arithmetic in a row, which make a tree as deep."""

_LITERALS = {
    Sort.INTEGER: "integer",
    Sort.DECIMAL: "decimal",
    Sort.FLOAT: "float",
    Sort.TEXT: "text",
    Sort.MOMENT: "moment",
}
_WORDS = {"true": ("boolean", "true"), "false": ("boolean", "false"), "null": ("null", ""), "missing": ("missing", "")}
_COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")


def expression(cursor: Cursor) -> Expression:
    """The expression that begins here."""
    with cursor:
        return _several(cursor, "or")


def _several(cursor: Cursor, operator: str) -> Expression:
    at = cursor.token.position
    operands = [_conjunction(cursor) if operator == "or" else _negation(cursor)]
    while cursor.word(operator):
        operands.append(_conjunction(cursor) if operator == "or" else _negation(cursor))
    return operands[0] if len(operands) == 1 else tree.Several(operator, tuple(operands), at=at)


def _conjunction(cursor: Cursor) -> Expression:
    return _several(cursor, "and")


def _negation(cursor: Cursor) -> Expression:
    if token := cursor.word("not"):
        with cursor:
            return tree.Unary("not", _negation(cursor), at=token.position)
    return _predicate(cursor)


def _predicate(cursor: Cursor) -> Expression:
    """What is compared, at most once: ``a < b < c`` is none."""
    left = _sum(cursor)
    if token := cursor.sign(*_COMPARISONS):
        operator = "<>" if token.text == "!=" else token.text
        found: Expression = tree.Binary(operator, left, _sum(cursor), at=token.position)
    elif token := cursor.word("is"):
        negated = cursor.word("not") is not None
        what = cursor.word("null", "missing")
        if what is None:
            cursor.refuse("ParseExpectedKeyword", f"IS wants NULL or MISSING, not {cursor.shown}")
        found = tree.Is(left, what.text, negated, at=token.position)
    else:
        at = cursor.token.position
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
            cursor.refuse("ParseExpectedKeyword", f"NOT wants BETWEEN, IN or LIKE here, not {cursor.shown}")
        else:
            return left
    if cursor.is_sign(*_COMPARISONS) or cursor.is_word("is", "between", "in", "like"):
        cursor.refuse("ParseUnexpectedToken", f"{cursor.shown} after a comparison: put brackets around one of them")
    return found


def _members(cursor: Cursor) -> tuple[Expression, ...]:
    cursor.need_sign("(", "IN", "ParseExpectedMember")
    if cursor.is_word("select"):
        cursor.refuse("UnsupportedSqlStructure", "S3 Select has no query in a query: write the values of IN themselves")
    members = [expression(cursor)]
    while cursor.sign(","):
        members.append(expression(cursor))
    cursor.need_sign(")", "IN")
    return tuple(members)


def _sum(cursor: Cursor) -> Expression:
    found = _product(cursor)
    for _ in range(_LONGEST_CHAIN):
        token = cursor.sign("+", "-", "||")
        if token is None:
            return found
        found = tree.Binary(token.text, found, _product(cursor), at=token.position)
    return cursor.refuse("UnsupportedSyntax", f"more than {_LONGEST_CHAIN} operators in a row: make it shorter")


def _product(cursor: Cursor) -> Expression:
    found = _signed(cursor)
    for _ in range(_LONGEST_CHAIN):
        token = cursor.sign("*", "/", "%")
        if token is None:
            return found
        found = tree.Binary(token.text, found, _signed(cursor), at=token.position)
    return cursor.refuse("UnsupportedSyntax", f"more than {_LONGEST_CHAIN} operators in a row: make it shorter")


def _signed(cursor: Cursor) -> Expression:
    if token := cursor.sign("-", "+"):
        with cursor:
            return tree.Unary(token.text, _signed(cursor), at=token.position)
    return _alone(cursor)


def _alone(cursor: Cursor) -> Expression:
    token = cursor.token
    if token.sort in _LITERALS:
        cursor.take()
        return tree.Literal(_LITERALS[token.sort], token.text, at=token.position)
    if found := cursor.word(*_WORDS):
        return tree.Literal(*_WORDS[found.text], at=token.position)
    if cursor.word("case"):
        return case(cursor, expression, token.position)
    if cursor.word("cast"):
        return cast(cursor, expression, token.position)
    if cursor.is_word("left", "right") and cursor.after.text == "(":
        cursor.refuse("UnsupportedFunction", f"S3 Select has no {token.shown}(): use SUBSTRING")
    if cursor.sign("("):
        if cursor.is_word("select"):
            cursor.refuse("UnsupportedSqlStructure", "S3 Select has no query in a query: run it by itself, first")
        inner = expression(cursor)
        cursor.need_sign(")", "the bracket")
        return inner
    if token.sort in (Sort.NAME, Sort.QUOTED):
        if token.sort is Sort.NAME and cursor.after.sort is Sort.SIGN and cursor.after.text == "(":
            return call(cursor, expression)
        return tree.Path(path(cursor), at=token.position)
    if token.sort is Sort.END:
        return cursor.refuse("ParseExpectedExpression", "the query ends where a value is needed")
    if token.sort is Sort.KEYWORD:
        reason = f'{token.shown} is a word of SQL, where a value is needed: write "{token.text}" if it is a name'
        return cursor.refuse("ParseUnexpectedKeyword", reason)
    return cursor.refuse("ParseUnexpectedToken", f"{token.shown} stands where a value is needed")


def path(cursor: Cursor) -> tuple[tree.Step, ...]:
    """Names and places in arrays, as in ``s.lines[0]."unit price"``."""
    steps: list[tree.Step] = [name(cursor)]
    while True:
        if cursor.sign("."):
            steps.append(name(cursor))
        elif cursor.sign("["):
            steps.append(place(cursor))
        else:
            return tuple(steps)


def name(cursor: Cursor) -> tree.Name:
    """A step of a path that is a field."""
    token = cursor.token
    if token.sort is Sort.KEYWORD:
        reason = f'{token.shown} is a word of SQL: write "{token.text}" if it is a name'
        cursor.refuse("ParseUnexpectedKeyword", reason)
    if cursor.is_sign("*"):
        cursor.refuse("ParseInvalidPathComponent", "a path has no .*: write * alone for all columns")
    if token.sort not in (Sort.NAME, Sort.QUOTED):
        cursor.refuse("ParseInvalidPathComponent", f"a path wants a name, not {token.shown}")
    cursor.take()
    return tree.Name(token.text, token.sort is Sort.QUOTED)


def place(cursor: Cursor) -> int | tree.Name:
    """A step of a path in square brackets, of which one was read: a number, or a name as a text."""
    if cursor.is_sign("*"):
        cursor.refuse("ParseInvalidPathComponent", "[*] can stand in the FROM alone: take one element, as in [0]")
    if cursor.token.sort is Sort.TEXT and cursor.token.text:
        found: int | tree.Name = tree.Name(cursor.take().text, quoted=True)
    else:
        found = cursor.need_integer("[", "ParseInvalidPathComponent")
        if found > 2**31 - 1:
            cursor.refuse("ParseInvalidPathComponent", "no array is as long as that")
    cursor.need_sign("]", "[")
    return found
