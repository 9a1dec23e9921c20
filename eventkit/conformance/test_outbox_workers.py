"""Workers of an outbox: several, killed, stopped, cancelled (O1)."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import pytest

from eventkit import Closed, EventKit, Message

from .clauses import proves
from .delivering import Target, add, deliver_to_file, deliver_until_told, running
from .flavours import Loop, unwrapped
from .processes import spawn
from .races import SOON
from .threads import PATIENCE, eventually, in_thread

Connect = Callable[..., EventKit]


@proves("O1")
def test_a_worker_that_is_killed_loses_nothing(kit: EventKit, url: str, flavour: str, tmp_path: Any) -> None:
    """What it was delivering is delivered again when its lease has run out, with the same id."""
    target = Target()
    outbox = kit.outbox("ordered", deliver=target, ordered=True)
    outbox.queue.configure(lease=0.5)
    ids = add(kit, outbox, 0, 1, key="ann")
    receiving, sending = get_context("spawn").Pipe(duplex=False)
    with spawn(deliver_to_file, url, flavour, str(tmp_path / "log"), sending, 0) as worker:
        assert receiving.poll(PATIENCE)
        assert receiving.recv() == 1
        worker.kill()
    receiving.close()
    sending.close()
    with running(outbox):
        eventually(lambda: target.delivered == [0, 1])
    assert [(message.message_id, message.attempt) for message in target.messages] == [(ids[0], 2), (ids[1], 1)]


@proves("O1")
def test_several_workers_share_the_messages(kit: EventKit) -> None:
    """Each message is delivered by one of them."""
    target = Target()
    outbox = kit.outbox("mails", deliver=target)
    add(kit, outbox, *range(100))
    with running(outbox, workers=4, batch=3):
        eventually(lambda: outbox.stats().pending + outbox.stats().delivering == 0)
    assert sorted(target.payloads) == list(range(100))


@proves("O1")
def test_a_long_delivery_keeps_its_message(kit: EventKit) -> None:
    """Its lease is extended, so nobody else gets it."""
    target = Target()
    target.blocked["long"] = threading.Event()
    outbox = kit.outbox("mails", deliver=target)
    outbox.queue.configure(lease=0.6)
    add(kit, outbox, "long")
    with running(outbox, workers=2):
        eventually(lambda: target.messages)
        time.sleep(1.5)
        target.blocked["long"].set()
        eventually(lambda: outbox.stats().delivering == 0)
    assert target.payloads == target.delivered == ["long"]


def _check_the_end(outbox: Any, target: Target) -> None:
    """The first message was delivered, and the others wait as if nobody had claimed them."""
    assert target.payloads == target.delivered == [0]
    assert [(info.payload, info.state, info.attempt) for info in outbox.queue.list()] == [
        (1, "ready", 0),
        (2, "ready", 0),
    ]


@pytest.mark.parametrize("ordered", [False, True])
@proves("O1")
def test_stopping_finishes_what_was_begun(kit: EventKit, ordered: bool) -> None:
    """And gives the rest back, with its attempt.  `stop` itself waits for nobody."""
    target = Target()
    target.blocked[0] = threading.Event()
    outbox = kit.outbox("mails", deliver=target, ordered=ordered)
    add(kit, outbox, 0, 1, 2)
    end = in_thread(lambda: outbox.run(batch=3))
    eventually(lambda: target.messages)
    assert outbox.stats().delivering == 3
    outbox.stop()
    time.sleep(0.1)
    assert not end.done()
    target.blocked[0].set()
    end.result(PATIENCE)
    _check_the_end(outbox, target)
    outbox.run()  # Ends at once: it was stopped.
    _check_the_end(outbox, target)


@proves("O1", "G1")
def test_closing_the_kit_finishes_what_was_begun(connect: Connect, url: str) -> None:
    """The kit is open for as long as that takes."""
    kit, other = connect(url), connect(url)
    target = Target()
    target.blocked[0] = threading.Event()
    outbox = kit.outbox("mails", deliver=target)
    add(kit, outbox, 0, 1, 2)
    end = in_thread(lambda: outbox.run(batch=3))
    eventually(lambda: target.messages)
    closing = in_thread(kit.close)
    eventually(lambda: other.outbox("mails").stats().pending == 2)
    assert not closing.done()
    target.blocked[0].set()
    closing.result(PATIENCE)
    end.result(PATIENCE)
    _check_the_end(other.outbox("mails"), target)


@proves("O1")
def test_an_idle_worker_stops_at_once(kit: EventKit) -> None:
    outbox = kit.outbox("mails", deliver=Target())
    ends = [in_thread(outbox.run) for _ in range(3)]
    time.sleep(0.3)
    outbox.stop()
    for end in ends:
        end.result(SOON)


@proves("O1")
def test_a_signal_handler_may_stop_a_worker(kit: EventKit, url: str, flavour: str) -> None:
    """What it has begun is acked, what it has not is given back, and the process ends well."""
    outbox = kit.outbox("mails")
    add(kit, outbox, 0, 1)
    receiving, sending = get_context("spawn").Pipe(duplex=False)
    with spawn(deliver_until_told, url, flavour, sending) as worker:
        assert receiving.poll(PATIENCE)
        os.kill(worker.pid, signal.SIGTERM)
    receiving.close()
    sending.close()
    assert [(info.payload, info.state, info.attempt) for info in outbox.queue.list()] == [(1, "ready", 0)]


@pytest.mark.parametrize("what", ["stop", "close"])
@proves("O1", "G1")
def test_a_delivery_may_end_its_worker(connect: Connect, url: str, flavour: str, what: str) -> None:
    """Closing the kit there waits for all but the delivery that asks for it, which is tried again elsewhere."""
    kit, other = connect(url), connect(url)
    ending: list[str] = []

    def deliver(message: Message[Any]) -> None:
        ending.append(what)
        outbox.stop() if what == "stop" else kit.close()

    async def deliver_and_await(message: Message[Any]) -> None:
        ending.append(what)
        unwrapped(outbox).stop() if what == "stop" else await unwrapped(kit).close()

    outbox = kit.outbox("mails", deliver=deliver if flavour == "sync" else deliver_and_await)
    add(other, other.outbox("mails"), 0, 1)
    end = in_thread(outbox.run)
    if what == "stop":
        end.result(PATIENCE)
        assert [(info.payload, info.state) for info in other.queue("outbox:mails").list()] == [(1, "ready")]
    else:
        with pytest.raises(Closed):  # Nobody is left to ack with.
            end.result(PATIENCE)
        assert [info.payload for info in other.queue("outbox:mails").list()] == [0, 1]
    assert ending == [what]


@proves("O1")
def test_a_callable_that_blocks_does_not_block_the_kit(kit: EventKit) -> None:
    """In an async kit it runs in a thread."""
    target = Target()
    target.blocked["long"] = threading.Event()
    outbox = kit.outbox("mails", deliver=target)
    add(kit, outbox, "long")
    with running(outbox):
        eventually(lambda: target.messages)
        assert outbox.stats().delivering == 1
        target.blocked["long"].set()


@proves("O1")
def test_a_cancelled_worker_gives_its_message_back(kit: EventKit, loop: Loop | None) -> None:
    """Without an attempt; but what a thread has begun cannot be taken back, and counts."""
    if loop is None:
        pytest.skip("a thread cannot be cancelled")
    begun = threading.Event()

    async def deliver(message: Message[Any]) -> None:
        begun.set()
        await asyncio.sleep(PATIENCE)

    target = Target()
    target.blocked["in a thread"] = threading.Event()
    for function, payload in ((deliver, "awaited"), (target, "in a thread")):
        outbox = kit.outbox(payload, deliver=function)
        add(kit, outbox, payload)
        run = asyncio.run_coroutine_threadsafe(unwrapped(outbox).run(), loop.loop)
        eventually(lambda: begun.is_set() and (function is deliver or target.messages))  # noqa: B023
        run.cancel()
        if function is target:
            time.sleep(0.1)
            assert outbox.stats().delivering == 1
            target.blocked[payload].set()
        eventually(lambda: outbox.stats().delivering == 0)  # noqa: B023
    [info] = kit.outbox("awaited").queue.list()
    assert (info.state, info.attempt) == ("ready", 0)
    assert target.delivered == ["in a thread"]
    assert kit.outbox("in a thread").queue.list() == []
