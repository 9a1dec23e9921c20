"""`loops` and `loops_async` are one text in two flavours.

They are written twice because a mechanism that writes them once would be harder to read than both.  This holds
them together: without ``async``, ``await`` and the word Async, each method that both have is the same, except
where the flavours differ by nature, and those places are listed here.
"""

import ast
import asyncio
import re
from pathlib import Path
from typing import Any, cast

import pytest

import eventkit
from eventkit.loops import Loops
from eventkit.loops_async import AsyncLoops

FOLDER = Path(eventkit.__file__).parent

DIFFERENT = {
    "iterate": "an async loop that is left needs a task to give back",
    "close": "an async kit waits for what loops that were left have begun",
}
"""The methods of the loops whose bodies differ, and the reasons."""


def methods(file: str, of: str) -> dict[str, ast.FunctionDef]:
    """Return the methods of the class, without their asynchrony and their comments."""
    module = ast.parse((FOLDER / file).read_text("utf-8"))
    [text] = [ast.unparse(node) for node in module.body if isinstance(node, ast.ClassDef) and node.name == of]
    text = re.sub(r"\basync (?=def|for|with)|\bawait |Async|\ba(?=iter\(|next\()", "", text)
    text = re.sub(r"\bcompleted\((run)_async(.*)\)", r"\1\2", text)
    [loops] = ast.parse(text).body
    assert isinstance(loops, ast.ClassDef)
    return {node.name: node for node in loops.body if isinstance(node, ast.FunctionDef)}


SYNC, ASYNC = methods("loops.py", "Loops"), methods("loops_async.py", "AsyncLoops")


def test_both_loops_have_the_same_methods() -> None:
    """Each waiting method exists in both flavours, with the same arguments."""
    assert SYNC.keys() == ASYNC.keys()
    for name in SYNC.keys() - {"__init__"}:
        assert ast.unparse(SYNC[name].args) == ast.unparse(ASYNC[name].args), name


@pytest.mark.parametrize("name", sorted(SYNC.keys() - DIFFERENT.keys() - {"__init__"}))
def test_methods_are_alike(name: str) -> None:
    """Their bodies differ only by ``async`` and ``await``."""
    assert ast.unparse(SYNC[name]) == ast.unparse(ASYNC[name])


@pytest.mark.parametrize("name", ["_walk", "_end", "_leave"])
def test_iterators_are_alike(name: str) -> None:
    """Both carry out the same steps in the same way."""
    blocking, awaited = methods("messages.py", "Messages"), methods("messages.py", "AsyncMessages")
    assert ast.unparse(blocking[name]) == ast.unparse(awaited[name])


def test_the_list_of_differences_is_true() -> None:
    """A method that is listed as different must differ."""
    for name in DIFFERENT:
        assert ast.unparse(SYNC[name]) != ast.unparse(ASYNC[name]), name


@pytest.mark.parametrize("name", ["Scheduler", "Housekeeping"])
def test_schedulers_and_housekeeping_are_alike(name: str) -> None:
    """Schedulers and housekeeping are the same in both flavours."""
    blocking, awaited = methods("loops.py", name), methods("loops_async.py", f"Async{name}")
    assert blocking.keys() == awaited.keys()
    for method in blocking.keys() - {"__init__"}:
        assert ast.unparse(blocking[method]) == ast.unparse(awaited[method]), method


def test_deliveries_are_alike() -> None:
    """The workers of outboxes have the same methods in both flavours, and deliver alike but for a cancellation.

    Closing a kit of asyncio is a task of its own, which a cancellation does not end, so it is given its caller.
    """
    blocking, awaited = methods("loops.py", "Deliveries"), methods("loops_async.py", "AsyncDeliveries")
    assert blocking.keys() == awaited.keys()
    for name in blocking.keys() - {"__init__", "close"}:
        assert ast.unparse(blocking[name].args) == ast.unparse(awaited[name].args), name
    assert loops_of(blocking["run"]) == loops_of(awaited["run"])


def loops_of(function: ast.FunctionDef) -> list[str]:
    """Return the loops of *function*."""
    return [ast.unparse(node) for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]


class Closing:
    """A connection whose kit is closed after the first look has found nothing."""

    looks = 0

    def execute(self, operation: object) -> list[object]:
        """Find nothing, once."""
        self.looks += 1
        if self.looks > 1:
            raise eventkit.Closed("the kit is closed: connect again")
        return []

    def sleep(self, probe: object, timeout: float) -> bool:
        """Report that another look is due."""
        return True


class AsyncClosing(Closing):
    """`Closing`, awaited."""

    async def execute(self, operation: object) -> list[object]:  # type: ignore[override]
        """Find nothing, once."""
        return super().execute(operation)

    async def sleep(self, probe: object, timeout: float) -> bool:  # type: ignore[override]
        """Report that another look is due."""
        return True


def test_a_wait_whose_kit_is_closed_before_the_next_look_finds_nothing() -> None:
    """The call does not fail, like one whose kit is closed while it sleeps."""
    nothing: Any = None
    blocking, awaited = Loops(cast(Any, Closing())), AsyncLoops(cast(Any, AsyncClosing()))
    assert blocking.attempt(nothing, nothing, 60) == []
    assert asyncio.run(awaited.attempt(nothing, nothing, 60)) == []
