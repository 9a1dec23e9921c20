"""A place among the tokens of a query, which goes forward, and says what is wrong where it stands."""

from typing import NoReturn

from .refusing import SelectError
from .tokens import Sort, Token, tokens

_DEEPEST = 64
"""Brackets, functions and NOTs within each other: Python and Spark both walk trees by recursion."""


class Cursor:
    """Reads *sql* token by token."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self._tokens = tokens(sql)
        self._place = 0
        self._depth = 0

    @property
    def token(self) -> Token:
        """The next one."""
        return self._tokens[self._place]

    @property
    def after(self) -> Token:
        """The one behind it."""
        return self._tokens[min(self._place + 1, len(self._tokens) - 1)]

    def take(self) -> Token:
        """The next one, and go on."""
        token = self.token
        if token.sort is not Sort.END:
            self._place += 1
        return token

    def is_word(self, *words: str) -> bool:
        """Whether one of these keywords is next."""
        return self.token.sort is Sort.KEYWORD and self.token.text in words

    def is_sign(self, *signs: str) -> bool:
        """Whether one of these signs is next."""
        return self.token.sort is Sort.SIGN and self.token.text in signs

    def word(self, *words: str) -> Token | None:
        """Take one of these keywords if it is next."""
        return self.take() if self.is_word(*words) else None

    def sign(self, *signs: str) -> Token | None:
        """Take one of these signs if it is next."""
        return self.take() if self.is_sign(*signs) else None

    def need_word(self, word: str, after: str) -> Token:
        """Take this keyword, which has to come."""
        return self.word(word) or self.refuse("ParseExpectedKeyword", f"{after} wants {word.upper()}, not {self.shown}")

    def need_sign(self, sign: str, after: str, code: str = "ParseExpectedTokenType") -> Token:
        """Take this sign, which has to come."""
        return self.sign(sign) or self.refuse(code, f"{after} wants {sign}, not {self.shown}")

    def need_integer(self, after: str, code: str = "ParseExpectedNumber") -> int:
        """Take a whole number, which has to come."""
        if self.token.sort is not Sort.INTEGER or len(self.token.text) > 18:
            self.refuse(code, f"{after} wants a whole number, not {self.shown}")
        return int(self.take().text)

    @property
    def shown(self) -> str:
        """What is next, in a message."""
        return self.token.shown

    def refuse(self, code: str, reason: str, at: int | None = None) -> NoReturn:
        """The query is wrong here, or *at* another place."""
        raise SelectError(code, reason, self.sql, self.token.position if at is None else at)

    def __enter__(self) -> None:
        """Go one level deeper."""
        self._depth += 1
        if self._depth > _DEEPEST:
            self.refuse("UnsupportedSyntax", f"more than {_DEEPEST} levels within each other: make it flatter")

    def __exit__(self, *_error: object) -> None:
        self._depth -= 1
