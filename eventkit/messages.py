"""The iterators that `subscribe`, `work` and `listen` give, in both flavours."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any, Generic, Self, TypeVar

M = TypeVar("M")


class Messages(Generic[M]):
    """An iterator that may wait for ever; ended by `close`, by ``with``, or by closing its kit."""

    def __init__(self, messages: Generator[M], settle: Callable[[], None]) -> None:
        self._messages = messages
        self.settle = settle
        """Saves what was handled and gives back what was not handed out, as if iteration ended here."""

    def __iter__(self) -> Generator[M]:
        return self._messages

    def __next__(self) -> M:
        return next(self._messages)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the iteration: what was handled is saved, what was not handed out is given back."""
        self._messages.close()
        self.settle()


class AsyncMessages(Generic[M]):
    """`Messages` for asyncio.  Awaiting it attaches it now rather than at the first step."""

    def __init__(
        self,
        messages: AsyncGenerator[M],
        settle: Callable[[], Awaitable[None]],
        attach: Callable[[], Awaitable[Any]],
    ) -> None:
        self._messages = messages
        self._attach = attach
        self.settle = settle
        """Saves what was handled and gives back what was not handed out, as if iteration ended here."""

    def __await__(self) -> Generator[Any, Any, Self]:
        yield from self._attach().__await__()
        return self

    def __aiter__(self) -> AsyncGenerator[M]:
        return self._messages

    async def __anext__(self) -> M:
        return await anext(self._messages)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the iteration: what was handled is saved, what was not handed out is given back."""
        await self._messages.aclose()
        await self.settle()
