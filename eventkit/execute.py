"""Running the plan of an operation: the one place where a plan meets a database, in each flavour."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from .operations import Operation, Plan, Rows

T = TypeVar("T")


def run(plan: Plan[T], fetch: Callable[[Operation[Any]], Rows]) -> T:
    """Drive *plan* with *fetch*, which executes one statement and returns its rows."""
    try:
        step = next(plan)
        while True:
            step = plan.send(fetch(step))
    except StopIteration as done:
        answer: T = done.value
        return answer


async def run_async(plan: Plan[T], fetch: Callable[[Operation[Any]], Awaitable[Rows]]) -> T:
    """Drive *plan* with *fetch*, awaiting each statement."""
    try:
        step = next(plan)
        while True:
            step = plan.send(await fetch(step))
    except StopIteration as done:
        answer: T = done.value
        return answer
