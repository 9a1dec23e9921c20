"""Answers whose client has disconnected."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import eventkit
from eventkit.conformance import proves
from eventkit.conformance.exits import EXITS, cancel_at_each_await
from eventkit.http.routing import Refusal
from eventkit.http.service import while_connected


@proves("E4")
@EXITS
def test_what_came_too_late_is_given_back_despite_a_cancellation(tmp_path: Path, again: bool) -> None:
    """The client has disconnected, and the server cancels the request: another client has the task at once."""

    async def main() -> None:
        async with eventkit.connect_async(f"sqlite:///{tmp_path}/shop.db") as kit:
            queue = kit.queue("q")

            async def leave(leaving: asyncio.Event) -> None:
                claimed = asyncio.Event()

                async def answer() -> list[Any]:
                    tasks = await queue.claim("w")
                    claimed.set()
                    return tasks

                async def receive() -> dict[str, str]:
                    await claimed.wait()
                    leaving.set()
                    return {"type": "http.disconnect"}

                async def give_back(tasks: list[Any]) -> None:
                    assert await queue.release(*tasks)

                await queue.enqueue(1)
                request: Any = SimpleNamespace(receive=receive)
                with pytest.raises(Refusal):
                    await while_connected(request, answer(), give_back)

            async def check() -> None:
                [task] = await queue.claim("w2")
                assert task.attempt == 1
                assert await queue.ack(task)

            await cancel_at_each_await(leave, again, check)

    asyncio.run(main())
