"""Answers of either flavour: there, or to be awaited."""

from collections.abc import Awaitable, Callable
from typing import Any


def then(answer: Any, change: Callable[[Any], Any]) -> Any:
    """What *change* makes of an answer: now, or once it is awaited."""
    return _awaited(answer, change) if hasattr(answer, "__await__") else change(answer)


def reached(kit: Any, use: Callable[[Any], Any]) -> Any:
    """Return what *use* makes of a kit: at once, or when the kit is connected and the answer is awaited."""
    return _connected(kit, use) if hasattr(kit, "__await__") else use(kit)


async def _connected(kit: Awaitable[Any], use: Callable[[Any], Any]) -> Any:
    return await use(await kit)


async def _awaited(answer: Awaitable[Any], change: Callable[[Any], Any]) -> Any:
    return change(await answer)
