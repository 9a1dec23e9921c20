"""Answers of either flavour: there, or to be awaited."""

from collections.abc import Awaitable, Callable
from typing import Any


def then(answer: Any, change: Callable[[Any], Any]) -> Any:
    """What *change* makes of an answer: now, or once it is awaited."""
    return _awaited(answer, change) if hasattr(answer, "__await__") else change(answer)


async def _awaited(answer: Awaitable[Any], change: Callable[[Any], Any]) -> Any:
    return change(await answer)
