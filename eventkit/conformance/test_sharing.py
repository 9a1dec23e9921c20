"""One kit shared by many threads, and by no other process (G12)."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

import eventkit
from eventkit import EventKit

from .clauses import proves
from .processes import PATIENCE, background, spawn


@proves("G12")
def test_a_handle_serves_many_threads(kit: EventKit) -> None:
    """Many threads use one handle at once; nothing is lost or mixed up."""
    stream, queue, channel = kit.stream("t"), kit.queue("q"), kit.channel("c")

    def run(thread: int) -> list[int]:
        offsets = []
        for number in range(20):
            offsets.append(stream.publish([thread, number]))
            queue.enqueue([thread, number])
            channel.notify([thread, number])
            stream.read(limit=3)
        return offsets

    offsets = [future.result(PATIENCE) for future in [background(run, thread) for thread in range(8)]]
    events = {event.offset: event.payload for event in stream.read()}
    for thread, mine in enumerate(offsets):
        assert [events[offset] for offset in mine] == [[thread, number] for number in range(20)]
    assert len(events) == 160
    claimed = [future.result(PATIENCE) for future in [background(queue.claim, "w", 40) for _ in range(6)]]
    ids = [task.id for tasks in claimed for task in tasks]
    assert len(ids) == len(set(ids)) == 160


@proves("G12")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork()")
def test_calls_of_a_forked_child_are_committed(connect: Callable[..., Any], url: str, flavour: str) -> None:
    """In a child of fork(), inherited kits are refused and new ones work; committed rows stay."""
    with spawn(_fork, url, flavour) as process:
        steps = process.result()
    assert "problem" not in steps
    payloads = [event.payload for event in connect(url).stream("t").read()]
    assert sorted(payloads) == sorted(["before", "after", *steps.split()])


def _fork(url: str, flavour: str) -> str:
    """Publish in the parent and in a child that outlives the parent's kit; return the child's answers."""
    asynchronous = flavour == "async"
    answers, answer = os.pipe()
    gate, opens = os.pipe()

    def publish(kit: Any, payload: str, loop: asyncio.AbstractEventLoop) -> None:
        call = kit.stream("t").publish(payload)
        if asynchronous:
            loop.run_until_complete(call)

    def connected(loop: asyncio.AbstractEventLoop) -> Any:
        async def wait() -> Any:
            return await eventkit.connect_async(url)

        return loop.run_until_complete(wait()) if asynchronous else eventkit.connect(url)

    def child() -> str:
        steps = []
        loop = asyncio.new_event_loop()
        with contextlib.suppress(eventkit.Closed):
            publish(kit, "inherited", loop)
            steps.append("inherited")
        with contextlib.suppress(eventkit.Closed):
            fresh = connected(loop)
            publish(fresh, "fresh", loop)
            steps.append("fresh")
            os.close(opens)
            os.read(gate, 1)  # Wait until the parent has closed its kit.
            publish(fresh, "last", loop)
            steps.append("last")
        return " ".join(steps)

    loop = asyncio.new_event_loop()
    kit = connected(loop)
    publish(kit, "before", loop)
    pid = os.fork()
    if pid == 0:
        try:
            os.write(answer, child().encode())
        except BaseException as error:
            os.write(answer, f"problem: {error!r}".encode())
        finally:
            os._exit(0)
    time.sleep(0.2)
    publish(kit, "after", loop)
    if asynchronous:
        loop.run_until_complete(kit.close())
    else:
        kit.close()
    os.close(opens)
    os.close(answer)
    with os.fdopen(answers) as file:
        steps = file.read()
    os.waitpid(pid, 0)
    return steps
