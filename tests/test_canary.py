"""Messages that a canary sends to itself."""

import asyncio
import json
from typing import Any

import command_line
import pytest
import working

import eventkit
from eventkit import AsyncEventKit
from eventkit.canary import NAME, Canary
from eventkit.conformance import proves

url = working.url


def on(url: str, call: Any) -> Any:
    """What *call* comes to with a kit."""

    async def run() -> Any:
        async with eventkit.connect_async(url) as kit:
            return await call(kit)

    return asyncio.run(run())


def rendered(canary: Canary) -> list[str]:
    return [line for metric in canary.metrics for line in metric.lines()]


@proves("E20")
def test_messages_come_through(url: str) -> None:
    """A queue and a stream, with what is left behind cleared away; metrics tell how long it took."""

    async def sing(kit: AsyncEventKit) -> None:
        await kit.queue(NAME).enqueue("left by one that died")
        canary = Canary(kit)
        for _ in range(12):
            took = await canary.sing()
            assert all(seconds is not None and seconds < 10 for seconds in took.values())
        lines = rendered(canary)
        for path in ("queue", "stream"):
            assert f'eventkit_canary_seconds_count{{path="{path}"}} 12' in lines
        assert not [line for line in lines if line.startswith("eventkit_canary_failures_total{")]
        assert await kit.queue(NAME).size() == 0
        assert len(await kit.stream(NAME).read()) == 10

    on(url, sing)


@proves("E20")
def test_two_canaries_take_turns(url: str) -> None:
    """Neither has the other's messages."""

    async def sing(kit: AsyncEventKit) -> None:
        async with eventkit.connect_async(url) as other:
            canaries = [Canary(kit), Canary(other)]
            for _ in range(3):
                for took in await asyncio.gather(*(canary.sing() for canary in canaries)):
                    assert None not in took.values()

    on(url, sing)


@proves("E20")
def test_what_does_not_come_is_told(url: str) -> None:
    """A queue that is paused: the event comes, the task does not."""

    async def sing(kit: AsyncEventKit) -> None:
        await kit.queue(NAME).pause()
        canary = Canary(kit, timeout=1)
        took = await canary.sing()
        assert took["queue"] is None
        assert took["stream"] is not None
        assert 'eventkit_canary_failures_total{path="queue"} 1' in rendered(canary)

    on(url, sing)


@pytest.mark.parametrize("paused", [False, True])
def test_the_command_says_whether_they_come(url: str, paused: bool) -> None:
    with eventkit.connect(url) as kit:
        if paused:
            kit.queue(NAME).pause()
    ran = command_line.process("canary", "--timeout", "1s" if paused else "10s", "--json", "--url", url)
    assert ran.returncode == int(paused)
    told = json.loads(ran.stdout)
    assert (told["queue_seconds"] is None) is paused
    assert told["stream_seconds"] < 10
