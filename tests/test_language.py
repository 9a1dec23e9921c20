"""The language of the project: plain technical English that names the actor.

A package may have no more banned phrases than `KNOWN` says.  The numbers only fall; at none, the entry goes.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent

BANNED = re.compile(
    r"\b(?:whoever|whatever|somebody|nobody|is told|are told|is asked of|comes? to|has come to|goes? by|lets? go of|"
    r"in the place of|of which|for who|as far as it goes|what is \w+ is)\b",
    re.IGNORECASE,
)
SUBJECTLESS = re.compile(r"(?:What|Who|Whoever|Whose)\b[^?]*$")
"""The first sentence of a docstring that names no actor."""

SKIPPED = {"__pycache__", "test_language.py"}
PLACES = ("README.md", "docs", "eventkit", "backends", "migrations", "benchmarks", "tests")
KNOWN: dict[str, int] = {
    "benchmarks": 4,
    "tests": 1,
}


def found(path: Path) -> Iterator[str]:
    """Yield the violations in one file."""
    text = path.read_text("utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        for match in BANNED.finditer(line):
            yield f"{path.relative_to(ROOT)}:{number}: {match[0]}"
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                first = (ast.get_docstring(node) or "").split(".")[0]
                if SUBJECTLESS.match(first):
                    yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}: {first[:60]}"


def violations() -> Iterator[str]:
    """Yield all violations."""
    for place in PLACES:
        root = ROOT / place
        for path in [root] if root.is_file() else sorted(root.rglob("*")):
            if path.suffix in (".py", ".sql", ".md", ".html", ".js") and not SKIPPED & {*path.parts}:
                yield from found(path)


def package(violation: str) -> str:
    """Return the folder that a violation is counted for."""
    parts = violation.partition(":")[0].split("/")
    return "/".join(parts[:2]) if parts[0] in ("eventkit", "backends") and len(parts) > 2 else parts[0]


def test_plain_language() -> None:
    """No package has more banned phrases than it had."""
    counted = Counter(map(package, violations()))
    assert {name: number for name, number in counted.items() if number > KNOWN.get(name, 0)} == {}


if __name__ == "__main__":
    print(*violations(), sep="\n")
