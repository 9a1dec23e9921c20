"""Tasks and events that a canary sends to itself."""

import asyncio
import json
from typing import Any

import command_line
import databases
import pytest
from databases import on_both

import eventkit
from eventkit import AsyncEventKit
from eventkit.canary import NAME, Canary
from eventkit.conformance import proves
from eventkit.conformance.exits import EXITS, cancel_at_each_await

url = databases.url


def on(url: str, call: Any) -> Any:
    """Return the result of *call* with a kit."""

    async def run() -> Any:
        async with eventkit.connect_async(url) as kit:
            return await call(kit)

    return asyncio.run(run())


def rendered(canary: Canary) -> list[str]:
    return [line for metric in canary.metrics for line in metric.lines()]


@proves("E20")
def test_messages_come_through(url: str) -> None:
    """Each probes a queue and a stream and clears leftovers; metrics have the round trip's duration."""

    async def measure(kit: AsyncEventKit) -> None:
        await kit.queue(NAME).enqueue("left by one that died")
        canary = Canary(kit)
        for _ in range(12):
            took = await canary.measure()
            assert all(seconds is not None and seconds < 10 for seconds in took.values())
        lines = rendered(canary)
        for path in ("queue", "stream"):
            assert f'eventkit_canary_seconds_count{{path="{path}"}} 12' in lines
        assert not [line for line in lines if line.startswith("eventkit_canary_failures_total{")]
        assert await kit.queue(NAME).size() == 0
        assert len(await kit.stream(NAME).read()) == 10

    on(url, measure)


@proves("E20", "K1")
@EXITS
@on_both
def test_a_cancelled_canary_releases_its_lock(url: str, again: bool) -> None:
    """Another canary begins its round at once."""

    async def measure(kit: AsyncEventKit) -> None:
        async def leave(leaving: asyncio.Event) -> None:
            async def sent() -> float:
                leaving.set()
                return 0.0

            canary = Canary(kit)
            canary._task = canary._event = sent
            await canary.measure()

        async def check() -> None:
            lock = kit.lock(NAME)
            assert await lock.acquire()
            assert await lock.release()

        await cancel_at_each_await(leave, again, check)

    on(url, measure)


@proves("E20")
@on_both
def test_two_canaries_take_turns(url: str) -> None:
    """Neither receives the other's messages."""

    async def measure(kit: AsyncEventKit) -> None:
        async with eventkit.connect_async(url) as other:
            canaries = [Canary(kit), Canary(other)]
            for _ in range(3):
                for took in await asyncio.gather(*(canary.measure() for canary in canaries)):
                    assert None not in took.values()

    on(url, measure)


@proves("E20")
def test_a_missing_arrival_is_reported(url: str) -> None:
    """On a paused queue, the event arrives and the task does not."""

    async def measure(kit: AsyncEventKit) -> None:
        await kit.queue(NAME).pause()
        canary = Canary(kit, timeout=1)
        took = await canary.measure()
        assert took["queue"] is None
        assert took["stream"] is not None
        assert 'eventkit_canary_failures_total{path="queue"} 1' in rendered(canary)

    on(url, measure)


@pytest.mark.parametrize("paused", [False, True])
def test_the_command_says_whether_they_come(url: str, paused: bool) -> None:
    with eventkit.connect(url) as kit:
        if paused:
            kit.queue(NAME).pause()
    ran = command_line.process("canary", "--timeout", "1s" if paused else "10s", "--json", "--url", url)
    assert ran.returncode == int(paused)
    report = json.loads(ran.stdout)
    assert (report["queue_seconds"] is None) is paused
    assert report["stream_seconds"] < 10
