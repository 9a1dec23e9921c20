"""Cancellation of an exit at each of its awaits."""

import asyncio
import types
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

EXITS = pytest.mark.parametrize("again", [False, True], ids=["once", "at each await"])


@types.coroutine
def _cancelled_at(step: int, again: bool, leaving: asyncio.Event, work: Coroutine[Any, Any, None]) -> Any:
    """Run *work*; cancel it at this await after *leaving* is set, or at all from then on; return if it had one."""
    task, awaits, go_on = asyncio.current_task(), 0, partial(work.send, None)
    assert task is not None
    while True:
        try:
            awaited = go_on()
        except StopIteration:
            return awaits >= step
        awaits += leaving.is_set()
        if awaits == step or (again and awaits > step):
            task.cancel()
        try:
            yield awaited
            go_on = partial(work.send, None)
        except BaseException as error:
            go_on = partial(work.throw, error)


async def cancel_at_each_await(leave: Callable[[asyncio.Event], Any], again: bool, check: Callable[[], Any]) -> None:
    """Cancel *leave* at the first await after it sets the event, then at the second, and so on; *check* after each."""
    for step in range(1, 1000):

        async def once(step: int = step) -> bool:
            leaving = asyncio.Event()
            return bool(await _cancelled_at(step, again, leaving, leave(leaving)))

        work = asyncio.create_task(once())
        [end] = await asyncio.gather(work, return_exceptions=True)
        await check()
        if end is False:
            assert step > 1
            return
        assert isinstance(end, asyncio.CancelledError)
