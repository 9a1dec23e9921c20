"""One kit for many threads, and none for two processes (G12)."""

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

import eventkit
from eventkit import EventKit

from .clauses import proves
from .processes import PATIENCE, background, spawn


@proves("G12")
def test_a_handle_serves_many_threads(kit: EventKit) -> None:
    """One handle, made once and kept, is used by many threads at once; nothing is lost or mixed up."""
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
def test_a_forked_child_does_not_share_the_connection(connect: Callable[..., Any], url: str, flavour: str) -> None:
    """In a child of fork() an inherited kit refuses or reopens, a new one works, and the parent's goes on."""
    with spawn(_fork, url, flavour) as process:
        inherited, fresh, parent = process.result()
    assert inherited in ("refused", "reopened")
    assert (fresh, parent) == ("worked", "worked")
    payloads = [event.payload for event in connect(url).stream("t").read()]
    assert sorted(payloads) == sorted(["before", "fresh", "after", *(["inherited"] if inherited == "reopened" else [])])


def _fork(url: str, flavour: str) -> tuple[str, str, str]:
    answers, answer = os.pipe()
    loop = asyncio.new_event_loop()
    asynchronous = flavour == "async"

    def publish(kit: Any, payload: str, loop: asyncio.AbstractEventLoop) -> None:
        call = kit.stream("t").publish(payload)
        if asynchronous:
            loop.run_until_complete(call)

    async def connected() -> Any:
        return await eventkit.connect_async(url)

    kit: Any = loop.run_until_complete(connected()) if asynchronous else eventkit.connect(url)
    publish(kit, "before", loop)
    pid = os.fork()
    if pid == 0:
        try:
            loop = asyncio.new_event_loop()
            try:
                publish(kit, "inherited", loop)
                inherited = "reopened"
            except eventkit.Closed:
                inherited = "refused"
            fresh: Any = loop.run_until_complete(connected()) if asynchronous else eventkit.connect(url)
            publish(fresh, "fresh", loop)
            os.write(answer, f"{inherited} worked".encode())
        except BaseException as error:
            os.write(answer, repr(error).encode())
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.close(answer)
    with os.fdopen(answers) as file:
        inherited, _, fresh_kit = file.read().partition(" ")
    os.waitpid(pid, 0)
    publish(kit, "after", loop)
    return inherited, fresh_kit, "worked"
