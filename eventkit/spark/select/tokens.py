"""A query as tokens: names, texts, numbers and signs, each with its place."""

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

from .refusing import SelectError

LONGEST = 256 * 1024
"""Bytes of a query, as on S3."""

_KEYWORDS = (
    "all and any as asc between both by case cast cross desc distinct else end escape except exists false fetch for "
    "from full group having in inner insert intersect into is join leading left like limit missing natural not null "
    "offset on or order outer right select some then trailing true union update using values when where with"
)
KEYWORDS = frozenset(_KEYWORDS.split())
"""Words that are no names unless they are quoted."""


class Sort(Enum):
    """What a token is."""

    NAME = auto()
    QUOTED = auto()
    KEYWORD = auto()
    TEXT = auto()
    INTEGER = auto()
    DECIMAL = auto()
    FLOAT = auto()
    MOMENT = auto()
    SIGN = auto()
    END = auto()


class Token(NamedTuple):
    """``text`` is the keyword in lower case, the name or text without its quotes, or what stands there."""

    sort: Sort
    text: str
    position: int

    @property
    def shown(self) -> str:
        """The token in a message."""
        match self.sort:
            case Sort.END:
                return "the end"
            case Sort.KEYWORD:
                return self.text.upper()
            case Sort.TEXT:
                return "the text " + repr(self.text)
            case Sort.QUOTED:
                return f'"{self.text}"'
            case _:
                return self.text


_PARTS = re.compile(
    r"""
      (?P<blank>   \s+ | --[^\n]* | /\*.*?\*/ )
    | (?P<quoted>  "(?:[^"]|"")*" )
    | (?P<text>    '(?:[^']|'')*' )
    | (?P<moment>  `[^`]*` )
    | (?P<float>   (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][+-]?[0-9]+ )
    | (?P<decimal> [0-9]+\.[0-9]* | \.[0-9]+ )
    | (?P<integer> [0-9]+ )
    | (?P<word>    [^\W\d]\w* )
    | (?P<sign>    <> | != | <= | >= | \|\| | [-+*/%=<>()\[\],.;] )
    """,
    re.VERBOSE | re.DOTALL,
)

_MOMENT = re.compile(
    r"\d{4}(?:T|-\d\d(?:T|-\d\d(?:T(?:\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d))?)?))",
)
"""A timestamp of Ion, from ``2007T`` to ``2007-02-23T12:14:33.079-08:00``."""

_UNENDED = {"'": "text", '"': "name", "`": "moment", "/": "comment"}
_OPERATORS = {"==": "=", "=>": ">=", "=<": "<=", "&&": "AND"}
"""What other languages have, and what to write instead."""


def tokens(sql: str) -> list[Token]:
    """All tokens of *sql*, and one that says where it ends."""
    if len(sql.encode("utf-8", "surrogatepass")) > LONGEST:
        raise SelectError("ExpressionTooLong", "the query has more than 256 KiB: make it shorter", sql)
    return [*_tokens(sql), Token(Sort.END, "", len(sql))]


def _tokens(sql: str) -> Iterator[Token]:
    position = 0
    while position < len(sql):
        if sql[position : position + 2] in _OPERATORS:
            wrong = sql[position : position + 2]
            raise SelectError("LexerInvalidOperator", f"there is no {wrong}: write {_OPERATORS[wrong]}", sql, position)
        found = _PARTS.match(sql, position)
        if found is None or (sql.startswith("/*", position) and found["blank"] is None):
            raise _invalid(sql, position)
        if found["blank"] is None:
            yield _token(sql, found)
        position = found.end()


def _token(sql: str, found: re.Match[str]) -> Token:
    text, position = found[0], found.start()
    match found.lastgroup:
        case "quoted":
            if text == '""':
                raise SelectError("LexerInvalidLiteral", "a name has at least one character", sql, position)
            return Token(Sort.QUOTED, text[1:-1].replace('""', '"'), position)
        case "text":
            return Token(Sort.TEXT, text[1:-1].replace("''", "'"), position)
        case "moment":
            if not _MOMENT.fullmatch(text[1:-1]):
                wanted = "between backticks stands a moment, as in `2026-01-31T08:00:00Z`"
                raise SelectError("LexerInvalidIONLiteral", wanted, sql, position)
            return Token(Sort.MOMENT, text[1:-1], position)
        case "word":
            lowered = text.lower()
            return Token(Sort.KEYWORD, lowered, position) if lowered in KEYWORDS else Token(Sort.NAME, text, position)
        case "integer" | "decimal" | "float" as sort:
            if sql[found.end() : found.end() + 1].isidentifier():
                raise SelectError("LexerInvalidLiteral", f"{text} ends in no number", sql, found.end())
            return Token(Sort[sort.upper()], text, position)
        case _:
            return Token(Sort.SIGN, text, position)


def _invalid(sql: str, position: int) -> SelectError:
    char = sql[position]
    if char in _UNENDED:
        what = _UNENDED[char]
        return SelectError("LexerInvalidLiteral", f"the {what} that begins here does not end", sql, position)
    return SelectError("LexerInvalidChar", f"{char!r} means nothing here: quote it if it is of a name", sql, position)
