"""The tokens of a query and a cursor in them, its syntax tree, and its errors, with S3's codes and their position."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

_LONGEST = 256 * 1024
"""The most bytes of a query, as in S3."""

_DEEPEST = 64
"""The most nested brackets, functions and NOTs: Python and Spark both walk trees recursively."""

_KEYWORDS = (
    "all and any as asc between both by case cast cross desc distinct else end escape except exists false fetch for "
    "from full group having in inner insert intersect into is join leading left like limit missing natural not null "
    "offset on or order outer right select some then trailing true union update using values when where with"
)
KEYWORDS = frozenset(_KEYWORDS.split())
"""Words that are not names unless they are quoted."""

_PARTS = re.compile(
    r"""
      (?P<blank>   \s+ | --[^\n]* | /\*.*?\*/ )
    | (?P<quoted>  "(?:[^"]|"")*" )
    | (?P<text>    '(?:[^']|'')*' )
    | (?P<moment>  `[^`]*` )
    | (?P<float>   (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][+-]?[0-9]+ )
    | (?P<decimal> [0-9]+\.[0-9]* | \.[0-9]+ )
    | (?P<integer> [0-9]+ )
    | (?P<name>    [^\W\d]\w* )
    | (?P<unended> ['"`] | /\* )
    | (?P<foreign> == | => | =< | && )
    | (?P<sign>    <> | != | <= | >= | \|\| | [-+*/%=<>()\[\],.;] )
    | (?P<invalid> . )
    """,
    re.VERBOSE | re.DOTALL,
)

_MOMENT = re.compile(
    r"\d{4}(?:T|-\d\d(?:T|-\d\d(?:T(?:\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d))?)?))",
)
"""A timestamp of Ion, from ``2007T`` to ``2007-02-23T12:14:33.079-08:00``."""

_UNENDED = {"'": "text", '"': "name", "`": "moment", "/*": "comment"}
_FOREIGN = {"==": "=", "=>": ">=", "=<": "<=", "&&": "AND"}
"""Operators of other languages, with their replacements."""


class SelectError(ValueError):
    """A query that cannot be answered.

    ``code`` is S3 Select's name for the reason, as in docs/sql.md, and ``position`` the offset in the query, from 0, or
    None.
    """

    def __init__(self, code: str, reason: str, sql: str = "", position: int | None = None) -> None:
        super().__init__(code, reason, sql, position)
        self.code = code
        self.reason = reason
        self.sql = sql
        self.position = position

    def __str__(self) -> str:
        if self.position is None:
            return f"{self.code}: {self.reason}"
        before = self.sql[: self.position]
        line, column = before.count("\n") + 1, self.position - (before.rfind("\n") + 1) + 1
        return f"{self.code} at line {line}, column {column}: {self.reason}"


class Token(NamedTuple):
    """A token; ``text`` is the keyword in lower case, the name or text without quotes, or the source text."""

    sort: str
    text: str
    position: int

    @property
    def shown(self) -> str:
        """The token in a message."""
        text = self.text
        special = {"end": "the end", "keyword": text.upper(), "text": f"the text {text!r}", "quoted": f'"{text}"'}
        return special.get(self.sort, text)


def _tokens(sql: str) -> Iterator[Token]:
    if len(sql.encode("utf-8", "surrogatepass")) > _LONGEST:
        raise SelectError("ExpressionTooLong", "the query has more than 256 KiB: make it shorter", sql)
    for found in _PARTS.finditer(sql):
        if found.lastgroup != "blank":
            yield _token(sql, found)
    yield Token("end", "", len(sql))


def _token(sql: str, found: re.Match[str]) -> Token:
    sort, text, position = str(found.lastgroup), found[0], found.start()
    match sort:
        case "quoted" | "text":
            if text == '""':
                raise SelectError("LexerInvalidLiteral", "a name has at least one character", sql, position)
            text = text[1:-1].replace(text[0] * 2, text[0])
        case "moment":
            text = text[1:-1]
            if not _MOMENT.fullmatch(text):
                wanted = "backticks must enclose a timestamp, as in `2026-01-31T08:00:00Z`"
                raise SelectError("LexerInvalidIONLiteral", wanted, sql, position)
        case "name" if text.lower() in KEYWORDS:
            sort, text = "keyword", text.lower()
        case "integer" | "decimal" | "float" if sql[found.end() : found.end() + 1].isidentifier():
            raise SelectError("LexerInvalidLiteral", f"{text} is not a valid number", sql, found.end())
        case "unended":
            reason = f"the {_UNENDED[text]} that begins here does not end"
            raise SelectError("LexerInvalidLiteral", reason, sql, position)
        case "foreign":
            raise SelectError("LexerInvalidOperator", f"there is no {text}: write {_FOREIGN[text]}", sql, position)
        case "invalid":
            reason = f"{text!r} is invalid here: quote it if it is part of a name"
            raise SelectError("LexerInvalidChar", reason, sql, position)
    return Token(sort, text, position)


class Cursor:
    """A cursor in the tokens of a query."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._tokens = list(_tokens(sql))
        self._place = 0
        self._depth = 0

    @property
    def next(self) -> Token:
        """The next token."""
        return self._tokens[self._place]

    @property
    def is_name(self) -> bool:
        """Whether the next token is a name."""
        return self.next.sort in ("name", "quoted")

    @property
    def is_call(self) -> bool:
        """Whether the token after the next one is an opening bracket."""
        after = self._tokens[min(self._place + 1, len(self._tokens) - 1)]
        return after.sort == "sign" and after.text == "("

    def take(self) -> Token:
        """Return the next token, and advance."""
        token = self.next
        self._place = min(self._place + 1, len(self._tokens) - 1)
        return token

    def is_next(self, *texts: str) -> bool:
        """Return whether the next token is one of these keywords or signs."""
        return self.next.sort in ("keyword", "sign") and self.next.text in texts

    def got(self, *texts: str) -> Token | None:
        """Take the next token if it is one of these keywords or signs."""
        return self.take() if self.is_next(*texts) else None

    def need(self, text: str, after: str, code: str = "") -> None:
        """Take this keyword or sign, or raise."""
        if not self.got(text):
            code = code or ("ParseExpectedKeyword" if text.isalpha() else "ParseExpectedTokenType")
            self.refuse(code, f"{after} wants {text.upper()}, not {self.next.shown}")

    def integer(self, after: str, code: str = "ParseExpectedNumber") -> int:
        """Take a whole number, or raise."""
        if self.next.sort != "integer" or len(self.next.text) > 18:
            self.refuse(code, f"{after} requires a whole number, not {self.next.shown}")
        return int(self.take().text)

    def refuse(self, code: str, reason: str, at: int | None = None) -> NoReturn:
        """Raise an error at the next token, or *at* another position."""
        raise SelectError(code, reason, self._sql, self.next.position if at is None else at)

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Go one level deeper."""
        self._depth += 1
        if self._depth > _DEEPEST:
            self.refuse("UnsupportedSyntax", f"more than {_DEEPEST} nested levels: simplify the query")
        yield
        self._depth -= 1


LITERALS = ("integer", "decimal", "float", "text", "moment", "boolean", "null", "missing")


class Name(NamedTuple):
    """A path step to a field; unless quoted, it matches any case."""

    text: str
    quoted: bool = False


Step = Name | int
"""A field, or an index into an array."""


@dataclass(frozen=True)
class Node:
    """An expression: a literal, a path, or an operator or function with the *parts* to which it applies.

    The *kind* of a literal is one of `LITERALS`, and *word* is its spelling.  That of a path is ``path``, with *steps*.
    Others have the operator or the function in lower case; *word* is then NULL or MISSING of an ``is``, the type of a
    ``cast``, the part of a date, or the side of a ``trim``.  A ``case`` has conditions and results in turn, and a
    ``case of`` first the value to compare; a part that is left over is the ELSE.  The position in the query, *at*, is
    ignored when expressions are compared.
    """

    kind: str
    parts: tuple["Node", ...] = ()
    word: str = ""
    steps: tuple[Step, ...] = ()
    at: int = field(default=0, compare=False, kw_only=True)

    @property
    def whole(self) -> "Iterator[Node]":
        """The expression, and all expressions in it."""
        yield self
        for part in self.parts:
            yield from part.whole


class Column(NamedTuple):
    """A column of the result."""

    expression: Node
    alias: str | None = None


class Order(NamedTuple):
    """A value by which rows are ordered."""

    expression: Node
    descending: bool = False


@dataclass(frozen=True)
class Query:
    """A query; *columns* is None for ``SELECT *``, and a step of the FROM for ``[*]``: every element."""

    columns: tuple[Column, ...] | None
    steps: tuple[Step | None, ...]
    alias: Name | None
    where: Node | None = None
    limit: int | None = None
    groups: tuple[Node, ...] = ()
    orders: tuple[Order, ...] = ()
    at: int = field(default=0, compare=False, kw_only=True)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of the result: their alias, their field or their number."""
        found = []
        for number, (expression, alias) in enumerate(self.columns or (), 1):
            last = expression.steps[-1] if expression.steps else None
            found.append(alias or (last.text if isinstance(last, Name) else f"_{number}"))
        return tuple(found)
