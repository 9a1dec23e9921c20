"""Every clause of the contract has a test, and every test that names a clause names an existing one."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from eventkit import conformance
from eventkit.conformance.clauses import clauses_of

ROOT = Path(__file__).parent.parent
PROMISED, LATER = (ROOT / "docs" / "contract.md").read_text("utf-8").split("\n## Later\n")
CLAUSE = re.compile(r"^- ([A-Z]\d+) ", re.MULTILINE)
CLAUSES = CLAUSE.findall(PROMISED)


SUITE = {name: clauses_of(getattr(conformance, name)) for name in conformance.__all__ if name.startswith("test_")}
"""The clauses that each test of the suite proves."""


def functions(folder: Path) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Return the test functions in the files of the folder and its subfolders, and where each is."""
    for file in sorted(folder.rglob("test_*.py")):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield f"{file.relative_to(ROOT)}: {node.name}", node


@cache
def own_tests() -> list[tuple[str, list[str]]]:
    """Return the tests beside the suite that name clauses of one backend, and the clauses."""
    return [
        (where, [ast.literal_eval(argument) for argument in decorator.args])
        for where, node in functions(ROOT / "tests")
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "proves"
    ]


def test_the_contract_is_read() -> None:
    """This release has sixteen families, numbered without a gap, and no clause is left for later."""
    families: dict[str, list[int]] = {}
    for clause in CLAUSES:
        families.setdefault(clause[0], []).append(int(clause[1:]))
    assert "".join(families) == "GSQNWKHTOPCALJDE"
    for family, numbers in families.items():
        assert numbers == list(range(1, len(numbers) + 1)), family
    assert CLAUSE.findall(LATER) == []


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_clause_has_a_test(clause: str) -> None:
    """Every clause has a test that fails when it is broken."""
    assert any(clause in proved for _, proved in (*SUITE.items(), *own_tests()))


def test_every_clause_that_is_named_exists() -> None:
    """No test claims to prove a clause that does not exist."""
    for test, proved in (*SUITE.items(), *own_tests()):
        assert set(proved) <= set(CLAUSES), test


def test_every_test_of_the_suite_proves_something() -> None:
    """A clause requires each thing that a foreign backend has to pass."""
    assert [test for test, proved in SUITE.items() if not proved] == []


def test_the_star_import_brings_everything() -> None:
    """No test or fixture of the suite is left out, or hidden behind another one of the same name."""
    written = [node.name for _, node in functions(ROOT / "eventkit" / "conformance")]
    assert sorted(written) == sorted(SUITE)
    fixtures = set(re.findall(r"^@pytest\.fixture.*\ndef (\w+)", "\n".join(sources()), re.MULTILINE))
    assert fixtures <= set(conformance.__all__)


def sources() -> Iterator[str]:
    """Yield the text of every module of the suite."""
    for file in (ROOT / "eventkit" / "conformance").glob("*.py"):
        yield file.read_text("utf-8")
