"""Answers that are waited for, and clients that do not wait for them.

A client may go away before there is an answer, or its key may be revoked.  What it would have got is then taken back,
so that another client can have the task at once, and not when its lease runs out.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from litestar import Request

from .keys import still_permitted
from .problems import Refusal

T = TypeVar("T")


async def while_there(
    request: "Request[Any, Any, Any]", answer: Awaitable[T], give_back: Callable[[T], Awaitable[Any]] | None = None
) -> T:
    """What *answer* comes to, as long as the client is there; *give_back* gets what came too late for it."""
    work, gone = asyncio.ensure_future(answer), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        try:
            if gone.done():
                raise Refusal(499, "gone", "the client went away before there was an answer")
            await still_permitted(request)
            return work.result()
        except BaseException:
            work.cancel()
            await asyncio.wait({work})
            if give_back is not None and not work.cancelled() and work.exception() is None:
                await give_back(work.result())
            raise
    finally:
        work.cancel()
        gone.cancel()


async def _gone(request: "Request[Any, Any, Any]") -> None:
    """Return when the client is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
