"""`loops` and `loops_async` are one text in two flavours.

They are written twice because a mechanism that writes them once would be harder to read than both.  This holds
them together: without ``async``, ``await`` and the word Async, each method that both have is the same, except
where the flavours differ by nature, and those places are listed here.
"""

import ast
import re
from pathlib import Path

import pytest

import eventkit

FOLDER = Path(eventkit.__file__).parent

DIFFERENT = {
    "subscribe": "a sync subscription attaches when it is called, an async one when it is awaited",
    "work": "threads share what is claimed between settling and iterating, tasks cannot come between",
    "listen": "as subscribe",
    "handling": "one thread keeps the leases of a sync kit, a timer each those of an async one",
    "close": "the heartbeat of a sync kit is a thread to stop",
}
"""Methods of the loops whose bodies differ, and why.  Their inner functions are compared below, where they can be."""

ALIKE_INSIDE = {"subscribe": {"events"}, "listen": {"notifications"}}
"""Inner functions that are the same but for the attaching."""


def methods(file: str, of: str = "Loops") -> dict[str, ast.FunctionDef]:
    """The methods of the class, without their asynchrony and their comments."""
    text = ast.unparse(ast.parse((FOLDER / file).read_text("utf-8")))
    tree = ast.parse(re.sub(r"\basync (?=def|for|with)|\bawait |Async|\ba(?=iter\(|next\()", "", text))
    [loops] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == of]
    return {node.name: node for node in loops.body if isinstance(node, ast.FunctionDef)}


def inner(function: ast.FunctionDef, name: str) -> list[str]:
    """The statements of a function within *function*, without the attaching."""
    [found] = [node for node in function.body if isinstance(node, ast.FunctionDef) and node.name == name]
    for node in ast.walk(found):
        if isinstance(node, ast.Try):
            node.body = [statement for statement in node.body if ast.unparse(statement) != "attach()"]
    return [ast.unparse(statement) for statement in found.body]


SYNC, ASYNC = methods("loops.py"), methods("loops_async.py")


def test_both_loops_have_the_same_methods() -> None:
    """What waits in one flavour waits in the other, with the same arguments."""
    assert SYNC.keys() == ASYNC.keys()
    for name in SYNC.keys() - {"__init__"}:
        assert ast.unparse(SYNC[name].args) == ast.unparse(ASYNC[name].args), name


@pytest.mark.parametrize("name", sorted(SYNC.keys() - DIFFERENT.keys() - {"__init__"}))
def test_methods_are_alike(name: str) -> None:
    """Nothing but the asynchrony distinguishes the two."""
    assert ast.unparse(SYNC[name]) == ast.unparse(ASYNC[name])


@pytest.mark.parametrize(("method", "name"), [(m, name) for m, names in ALIKE_INSIDE.items() for name in names])
def test_generators_are_alike(method: str, name: str) -> None:
    """The generators read, hand out, save and sleep in the same order."""
    assert inner(SYNC[method], name) == inner(ASYNC[method], name)


def test_the_list_of_differences_is_true() -> None:
    """A method that is listed as different, and no longer is, comes off the list."""
    for name in DIFFERENT:
        assert ast.unparse(SYNC[name]) != ast.unparse(ASYNC[name]), name


@pytest.mark.parametrize("name", ["Scheduler", "Housekeeping"])
def test_schedulers_and_housekeeping_are_alike(name: str) -> None:
    """What fires schedules, and what clears away, is the same in both flavours."""
    blocking, awaited = methods(f"{name.lower()}.py", name), methods(f"{name.lower()}_async.py", name)
    assert blocking.keys() == awaited.keys()
    for method in blocking.keys() - {"__init__"}:
        assert ast.unparse(blocking[method]) == ast.unparse(awaited[method]), method


def test_deliveries_are_alike() -> None:
    """The workers of outboxes have the same methods in both flavours, and deliver alike but for a cancellation."""
    blocking, awaited = methods("deliveries.py", "Deliveries"), methods("deliveries_async.py", "Deliveries")
    assert blocking.keys() == awaited.keys()
    for name in blocking.keys() - {"__init__"}:
        assert ast.unparse(blocking[name].args) == ast.unparse(awaited[name].args), name
    assert loops_of(blocking["run"]) == loops_of(awaited["run"])


def loops_of(function: ast.FunctionDef) -> list[str]:
    """The loops of *function*."""
    return [ast.unparse(node) for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]
