"""Every clause of the contract has a test, and every test that names a clause names one there is."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventkit import conformance

ROOT = Path(__file__).parent.parent
SUITE = ROOT / "eventkit" / "conformance"

PROMISED, LATER = (ROOT / "docs" / "contract.md").read_text("utf-8").split("\n## Later\n")
CLAUSE = re.compile(r"^- ([A-Z]\d+) ", re.MULTILINE)
CLAUSES = CLAUSE.findall(PROMISED)


def tests() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every test function there is, and where."""
    for folder in (SUITE, ROOT / "tests"):
        for file in sorted(folder.rglob("test_*.py")):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                    yield file.relative_to(ROOT).as_posix(), node


def proved(test: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The clauses named by the test's ``@proves``."""
    return [
        ast.literal_eval(argument)
        for decorator in test.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "proves"
        for argument in decorator.args
    ]


def test_the_contract_is_read() -> None:
    """Five families make up this release, numbered without a gap; three more are for later."""
    families: dict[str, list[int]] = {}
    for clause in CLAUSES:
        families.setdefault(clause[0], []).append(int(clause[1:]))
    assert "".join(families) == "GSQNW"
    for family, numbers in families.items():
        assert numbers == list(range(1, len(numbers) + 1)), family
    assert {clause[0] for clause in CLAUSE.findall(LATER)} == {"K", "O", "P"}


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_clause_has_a_test(clause: str) -> None:
    """A promise is only made where something fails when it is broken."""
    assert any(clause in proved(test) for _, test in tests())


def test_every_clause_that_is_named_exists() -> None:
    """No test claims to prove what nobody promised."""
    for file, test in tests():
        assert set(proved(test)) <= set(CLAUSES), f"{file}: {test.name}"


def test_every_test_of_the_suite_proves_something() -> None:
    """Whatever a foreign backend has to pass, it has to pass because a clause says so."""
    for file, test in tests():
        if file.startswith("eventkit/"):
            assert proved(test), f"{file}: {test.name}"


def test_the_star_import_brings_every_test() -> None:
    """No test of the suite is left out, or hidden behind another one of the same name."""
    written = [test.name for file, test in tests() if file.startswith("eventkit/")]
    assert sorted(written) == sorted(name for name in conformance.__all__ if name.startswith("test_"))
    assert all(hasattr(conformance, name) for name in conformance.__all__)
