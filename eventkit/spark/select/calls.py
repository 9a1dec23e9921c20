"""Reading what has a syntax of its own: CASE, CAST, and the calls of functions."""

from collections.abc import Callable

from . import tree
from .cursor import Cursor
from .functions import AGGREGATES, CONDITIONAL, DATED, FUNCTIONS, PARTS, TYPES
from .tokens import Sort
from .tree import Expression

Read = Callable[[Cursor], Expression]
"""How an expression is read; `expressions` hands itself over."""

_OPEN = "ParseExpectedLeftParenBuiltinFunctionCall"
_CLOSE = "ParseExpectedRightParenBuiltinFunctionCall"


def case(cursor: Cursor, read: Read, at: int) -> Expression:
    """What follows the word CASE."""
    operand = None if cursor.is_word("when") else read(cursor)
    whens = []
    while cursor.word("when"):
        condition = read(cursor)
        cursor.need_word("then", "WHEN")
        whens.append((condition, read(cursor)))
    if not whens:
        cursor.refuse("ParseExpectedWhenClause", f"CASE wants WHEN, not {cursor.shown}")
    otherwise = read(cursor) if cursor.word("else") else None
    cursor.need_word("end", "CASE")
    return tree.Case(operand, tuple(whens), otherwise, at=at)


def cast(cursor: Cursor, read: Read, at: int) -> Expression:
    """What follows the word CAST."""
    cursor.need_sign("(", "CAST", "ParseExpectedLeftParenAfterCast")
    operand = read(cursor)
    cursor.need_word("as", "CAST")
    token = cursor.token
    type = TYPES.get(token.text.lower()) if token.sort is Sort.NAME else None
    if type is None:
        known = ", ".join(name.upper() for name in TYPES)
        cursor.refuse("ParseExpectedTypeName", f"there is no type {token.shown}: there is {known}")
    cursor.take()
    sizes = _sizes(cursor, token.text) if type == "decimal" else ()
    if cursor.is_sign("("):
        cursor.refuse("ParseInvalidTypeParam", f"{token.text.upper()} has no size; DECIMAL has")
    cursor.need_sign(")", "CAST")
    return tree.Cast(operand, type, sizes, at=at)


def _sizes(cursor: Cursor, of: str) -> tuple[int, ...]:
    at = cursor.token.position
    if not cursor.sign("("):
        return ()
    sizes = [cursor.need_integer(of.upper(), "ParseInvalidTypeParam")]
    if cursor.sign(","):
        sizes.append(cursor.need_integer(of.upper(), "ParseInvalidTypeParam"))
    cursor.need_sign(")", of.upper())
    if not 1 <= sizes[0] <= 38 or sizes[-1] > sizes[0]:
        reason = "a DECIMAL has 1 to 38 digits, of which no more are behind the point"
        cursor.refuse("ParseInvalidTypeParam", reason, at)
    return tuple(sizes)


def call(cursor: Cursor, read: Read) -> Expression:
    """The call of a function, the name of which is next."""
    token = cursor.take()
    function, at = token.text.lower(), token.position
    cursor.need_sign("(", token.text.upper(), _OPEN)
    if function in AGGREGATES:
        return _aggregate(cursor, read, function, at)
    if function not in FUNCTIONS and function not in CONDITIONAL:
        cursor.refuse("UnsupportedFunction", _unknown(token.text), at)
    word = None
    arguments: list[Expression] = []
    if function in DATED:
        word = _part(cursor, token.text)
        cursor.need_sign(",", token.text.upper())
    elif function == "extract":
        word = _part(cursor, token.text)
        cursor.need_word("from", "EXTRACT")
    elif function == "trim":
        side = cursor.word("leading", "trailing", "both")
        word = side.text if side else "both"
        if not cursor.is_word("from"):
            arguments.append(read(cursor))
        if cursor.word("from"):
            arguments.insert(0, read(cursor))
    if function != "trim" and not cursor.is_sign(")"):
        arguments.append(read(cursor))
        if function == "substring" and cursor.word("from"):
            arguments.append(read(cursor))
            if cursor.word("for"):
                arguments.append(read(cursor))
        while cursor.sign(","):
            arguments.append(read(cursor))
    _counted(cursor, function, len(arguments), at)
    cursor.need_sign(")", token.text.upper(), _CLOSE)
    return tree.Call(function, tuple(arguments), word, at=at)


def _counted(cursor: Cursor, function: str, found: int, at: int) -> None:
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


def _aggregate(cursor: Cursor, read: Read, function: str, at: int) -> Expression:
    if cursor.is_word("distinct"):
        reason = f"S3 Select has no {function.upper()}(DISTINCT …): use eventkit query, or Spark itself"
        cursor.refuse("UnsupportedSqlStructure", reason)
    cursor.word("all")
    argument = None
    if star := cursor.sign("*"):
        if function != "count":
            cursor.refuse("ParseUnsupportedCallWithStar", f"{function.upper()} wants a value, not *", star.position)
    elif cursor.is_sign(")"):
        cursor.refuse("ParseNonUnaryAgregateFunctionCall", f"{function.upper()} wants a value, and there is none")
    else:
        argument = read(cursor)
    if cursor.is_sign(","):
        cursor.refuse("ParseNonUnaryAgregateFunctionCall", f"{function.upper()} wants one value, not several")
    cursor.need_sign(")", function.upper(), _CLOSE)
    return tree.Aggregate(function, argument, at=at)


def _part(cursor: Cursor, function: str) -> str:
    part = cursor.token.text.lower()
    if cursor.token.sort is not Sort.NAME or part not in PARTS:
        known = ", ".join(PARTS)
        reason = f"{function.upper()} wants a part of a date ({known}), not {cursor.shown}; moments are in UTC"
        cursor.refuse("ParseExpectedDatePart", reason)
    cursor.take()
    return part


def _unknown(name: str) -> str:
    import difflib

    known = [*FUNCTIONS, *CONDITIONAL, *AGGREGATES, "cast"]
    close = difflib.get_close_matches(name.lower(), known, 1, 0.7)
    meant = f"did you mean {close[0].upper()}?" if close else "it has " + ", ".join(sorted(map(str.upper, known)))
    return f"S3 Select has no function {name}: {meant}"
