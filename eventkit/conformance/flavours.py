"""One body for both flavours: an async kit that looks like a sync one.

A test calls everything as on a sync kit.  On an async one the calls go through a `Blocking` stand-in, which
awaits them in an event loop that runs in a thread, so tests can use threads with both flavours alike.
"""

import asyncio
import threading
from collections.abc import Awaitable, Iterator
from typing import Any

PATIENCE = 60.0
"""Seconds after which a call that has not returned is a failure."""

_HANDLES = ("__aenter__", "__anext__", "prune", "claim", "execute", "run", "tick", "sweep", "acquire")
"""Attributes that mark an object as a handle, which is wrapped in turn."""

_PLAIN = (bool, int, float, str, bytes, list, tuple, dict, type(None))


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="conformance-loop", daemon=True)
        self._thread.start()

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """Return the result of *awaitable*."""

        async def wait() -> Any:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(wait(), self.loop).result(PATIENCE)

    def close(self) -> None:
        """Stop the loop."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Blocking:
    """A stand-in that looks like the sync counterpart of an async object."""

    def __init__(self, target: Any, loop: Loop) -> None:
        self._target = target
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        if name == "close" and hasattr(self._target, "aclose"):
            name = "aclose"
        value = getattr(self._target, name)
        return self._call(value) if callable(value) else self._wrap(value)

    def _call(self, function: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            async def inside() -> Any:
                result = function(
                    *(unwrapped(argument) for argument in arguments),
                    **{name: unwrapped(argument) for name, argument in keywords.items()},
                )
                return await result if hasattr(result, "__await__") else result

            return self._wrap(self._loop.run(inside()))

        return call

    def _wrap(self, value: Any) -> Any:
        blocking = any(hasattr(value, name) for name in _HANDLES)
        return Blocking(value, self._loop) if blocking and not isinstance(value, _PLAIN) else value

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return self._loop.run(self._target.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Any:
        entered = self._loop.run(self._target.__aenter__())
        return self if entered is self._target else self._wrap(entered)

    def __exit__(self, *error: Any) -> Any:
        return self._loop.run(self._target.__aexit__(*error))


def unwrapped(value: Any) -> Any:
    """Return the async object behind a stand-in; anything else unchanged."""
    return value._target if isinstance(value, Blocking) else value
