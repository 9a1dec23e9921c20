"""Draw mutants with a seed: ``python tests/mutants/draw.py AREA SEED COUNT`` prints entries for ``mutants.toml``.

A mutant is one change of one kind to a statement of Python or SQL.  The meaning, and the tests that are to find it, are
written by hand.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent

AREAS = {
    "plans": [
        "eventkit/operations/*.py",
        "eventkit/channel.py",
        "eventkit/loops.py",
        "eventkit/plans.py",
        "eventkit/queue.py",
        "eventkit/stream.py",
    ],
    "sql": ["backends/eventkit_sqlite/*.sql", "backends/eventkit_postgres/*.sql"],
    "plpgsql": ["migrations/eventkit_migrations/versions/*postgres*.sql"],
    "wake": [
        "backends/eventkit_sqlite/connection.py",
        "backends/eventkit_sqlite/file.py",
        "backends/eventkit_sqlite/watcher.py",
        "backends/eventkit_sqlite/writer.py",
        "backends/eventkit_postgres/waking.py",
    ],
    "worker": ["eventkit/worker/*.py", "eventkit/handling.py"],
    "http": [
        "eventkit/access.py",
        "eventkit/http/app.py",
        "eventkit/http/keys.py",
        "eventkit/http/routing.py",
        "eventkit/http/server.py",
        "eventkit/http/service.py",
        "eventkit/http/dashboard/__init__.py",
        "eventkit/http/dashboard/actions.py",
    ],
    "spark": [
        "eventkit/operations/position.py",
        "eventkit/spark/offsets.py",
        "eventkit/spark/planning.py",
        "eventkit/spark/reader.py",
        "eventkit/spark/writer.py",
    ],
}
OPERATORS = ("negated condition", "moved boundary", "dropped statement", "swapped order")
MOVED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


class Mutant(NamedTuple):
    """One change: *old* text, which begins in a line of a file, becomes *new*."""

    operator: str
    file: str
    line: int
    old: str
    new: str


def candidates(area: str) -> Iterator[Mutant]:
    """Yield every possible mutant of an area."""
    for pattern in AREAS[area]:
        for path in sorted(ROOT.glob(pattern)):
            source = path.read_text("utf-8")
            found = _in_python(source) if path.suffix == ".py" else _in_sql(source)
            for operator, line, old, new in found:
                yield Mutant(operator, str(path.relative_to(ROOT)), line, old, new)


def _in_python(source: str) -> Iterator[tuple[str, int, str, str]]:
    lines = source.splitlines()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.IfExp) and node.test.lineno == node.test.end_lineno:
            condition = ast.get_source_segment(source, node.test)
            yield "negated condition", *_replaced(lines, node.test, f"not ({condition})")
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and node.lineno == node.end_lineno:
            old = ast.get_source_segment(source, node) or ""
            left = ast.get_source_segment(source, node.left) or ""
            sign = old[len(left) :].split()[0]
            if sign in MOVED:
                yield "moved boundary", *_replaced(lines, node, old.replace(f" {sign} ", f" {MOVED[sign]} ", 1))
        for body in [getattr(node, name) for name in ("body", "orelse", "finalbody") if hasattr(node, name)]:
            if isinstance(body, list) and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.stmt):
                yield from _in_body(lines, [part for part in body if isinstance(part, ast.stmt)], node)


def _in_body(lines: list[str], body: list[ast.stmt], parent: ast.AST) -> Iterator[tuple[str, int, str, str]]:
    if isinstance(parent, ast.ClassDef | ast.Module):
        return
    simple = [part.lineno == part.end_lineno and _is_simple(part) for part in body]
    for part, chosen in zip(body, simple, strict=True):
        if chosen and not _names(part, ast.Store):
            text = lines[part.lineno - 1]
            yield "dropped statement", part.lineno, text, text[: part.col_offset] + "pass"
    for (one, chosen), (two, next_chosen) in pairwise(zip(body, simple, strict=True)):
        # Two assignments of values have no order, and a name has to be assigned before it is read.
        ordered = any(isinstance(node, ast.Call | ast.Yield | ast.YieldFrom) for node in ast.walk(one))
        ordered = ordered and two.lineno == one.lineno + 1 and not isinstance(two, ast.Raise)
        if chosen and next_chosen and ordered and not _names(one, ast.Store) & _names(two, ast.Load):
            first, second = lines[one.lineno - 1], lines[two.lineno - 1]
            yield "swapped order", one.lineno, f"{first}\n{second}", f"{second}\n{first}"


def _is_simple(part: ast.stmt) -> bool:
    if isinstance(part, ast.Expr):
        return not isinstance(part.value, ast.Constant) and ast.unparse(part) != "yield"
    return isinstance(part, ast.Assign | ast.AugAssign | ast.Delete) or (
        isinstance(part, ast.Raise) and part.exc is not None
    )


def _names(part: ast.stmt, context: type) -> set[str]:
    return {node.id for node in ast.walk(part) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}


def _replaced(lines: list[str], node: ast.expr, new: str) -> tuple[int, str, str]:
    text = lines[node.lineno - 1].encode()
    changed = text[: node.col_offset] + new.encode() + text[node.end_col_offset :]
    return node.lineno, text.decode(), changed.decode()


def _in_sql(source: str) -> Iterator[tuple[str, int, str, str]]:
    lines = source.splitlines()
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("--"):
            continue
        for operator, pattern, becomes in (
            ("negated condition", r"\bNOT EXISTS\b", "EXISTS"),
            ("negated condition", r"(?<!NOT )\bEXISTS\b", "NOT EXISTS"),
            ("negated condition", r"\bIS NULL\b", "IS NOT NULL"),
            ("negated condition", r"\bIS NOT NULL\b", "IS NULL"),
            ("negated condition", r"(?<=\bIF )(?!NOT\b|EXISTS\b)(.+)(?= THEN$)", r"NOT (\1)"),
            ("negated condition", r"(?<=\bWHEN )(.+)(?= THEN)", r"NOT (\1)"),
            ("moved boundary", r" < ", " <= "),
            ("moved boundary", r" <= ", " < "),
            ("moved boundary", r" > ", " >= "),
            ("moved boundary", r" >= ", " > "),
            ("swapped order", r"\bORDER BY ([\w.]+), ([\w.]+)(?=$|\n| LIMIT|\))", r"ORDER BY \2, \1"),
            ("swapped order", r"\bORDER BY ([\w.]+)(?=$|\n| LIMIT|\))", r"ORDER BY \1 DESC"),
            ("swapped order", r" DESC\b", ""),
            ("swapped order", r"\bmax\(", "min("),
            ("swapped order", r"\bleast\(", "greatest("),
            ("swapped order", r"\bgreatest\(", "least("),
            ("swapped order", r"\bcoalesce\(([\w.:]+), ([\w.:]+)\)", r"coalesce(\2, \1)"),
        ):
            changed = re.sub(pattern, becomes, line, count=1)
            if changed != line:
                yield operator, number, line, changed
        if re.match(r"\s+AND [^()]*(\([^()]*\)[^()]*)*$", line) and not line.rstrip().endswith(("(", ";")):
            yield "dropped statement", number, line, re.sub(r"\S.*", "AND true", line)
        if re.match(r"\s+(PERFORM|RAISE|\w+ :=|UPDATE|DELETE|INSERT|RETURN NEXT)\b.*;$", line):
            yield "dropped statement", number, line, re.sub(r"\S.*", "NULL;", line)
            after = lines[number] if number < len(lines) else ""
            if re.match(r"\s+(PERFORM|RAISE|\w+ :=|UPDATE|DELETE|INSERT|RETURN NEXT)\b.*;$", after):
                yield "swapped order", number, f"{line}\n{after}", f"{after}\n{line}"


def draw(area: str, seed: int, count: int) -> list[Mutant]:
    """Draw *count* mutants of an area, with the same number of each operator if possible."""
    random = Random(f"{area} {seed}")
    by_operator = {operator: [one for one in candidates(area) if one.operator == operator] for operator in OPERATORS}
    for several in by_operator.values():
        random.shuffle(several)
    drawn: list[Mutant] = []
    while len(drawn) < count and any(by_operator.values()):
        drawn.extend(several.pop() for several in by_operator.values() if several)
    return sorted(drawn[:count], key=lambda one: (one.file, one.line))


def main() -> None:
    """Print the drawn mutants as TOML."""
    area, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for number, one in enumerate(draw(area, seed, count), 1):
        lines = (ROOT / one.file).read_text("utf-8").splitlines()
        text = "\n".join(["", *lines[: one.line + one.old.count("\n")], ""])
        print("[[mutant]]")
        print(f'id = "{area}-{number:02}"')
        print(f'operator = "{one.operator}"')
        print(f'file = "{one.file}"')
        if (which := text.count(f"\n{one.old}\n")) > 1:
            print(f"which = {which}")
        # A string of JSON is one of TOML.
        print(f"old = {json.dumps(one.old, ensure_ascii=False)}")
        print(f"new = {json.dumps(one.new, ensure_ascii=False)}")
        print('meaning = ""')
        print("tests = []\n")


if __name__ == "__main__":
    main()
