"""The syntax tree of a query, which `grammar` creates and `translation` walks.

``at`` is the position of an expression in the query, which is ignored when expressions are compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields


@dataclass(frozen=True)
class Expression:
    """An expression with a value."""

    at: int = field(default=0, compare=False, kw_only=True)

    @property
    def children(self) -> "Iterator[Expression]":
        """The expressions that this one consists of."""
        for own in fields(self):
            yield from _within(getattr(self, own.name))

    @property
    def parts(self) -> "Iterator[Expression]":
        """The expression, and all expressions in it."""
        yield self
        for child in self.children:
            yield from child.parts


def _within(value: object) -> Iterator[Expression]:
    if isinstance(value, Expression):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _within(item)


@dataclass(frozen=True)
class Literal(Expression):
    """A literal.

    ``sort`` is integer, decimal, float, text, moment, boolean, null or missing; ``text`` its spelling, if it has one.
    """

    sort: str
    text: str = ""


@dataclass(frozen=True)
class Name:
    """A path step to a field; unless quoted, it matches any case."""

    text: str
    quoted: bool = False


Step = Name | int
"""A field, or an index into an array."""


@dataclass(frozen=True)
class Path(Expression):
    """A column, or a value inside one."""

    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Unary(Expression):
    """``-``, ``+`` or ``not``."""

    operator: str
    operand: Expression


@dataclass(frozen=True)
class Binary(Expression):
    """Arithmetic, ``||``, or a comparison."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Several(Expression):
    """Two or more conditions under ``and`` or ``or``."""

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class Between(Expression):
    operand: Expression
    low: Expression
    high: Expression
    negated: bool = False


@dataclass(frozen=True)
class In(Expression):
    operand: Expression
    members: tuple[Expression, ...]
    negated: bool = False


@dataclass(frozen=True)
class Like(Expression):
    operand: Expression
    pattern: Expression
    escape: Expression | None = None
    negated: bool = False


@dataclass(frozen=True)
class Is(Expression):
    """``IS NULL`` or ``IS MISSING``: a missing value is null as well."""

    operand: Expression
    what: str
    negated: bool = False


@dataclass(frozen=True)
class Case(Expression):
    """A CASE with an ``operand`` that is compared with each WHEN, or without one, where each WHEN is a condition."""

    operand: Expression | None
    whens: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None = None


@dataclass(frozen=True)
class Cast(Expression):
    """A CAST; ``type`` is a type in `kinds.TYPES`; ``sizes`` are those of a decimal."""

    operand: Expression
    type: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Call(Expression):
    """A call of a function in `kinds`, by its lower-case name; ``word`` is a part of a date or a side."""

    function: str
    arguments: tuple[Expression, ...]
    word: str | None = None


@dataclass(frozen=True)
class Aggregate(Expression):
    """An aggregate; ``argument`` is None for ``COUNT(*)``."""

    function: str
    argument: Expression | None


@dataclass(frozen=True)
class Column:
    """A column of the result."""

    expression: Expression
    alias: str | None = None


@dataclass(frozen=True)
class Source:
    """The FROM; a step that is None is ``[*]``: every element."""

    steps: tuple[Step | None, ...]
    alias: Name | None
    at: int = field(default=0, compare=False, kw_only=True)


@dataclass(frozen=True)
class Query:
    """A query; ``columns`` is None for ``SELECT *``."""

    columns: tuple[Column, ...] | None
    source: Source
    where: Expression | None = None
    limit: int | None = None
