"""Plans are one text for both flavours; the drivers, and what calls them, are two texts that agree.

Without ``async``, ``await`` and the word Async, each function or method that exists twice is the same, except where the
flavours differ by nature, and those places are listed here.
"""

import ast
import asyncio
import re
from pathlib import Path
from typing import Any, cast

import pytest

import eventkit
from eventkit.loops import AsyncLoops, Loops
from eventkit.operations.enqueue import RoomAhead
from eventkit.operations.stream import ReadHead

FOLDER = Path(eventkit.__file__).parent

DIFFERENT = {
    "run": "in asyncio it returns a coroutine",
    "complete": "a cancellation waits for the end",
    "perform": "a step may call a coroutine function or another one",
    "close": "an async kit waits for what loops that were left have begun",
}
"""The methods of the loops whose bodies differ, and the reasons."""


def alike(text: str) -> str:
    """Return the code without its asynchrony."""
    text = re.sub(r"\basync (?=def|for|with)|\bawait |Async|(?<=__)a(?=enter__|exit__)", "", text)
    return re.sub(r"\brun_async\b", "run", text)


def methods(file: str, of: str) -> dict[str, ast.FunctionDef]:
    """Return the methods of the class, without their asynchrony and their comments."""
    module = ast.parse((FOLDER / file).read_text("utf-8"))
    [text] = [ast.unparse(node) for node in module.body if isinstance(node, ast.ClassDef) and node.name == of]
    [found] = ast.parse(alike(text)).body
    assert isinstance(found, ast.ClassDef)
    return {node.name: node for node in found.body if isinstance(node, ast.FunctionDef)}


def statements(function: ast.FunctionDef) -> list[str]:
    """Return the body of a function, without its docstring."""
    return [ast.unparse(node) for node in function.body if not isinstance(node, ast.Expr | ast.AnnAssign)]


SYNC, ASYNC = methods("loops.py", "Loops"), methods("loops.py", "AsyncLoops")


def test_both_loops_have_the_same_methods() -> None:
    """Each method exists in both flavours, with the same arguments; only what is listed has a text for each of them."""
    assert {*SYNC, "complete"} == ASYNC.keys()
    assert SYNC.keys() - {"__init__"} == DIFFERENT.keys() - {"complete"}
    assert {"attempt", "iterate"} <= methods("loops.py", "_Loops").keys()
    for name in SYNC.keys() - {"__init__"}:
        assert ast.unparse(SYNC[name].args) == ast.unparse(ASYNC[name].args), name
        assert ast.unparse(SYNC[name]) != ast.unparse(ASYNC[name]), name


def test_both_drivers_carry_out_the_same_steps() -> None:
    """The drivers of plans differ only by ``async`` and ``await``."""
    module = ast.parse((FOLDER / "plans.py").read_text("utf-8"))
    blocking, awaited = (
        ast.parse(alike(ast.unparse(node))).body[0]
        for node in module.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in ("run", "run_async")
    )
    assert isinstance(blocking, ast.FunctionDef)
    assert isinstance(awaited, ast.FunctionDef)
    assert statements(blocking) == statements(awaited)


def test_an_iterator_takes_its_steps_from_one_text() -> None:
    """Neither iterator has a way of its own to carry out steps, to end, or to leave."""
    blocking, awaited = methods("loops.py", "Messages"), methods("loops.py", "AsyncMessages")
    shared = methods("loops.py", "_Iterator").keys()
    assert {"_walk", "_sleep", "_end", "_leave"} <= shared
    assert not shared & (blocking.keys() | awaited.keys()) - {"__init__"}


@pytest.mark.parametrize(
    ("file", "blocking", "awaited"),
    [("handling.py", "Handling", "AsyncHandling"), ("locks.py", "Lock", "AsyncLock")],
)
def test_contexts_are_alike(file: str, blocking: str, awaited: str) -> None:
    """Entering and leaving differ only by ``async`` and ``await``, and by a cancellation that waits for the end."""
    sync, asynchronous = methods(file, blocking), methods(file, awaited)
    assert sync.keys() == asynchronous.keys()
    for name in sync:
        one, other = ast.unparse(sync[name]), ast.unparse(asynchronous[name])
        assert one.replace("_loops.complete(", "_loops.run(") == other.replace("_loops.complete(", "_loops.run("), name


def test_deliveries_are_alike() -> None:
    """The workers of outboxes deliver by one plan; only what waits, or runs a thread, has two texts.

    Closing a kit of asyncio is a task of its own, which a cancellation does not end, so it is given its caller.
    """
    blocking, awaited = methods("outbox.py", "Deliveries"), methods("outbox.py", "AsyncDeliveries")
    assert awaited.keys() == {"caller", "leave", "call"}
    for name in awaited:
        assert ast.unparse(blocking[name].args) == ast.unparse(awaited[name].args), name


class Closing:
    """A connection whose kit is closed after the first look has found nothing."""

    looks = 0

    def execute(self, operation: object) -> list[object]:
        """Find nothing, once."""
        self.looks += 1
        if self.looks > 1:
            raise eventkit.Closed("the kit is closed: connect again")
        return []

    def sleep(self, probe: object, timeout: float | None, stop: object) -> bool:
        """Report that another look is due."""
        return True


class AsyncClosing(Closing):
    """`Closing`, awaited."""

    async def execute(self, operation: object) -> list[object]:  # type: ignore[override]
        """Find nothing, once."""
        return super().execute(operation)

    async def sleep(self, probe: object, timeout: float | None, stop: object) -> bool:  # type: ignore[override]
        """Report that another look is due."""
        return True


def test_a_wait_whose_kit_is_closed_before_the_next_look_finds_nothing() -> None:
    """The call does not fail, like one whose kit is closed while it sleeps."""
    nothing, probe = ReadHead("t"), RoomAhead("q", 1)
    blocking, awaited = Loops(cast(Any, Closing())), AsyncLoops(cast(Any, AsyncClosing()))
    assert blocking.attempt(nothing, probe, 60) == []
    assert asyncio.run(awaited.attempt(nothing, probe, 60)) == []


@pytest.mark.parametrize("file", ["stream.py", "queue.py", "channel.py", "outbox.py", "schedules.py"])
def test_handles_return_what_execute_returns(file: str) -> None:
    """A handle never looks at an answer, which is an awaitable in asyncio, so one class serves both flavours."""
    returned = 0
    for node in ast.walk(ast.parse((FOLDER / file).read_text("utf-8"))):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call) and ast.unparse(child.func) == "self._execute":
                assert isinstance(node, ast.Return), f"{file}:{child.lineno}: {ast.unparse(node)}"
                returned += 1
    assert returned
