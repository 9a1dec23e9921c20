"""A query as a tree of values: what `grammar` makes and `checking` and `translating` walk.

``at`` is where an expression begins in the query; two expressions that differ in nothing else are equal.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Expression:
    """Anything that has a value."""

    at: int = field(default=0, compare=False, kw_only=True)


@dataclass(frozen=True)
class Literal(Expression):
    """A value that stands in the query.

    ``sort`` is integer, decimal, float, text, moment, boolean, null or missing; ``text`` its spelling, if it has one.
    """

    sort: str
    text: str = ""


@dataclass(frozen=True)
class Name:
    """A step of a path to a field; unless it was quoted, any case will do."""

    text: str
    quoted: bool = False


Step = Name | int
"""A field, or the place in an array."""


@dataclass(frozen=True)
class Path(Expression):
    """A column, or what lies in one."""

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
    """Two or more under ``and`` or ``or``."""

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
    """``IS NULL`` or ``IS MISSING``: what is missing is null as well."""

    operand: Expression
    what: str
    negated: bool = False


@dataclass(frozen=True)
class Case(Expression):
    """With an ``operand`` that is compared with each WHEN, or without one, where each WHEN is a condition."""

    operand: Expression | None
    whens: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None = None


@dataclass(frozen=True)
class Cast(Expression):
    """``type`` is a name of our own, as `checking.KINDS` has them; ``sizes`` those of a decimal."""

    operand: Expression
    type: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Call(Expression):
    """A function of the table in `functions`, by its lower-case name; ``word`` is a part of a date or a side."""

    function: str
    arguments: tuple[Expression, ...]
    word: str | None = None


@dataclass(frozen=True)
class Aggregate(Expression):
    """``argument`` is None for ``COUNT(*)``."""

    function: str
    argument: Expression | None


@dataclass(frozen=True)
class Column:
    """One of the columns that come out."""

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
    """``columns`` is None for ``SELECT *``."""

    columns: tuple[Column, ...] | None
    source: Source
    where: Expression | None = None
    limit: int | None = None
