"""The recorded mutants can be applied, and a sample of them is noticed."""

import ast
import random
from collections import Counter

import mutation
import pytest

MUTANTS = mutation.load()


def test_the_list_is_complete() -> None:
    """There are at least 15 mutants in each of the seven areas, and each has a meaning and an id of its own."""
    areas = Counter(mutant.id.partition("-")[0] for mutant in MUTANTS)
    assert set(areas) == {"plans", "sql", "plpgsql", "wake", "worker", "http", "spark"}
    assert min(areas.values()) >= 15
    assert len({mutant.id for mutant in MUTANTS}) == len(MUTANTS) >= 120
    assert all(mutant.meaning for mutant in MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_a_mutant_can_be_applied(mutant: mutation.Mutant) -> None:
    """Its text is in the file, and the changed file is valid Python."""
    source = (mutation.ROOT / mutant.file).read_text("utf-8")
    changed = mutant.applied(source)
    assert changed != source
    if mutant.file.endswith(".py"):
        ast.parse(changed)


def test_the_recorded_tests_are_there() -> None:
    """A test that is renamed or removed is replaced in the list."""
    suite = "".join(path.read_text("utf-8") for path in sorted((mutation.ROOT / "eventkit/conformance").glob("*.py")))
    for mutant in MUTANTS:
        assert mutant.tests or mutant.survives, mutant.id
        for place, _, name in (test.partition("[")[0].partition("::") for test in mutant.tests):
            assert f"def {name}(" in suite + (mutation.ROOT / place).read_text("utf-8"), mutant.id


@pytest.mark.slow
def test_a_sample_is_noticed() -> None:
    """Ten mutants, which differ from run to run, each fail one of their own tests."""
    known = [mutant for mutant in MUTANTS if mutant.tests and not mutant.survives]
    if len(known) < 10:
        pytest.skip(f"only {len(known)} mutants have tests of their own yet: run python tests/mutants/mutation.py")
    survivors = [one.id for one in random.sample(known, 10) if not mutation.failure(one, one.tests)]
    assert survivors == []
