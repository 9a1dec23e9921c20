"""The grammar of S3 Select: the parser of a query.

A parser of general SQL does not make it shorter. sqlglot, for example, keeps no positions of operators, CASE and types,
ignores a missing THEN or AND and extra commas, and drops a plus sign: only its productions of AND, OR and arithmetic
fit.
"""

import difflib
from collections.abc import Callable
from typing import NoReturn

from .kinds import AGGREGATES, COUNTS, PARTED, PARTS, TYPES
from .tokens import LITERALS, Column, Cursor, Name, Node, Order, Query, Step

_LONGEST_CHAIN = 200
"""The most consecutive arithmetic operators, which form a tree of that depth."""

_EXTENSIONS = {"group": "GROUP BY", "order": "ORDER BY"}
"""Clauses that only the service does not have: answered, unless the query is strict."""

_BEYOND = {
    **{word: word.upper() for word in ("having", "union", "intersect", "except", "offset", "fetch")},
    **dict.fromkeys(("join", "inner", "left", "right", "full", "cross", "natural"), "JOIN"),
}
"""Other common SQL that S3 Select does not have."""

_WORDS = {"true": ("boolean", "true"), "false": ("boolean", "false"), "null": ("null", ""), "missing": ("missing", "")}
_COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")


def parse(sql: str, strict: bool = False) -> Query:
    """Parse *sql*, or raise `SelectError`; with *strict*, also for what only S3 Select's service does not have."""
    return _Parser(sql, strict).query()


class _Parser(Cursor):
    """A parser, with a method for each part of a query."""

    def __init__(self, sql: str, strict: bool) -> None:
        super().__init__(sql)
        self._beyond = _BEYOND | _EXTENSIONS if strict else _BEYOND

    def query(self) -> Query:
        """Parse SELECT, FROM, WHERE, GROUP BY, ORDER BY and LIMIT."""
        self._select()
        columns = self._columns()
        steps, alias, at = self._from()
        where = self._expression() if self.got("where") else None
        self._refuse_beyond()
        groups: list[Node] = []
        if self.got("group"):
            self.need("by", "GROUP")
            groups = self._expressions()
        orders = self._orders() if self.got("order") else []
        limit = self.integer("LIMIT") if self.got("limit") else None
        self.got(";")
        if self.next.sort != "end":
            self._refuse_beyond()
            self.refuse("ParseUnexpectedToken", f"{self.next.shown} is found where the query should end")
        return Query(columns, steps, alias, where, limit, tuple(groups), tuple(orders), at=at)

    def _select(self) -> None:
        if self.next.sort == "end":
            self.refuse("ParseEmptySelect", "there is no query: write one, as in SELECT * FROM S3Object LIMIT 10")
        if self.got("select"):
            if self.is_next("distinct"):
                self._refuse_structure("DISTINCT: remove duplicates afterwards")
            self.got("all")
            return
        if self.is_next("with", "insert", "update", "values"):
            self._refuse_structure(f"{self.next.shown}: a query is SELECT … FROM S3Object … WHERE … LIMIT …")
        self.refuse("ParseUnexpectedToken", f"a query must begin with SELECT, not {self.next.shown}")

    def _columns(self) -> tuple[Column, ...] | None:
        if self.is_next("from") or self.next.sort == "end":
            self.refuse("ParseEmptySelect", "SELECT is empty: name columns, or write *")
        columns: list[Column] = []
        while True:
            if (star := self.got("*")) and not columns and not self.is_next(","):
                return None
            if star:
                at = star.position if columns else None
                reason = "* must be alone: omit it, or the other columns"
                self.refuse("ParseAsteriskIsNotAloneInSelectList", reason, at)
            found = self._expression()
            alias = self._alias()
            columns.append(Column(found, alias.text if alias else None))
            if not self.got(","):
                return tuple(columns)

    def _alias(self) -> Name | None:
        if self.got("as") and not self.is_name:
            reason = f"AS needs a name, not {self.next.shown}: quote it if it is one"
            self.refuse("ParseExpectedIdentForAlias", reason)
        return self._name() if self.is_name else None

    def _from(self) -> tuple[tuple[Step | None, ...], Name | None, int]:
        if not self.got("from"):
            if self.next.sort == "end":
                self.refuse("ParseSelectMissingFrom", "there is no FROM: a query reads FROM S3Object")
            self.refuse("ParseUnexpectedToken", f"{self.next.shown} is found where FROM or a comma is required")
        at = self.next.position
        if self.is_next("("):
            self._refuse_structure("subqueries: read FROM S3Object")
        table = self._name()
        if table.text.lower() != "s3object":
            self.refuse("InvalidDataSource", f"the only table is S3Object, the file: not {table.text}", at)
        steps: list[Step | None] = []
        while sign := self.got(".", "["):
            if sign.text == ".":
                if self.is_next("*"):
                    self.refuse("ParseInvalidPathComponent", "a path cannot contain .*: name a field, or write [*]")
                steps.append(self._name())
            elif self.got("*"):
                self.need("]", "[*")
                steps.append(None)
            else:
                steps.append(self._index())
        alias = self._alias()
        if self.is_next(","):
            self.refuse("UnsupportedSqlStructure", "S3 Select reads one table: omit the tables after the comma")
        self._refuse_beyond()
        return tuple(steps), alias, at

    def _refuse_beyond(self) -> None:
        """Raise for common SQL that S3 Select does not have."""
        if self.is_next(*self._beyond):
            what = self._beyond[self.next.text]
            self._refuse_structure(
                f"{what}: select the rows without it, and do the rest in Spark or in the application"
            )

    def _expression(self) -> Node:
        with self.deeper():
            return self._conditions("or", lambda: self._conditions("and", self._negation))

    def _expressions(self) -> list[Node]:
        """Parse one or more expressions with commas between them."""
        found = [self._expression()]
        while self.got(","):
            found.append(self._expression())
        return found

    def _orders(self) -> list[Order]:
        self.need("by", "ORDER")
        found: list[Order] = []
        while not found or self.got(","):
            expression, word = self._expression(), self.got("asc", "desc")
            found.append(Order(expression, word is not None and word.text == "desc"))
        return found

    def _conditions(self, operator: str, read: Callable[[], Node]) -> Node:
        at = self.next.position
        operands = [read()]
        while self.got(operator):
            operands.append(read())
        return operands[0] if len(operands) == 1 else Node(operator, tuple(operands), at=at)

    def _negation(self) -> Node:
        if token := self.got("not"):
            with self.deeper():
                return Node("not", (self._negation(),), at=token.position)
        return self._predicate()

    def _predicate(self) -> Node:
        """Parse an operand and at most one comparison: ``a < b < c`` is an error."""
        left = self._sum()
        at, word = self.next.position, ""
        if token := self.got(*_COMPARISONS):
            kind, parts, negated = "<>" if token.text == "!=" else token.text, [self._sum()], None
        elif self.got("is"):
            kind, parts, negated = "is", [], self.got("not")
            if not self.is_next("null", "missing"):
                self.refuse("ParseExpectedKeyword", f"IS requires NULL or MISSING, not {self.next.shown}")
            word = self.take().text
        else:
            negated = self.got("not")
            found = self.got("between", "in", "like")
            if found is None:
                if negated:
                    reason = f"NOT requires BETWEEN, IN or LIKE here, not {self.next.shown}"
                    self.refuse("ParseExpectedKeyword", reason)
                return left
            kind = found.text
            parts = {"between": self._limits, "in": self._members, "like": self._pattern}[kind]()
        if self.is_next(*_COMPARISONS, "is", "between", "in", "like"):
            reason = f"{self.next.shown} after a comparison: put brackets around one of them"
            self.refuse("ParseUnexpectedToken", reason)
        made = Node(kind, (left, *parts), word, at=at)
        return Node("not", (made,), at=at) if negated else made

    def _limits(self) -> list[Node]:
        low = self._sum()
        self.need("and", "BETWEEN")
        return [low, self._sum()]

    def _members(self) -> list[Node]:
        self.need("(", "IN", "ParseExpectedMember")
        if self.is_next("select"):
            self._refuse_structure("subqueries: list the values of IN")
        members = self._expressions()
        self.need(")", "IN")
        return members

    def _pattern(self) -> list[Node]:
        pattern = self._sum()
        return [pattern, self._sum()] if self.got("escape") else [pattern]

    def _sum(self) -> Node:
        return self._chain(("+", "-", "||"), lambda: self._chain(("*", "/", "%"), self._signed))

    def _chain(self, operators: tuple[str, ...], read: Callable[[], Node]) -> Node:
        found = read()
        for _ in range(_LONGEST_CHAIN):
            token = self.got(*operators)
            if token is None:
                return found
            found = Node(token.text, (found, read()), at=token.position)
        return self.refuse("UnsupportedSyntax", f"more than {_LONGEST_CHAIN} operators in a row: shorten the query")

    def _signed(self) -> Node:
        if token := self.got("-", "+"):
            with self.deeper():
                return Node(token.text, (self._signed(),), at=token.position)
        return self._alone()

    def _alone(self) -> Node:
        token = self.next
        if token.sort in LITERALS:
            return Node(token.sort, word=self.take().text, at=token.position)
        if self.got(*_WORDS):
            kind, word = _WORDS[token.text]
            return Node(kind, word=word, at=token.position)
        if self.got("case"):
            return self._case(token.position)
        if self.got("cast"):
            return self._cast(token.position)
        if self.is_next("left", "right") and self.is_call:
            self.refuse("UnsupportedFunction", f"S3 Select has no {token.shown}(): use SUBSTRING")
        if self.got("("):
            if self.is_next("select"):
                self._refuse_structure("subqueries: run it separately, first")
            inner = self._expression()
            self.need(")", "the bracket")
            return inner
        if self.is_name:
            return self._call() if token.sort == "name" and self.is_call else self._path()
        if token.sort == "end":
            self.refuse("ParseExpectedExpression", "the query ends where a value is required")
        if token.sort == "keyword":
            reason = f'{token.shown} is a keyword, where a value is required: write "{token.text}" if it is a name'
            self.refuse("ParseUnexpectedKeyword", reason)
        return self.refuse("ParseUnexpectedToken", f"{token.shown} is found where a value is required")

    def _path(self) -> Node:
        """Parse names and array indexes, as in ``s.lines[0]."unit price"``."""
        at = self.next.position
        steps: list[Step] = [self._name()]
        while sign := self.got(".", "["):
            steps.append(self._name() if sign.text == "." else self._index())
        return Node("path", steps=tuple(steps), at=at)

    def _name(self) -> Name:
        """Parse a field of a path."""
        token = self.next
        if token.sort == "keyword":
            reason = f'{token.shown} is a keyword: write "{token.text}" if it is a name'
            self.refuse("ParseUnexpectedKeyword", reason)
        if self.is_next("*"):
            self.refuse("ParseInvalidPathComponent", "a path cannot contain .*: write * alone for all columns")
        if not self.is_name:
            self.refuse("ParseInvalidPathComponent", f"a path requires a name, not {token.shown}")
        return Name(self.take().text, token.sort == "quoted")

    def _index(self) -> Step:
        """Parse the rest of a path step in square brackets: a number, or a name as a text."""
        if self.is_next("*"):
            self.refuse("ParseInvalidPathComponent", "[*] is allowed only in FROM: select one element, as in [0]")
        if self.next.sort == "text" and self.next.text:
            found: Step = Name(self.take().text, quoted=True)
        else:
            found = self.integer("[", "ParseInvalidPathComponent")
            if found > 2**31 - 1:
                self.refuse("ParseInvalidPathComponent", "the index is too large")
        self.need("]", "[")
        return found

    def _case(self, at: int) -> Node:
        """Parse the rest after the word CASE."""
        parts = [] if self.is_next("when") else [self._expression()]
        kind = "case of" if parts else "case"
        if not self.is_next("when"):
            self.refuse("ParseExpectedWhenClause", f"CASE requires WHEN, not {self.next.shown}")
        while self.got("when"):
            parts.append(self._expression())
            self.need("then", "WHEN")
            parts.append(self._expression())
        if self.got("else"):
            parts.append(self._expression())
        self.need("end", "CASE")
        return Node(kind, tuple(parts), at=at)

    def _cast(self, at: int) -> Node:
        """Parse the rest after the word CAST."""
        self.need("(", "CAST", "ParseExpectedLeftParenAfterCast")
        operand = self._expression()
        self.need("as", "CAST")
        token = self.next
        type = TYPES.get(token.text.lower()) if token.sort == "name" else None
        if type is None:
            known = ", ".join(name.upper() for name in TYPES)
            self.refuse("ParseExpectedTypeName", f"there is no type {token.shown}: the types are {known}")
        self.take()
        if type == "decimal":
            type += self._sizes(token.text.upper())
        if self.is_next("("):
            self.refuse("ParseInvalidTypeParam", f"{token.text.upper()} has no size; DECIMAL has")
        self.need(")", "CAST")
        return Node("cast", (operand,), type, at=at)

    def _sizes(self, of: str) -> str:
        at = self.next.position
        if not self.got("("):
            return ""
        sizes = [self.integer(of, "ParseInvalidTypeParam")]
        if self.got(","):
            sizes.append(self.integer(of, "ParseInvalidTypeParam"))
        self.need(")", of)
        if not 1 <= sizes[0] <= 38 or sizes[-1] > sizes[0]:
            reason = "a DECIMAL must have 1 to 38 digits, and a scale within them"
            self.refuse("ParseInvalidTypeParam", reason, at)
        return f"({', '.join(map(str, sizes))})"

    def _call(self) -> Node:
        """Parse the call of a function: its name and a bracket are next."""
        token = self.take()
        function, shown, at, word = token.text.lower(), token.text.upper(), token.position, ""
        self.take()
        if function in AGGREGATES:
            return self._aggregate(function, shown, at)
        if function not in COUNTS:
            self.refuse("UnsupportedFunction", _unknown(token.text), at)
        if separator := PARTED.get(function):
            word = self._date_part(shown)
            self.need(separator, shown)
        arguments: list[Node] = []
        if function == "trim":
            side = self.got("leading", "trailing", "both")
            word = side.text if side else "both"
            if not self.is_next("from"):
                arguments.append(self._expression())
            if self.got("from"):
                arguments.insert(0, self._expression())
        elif not self.is_next(")"):
            arguments.append(self._expression())
            if function == "substring" and self.got("from"):
                arguments.append(self._expression())
                if self.got("for"):
                    arguments.append(self._expression())
            if self.got(","):
                arguments += self._expressions()
        self._check_count(function, len(arguments), at)
        self.need(")", shown, "ParseExpectedRightParenBuiltinFunctionCall")
        return Node(function, tuple(arguments), word, at=at)

    def _check_count(self, function: str, found: int, at: int) -> None:
        """Raise if a function has too few or too many arguments."""
        least, most = COUNTS[function]
        if found < least or (most is not None and found > most):
            wanted = f"{least} or more" if most is None else str(least) if least == most else f"{least} or {most}"
            reason = f"{function.upper()} takes {wanted} arguments, not {found}"
            self.refuse("EvaluatorInvalidArguments", reason, at)

    def _aggregate(self, function: str, shown: str, at: int) -> Node:
        if self.is_next("distinct"):
            self._refuse_structure(f"{shown}(DISTINCT …): use eventkit query, or Spark itself")
        self.got("all")
        arguments: tuple[Node, ...] = ()
        if star := self.got("*"):
            if function != "count":
                self.refuse("ParseUnsupportedCallWithStar", f"{shown} requires a value, not *", star.position)
        elif self.is_next(")"):
            self.refuse("ParseNonUnaryAgregateFunctionCall", f"{shown} requires a value")
        else:
            arguments = (self._expression(),)
        if self.is_next(","):
            self.refuse("ParseNonUnaryAgregateFunctionCall", f"{shown} requires one value, not several")
        self.need(")", shown, "ParseExpectedRightParenBuiltinFunctionCall")
        return Node(function, arguments, at=at)

    def _date_part(self, function: str) -> str:
        part = self.next.text.lower()
        if self.next.sort != "name" or part not in PARTS:
            known = ", ".join(PARTS)
            reason = f"{function} requires a part of a date ({known}), not {self.next.shown}; times are in UTC"
            self.refuse("ParseExpectedDatePart", reason)
        self.take()
        return part

    def _refuse_structure(self, reason: str) -> NoReturn:
        self.refuse("UnsupportedSqlStructure", f"S3 Select has no {reason}")


def _unknown(name: str) -> str:
    known = [*COUNTS, *AGGREGATES, "cast"]
    close = difflib.get_close_matches(name.lower(), known, 1, 0.7)
    meant = f"did you mean {close[0].upper()}?" if close else "it has " + ", ".join(sorted(map(str.upper, known)))
    return f"S3 Select has no function {name}: {meant}"
