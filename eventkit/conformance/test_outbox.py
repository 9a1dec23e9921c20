"""Outboxes and the workers that deliver them."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from typing import Any

import pytest

from eventkit import Closed, EventKit, Message, Permanent, Retry
from eventkit.testing import advance

from .clauses import proves
from .delivering import Target, add, deliver_all, deliver_to_file, deliver_until_stopped, running
from .flavours import Loop, unwrapped
from .processes import spawn
from .threads import PATIENCE, SOON, database_ms, eventually, in_thread, rolled_back


@proves("O1", "G4")
def test_a_message_belongs_to_the_transaction(kit: EventKit) -> None:
    """The message is delivered if the transaction commits, and never if it does not."""
    target = Target()
    outbox = kit.outbox("mails", deliver=target)
    with running(outbox):
        with rolled_back(kit) as tx:
            outbox.add("never", tx=tx)
        with kit.transaction() as tx:
            id = outbox.add("once", tx=tx, key="ann", headers={"kind": "greeting"})
            time.sleep(0.1)
            assert target.messages == []
        eventually(lambda: target.delivered)
        eventually(lambda: outbox.stats().pending + outbox.stats().delivering == 0)
    [message] = target.messages
    assert (message.message_id, message.outbox, message.key, message.payload) == (id, "mails", "ann", "once")
    assert (message.headers, message.attempt) == ({"kind": "greeting"}, 1)
    assert abs(message.enqueued_ms - database_ms(kit)) < 60_000
    assert message.enqueued_at.tzinfo is not None
    assert outbox.queue.tasks() == []


@proves("O1")
def test_a_message_has_the_times_of_a_task(kit: EventKit) -> None:
    """It may be delayed, urgent or expire, and needs no transaction; in order, a delayed one holds up its key."""
    target = Target()
    outbox, ordered = kit.outbox("mails", deliver=target), kit.outbox("calls", deliver=target, ordered=True)
    soon = datetime.now(UTC) + timedelta(seconds=500)
    outbox.add("delayed", delay=500)
    outbox.add("dated", run_at=soon, expires=600)
    assert outbox.add("expired", expires=100) != outbox.add("lasting", expires=soon + timedelta(seconds=500))
    advance(kit, 200)
    outbox.add("last")
    outbox.add("urgent", priority=5)
    outbox.add("early", run_at=datetime.now(UTC) - timedelta(days=1))
    for payload, delay in (("first", 1000), ("second", None), ("third", 0)):
        ordered.add(payload, key="ann", delay=delay)
    ordered.add("other", key="bob", priority=1)
    deliver_all(outbox)
    deliver_all(ordered)
    assert target.delivered == ["urgent", "early", "lasting", "last", "other"]
    assert [(dead.payload, dead.reason) for dead in outbox.queue.dead()] == [("expired", "expired")]
    advance(kit, 301)
    deliver_all(kit.outbox("mails", deliver=target))
    assert sorted(target.delivered[5:]) == ["dated", "delayed"]
    advance(kit, 700)
    ordered = kit.outbox("calls", deliver=target, ordered=True)
    with running(ordered):
        eventually(lambda: ordered.stats().pending == ordered.stats().delivering == 0)
    assert target.delivered[7:] == ["first", "second", "third"]


@proves("O1")
def test_a_message_that_is_refused_is_not_added(kit: EventKit) -> None:
    outbox = kit.outbox("mails")
    with pytest.raises(ValueError, match="pass one of them"):
        outbox.add("when", delay=1, run_at=datetime.now(UTC))
    with kit.transaction() as tx, pytest.raises(ValueError, match="set by the outbox"):
        outbox.add("mine", tx=tx, headers={"message-id": "my own"})
    with kit.transaction() as tx, pytest.raises(ValueError, match="characters"):
        outbox.add("mine", tx=tx, key="")
    assert outbox.stats().pending == 0


@proves("O1")
def test_adding_needs_no_deliver_function(kit: EventKit) -> None:
    outbox = kit.outbox("mails")
    add(kit, outbox, 1)
    assert outbox.stats().pending == 1
    with pytest.raises(ValueError, match="deliver="):
        outbox.run()
    with pytest.raises(TypeError, match="deliver is a callable"):
        kit.outbox("mails", deliver="a name")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="1 to 248 characters"):
        kit.outbox("m" * 249)
    assert kit.outbox("m" * 248).stats().pending == 0


@proves("O1")
def test_a_failing_delivery_is_tried_five_times(kit: EventKit, caplog: pytest.LogCaptureFixture) -> None:
    """It is retried after 5, 10, 20 and 40 seconds; then the message is dead, with the traceback, under the same id."""
    caplog.set_level("ERROR", "eventkit")
    target = Target()
    target.failing.add("lost")
    outbox = kit.outbox("mails", deliver=target)
    [id] = add(kit, outbox, "lost")
    with running(outbox):
        for attempt, delay in enumerate((5, 10, 20, 40), 1):
            eventually(lambda attempt=attempt: len(target.messages) == attempt)  # type: ignore[misc]
            [info] = eventually(lambda: outbox.queue.tasks("scheduled"))
            assert delay - SOON < (info.run_ms - database_ms(kit)) / 1000 <= delay
            assert info.attempt == attempt
            advance(kit, delay)
        [dead] = eventually(outbox.queue.dead)
    assert [message.attempt for message in target.messages] == [1, 2, 3, 4, 5]
    assert {message.message_id for message in target.messages} == {id}
    assert (dead.reason, dead.headers) == ("exhausted", {"message-id": id})
    assert dead.error is not None
    assert "Traceback" in dead.error
    assert "ConnectionError: no delivery of 'lost'" in dead.error
    assert outbox.stats().dead == 1

    target.failing.clear()
    outbox = kit.outbox("mails", deliver=target)
    assert outbox.queue.requeue() == 1
    with running(outbox):
        eventually(lambda: target.delivered == ["lost"])
    assert (target.messages[-1].message_id, target.messages[-1].attempt) == (id, 1)


@proves("O1", "Q17")
def test_a_delivery_may_say_what_to_do(kit: EventKit, caplog: pytest.LogCaptureFixture) -> None:
    """`Retry` and `Permanent` have the same effect as in `handling`."""
    caplog.set_level("ERROR", "eventkit")
    attempts: list[int] = []

    def deliver(message: Message[str]) -> None:
        attempts.append(message.attempt)
        if message.attempt == 1:
            raise Retry(0)
        raise Permanent("the address does not exist")

    outbox = kit.outbox("mails", deliver=deliver)
    add(kit, outbox, "hopeless")
    with running(outbox):
        [dead] = eventually(outbox.queue.dead)
    assert (attempts, dead.reason, dead.error) == ([1, 2], "failed", "the address does not exist")


@proves("O1")
def test_what_deliver_gives_is_awaited_or_refused(kit: EventKit, flavour: str, caplog: Any) -> None:
    """A coroutine that is never awaited is not a delivery."""
    delivered: list[Any] = []

    async def deliver(message: Message[Any]) -> None:
        delivered.append(message.payload)

    def wrapped(message: Message[Any]) -> Any:
        return deliver(message)

    caplog.set_level("ERROR", "eventkit")
    if flavour == "sync":
        with pytest.raises(TypeError, match="connect_async"):
            kit.outbox("mails", deliver=deliver)
    else:
        outbox = kit.outbox("mails", deliver=deliver)
        add(kit, outbox, 1)
        with running(outbox):
            eventually(lambda: delivered == [1])
        delivered.clear()
    outbox = kit.outbox("mails", deliver=wrapped)
    add(kit, outbox, 1)
    with running(outbox):
        if flavour == "sync":
            [info] = eventually(lambda: outbox.queue.tasks("scheduled"))
            assert info.error is not None
            assert "TypeError: deliver returned an awaitable" in info.error
        else:
            eventually(lambda: delivered == [1])


@proves("O1", "G9", "Q14")
def test_messages_have_a_type(kit: EventKit) -> None:
    """A message that does not decode is a dead task, and the others are delivered."""
    target = Target()
    outbox = kit.outbox("mails", deliver=target, type=int)
    with kit.transaction() as tx:
        kit.outbox("mails").add("not a number", tx=tx)
        outbox.add(1, tx=tx)
        with pytest.raises(TypeError):
            outbox.add("two", tx=tx)  # type: ignore[arg-type]
    deliver_all(outbox)
    assert target.payloads == [1]
    assert [dead.reason for dead in kit.outbox("mails").queue.dead()] == ["poison"]


@proves("O1")
def test_a_task_without_a_message_id_gets_one(kit: EventKit) -> None:
    """A task inserted in plain SQL has an id that is the same at each attempt."""
    target = Target()
    outbox = kit.outbox("mails", deliver=target)
    id = kit.queue("outbox:mails").enqueue("raw").id
    target.failing.add("raw")
    with running(outbox):
        eventually(lambda: outbox.queue.tasks("scheduled"))
        target.failing.clear()
        advance(kit, 5)
        eventually(lambda: target.delivered)
    assert [message.message_id for message in target.messages] == [f"outbox:mails:{id}"] * 2


@proves("O1")
def test_an_outbox_in_numbers(kit: EventKit, caplog: pytest.LogCaptureFixture) -> None:
    """It counts waiting, running and dead messages and the kit's deliveries of a minute, and has the oldest's age."""
    caplog.set_level("ERROR", "eventkit")
    target = Target()
    target.failing.add("lost")
    outbox = kit.outbox("mails", deliver=target, ordered=True)
    outbox.queue.configure(max_attempts=2)
    stats = outbox.stats()
    assert (stats.pending, stats.delivering, stats.dead, stats.oldest_age) == (0, 0, 0, None)
    assert (stats.delivered, stats.failed, stats.latency) == (0, 0, None)
    add(kit, outbox, "lost", "next", "next but one", key="ann")
    add(kit, outbox, "free", "free")
    advance(kit, 100)
    stats = outbox.stats()
    assert (stats.pending, stats.delivering, stats.dead) == (5, 0, 0)
    assert stats.oldest_age is not None
    assert 100 <= stats.oldest_age < 130
    with running(outbox):
        eventually(lambda: outbox.stats().failed == 1 and outbox.stats().delivered == 2)
        stats = kit.outbox("mails").stats()
        assert (stats.pending, stats.delivering, stats.dead) == (3, 0, 0)
        advance(kit, 5)
        eventually(lambda: outbox.stats().dead == 1 and outbox.stats().pending + outbox.stats().delivering == 0)
        eventually(lambda: outbox.stats().delivered == 4)
    stats = outbox.stats()
    assert (stats.failed, stats.oldest_age) == (2, None)
    assert stats.latency is not None
    assert 100 <= stats.latency < 200


Connect = Callable[..., EventKit]


@proves("O1")
def test_a_worker_that_is_killed_loses_nothing(kit: EventKit, url: str, flavour: str, tmp_path: Any) -> None:
    """The message it was delivering is delivered again when its lease has lapsed, with the same id."""
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
def test_a_long_delivery_keeps_its_message(kit: EventKit) -> None:
    """The worker extends the lease, so no other worker gets the message."""
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
    """Check that the first message was delivered, and that the others wait with no attempt spent."""
    assert target.payloads == target.delivered == [0]
    assert [(info.payload, info.state, info.attempt) for info in outbox.queue.tasks()] == [
        (1, "ready", 0),
        (2, "ready", 0),
    ]


@pytest.mark.parametrize("ordered", [False, True])
@proves("O1")
def test_stopping_finishes_what_was_begun(kit: EventKit, ordered: bool) -> None:
    """The worker releases the rest without an attempt.  `stop` itself does not wait."""
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
    outbox.run()  # This run ends at once: the worker is stopped.
    _check_the_end(outbox, target)


@proves("O1", "G1")
def test_closing_the_kit_finishes_what_was_begun(connect: Connect, url: str) -> None:
    """The kit stays open until then."""
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
    """Begun deliveries are acked, the others released, and the process exits with 0."""
    outbox = kit.outbox("mails")
    add(kit, outbox, 0, 1)
    receiving, sending = get_context("spawn").Pipe(duplex=False)
    with spawn(deliver_until_stopped, url, flavour, sending) as worker:
        assert receiving.poll(PATIENCE)
        os.kill(worker.pid, signal.SIGTERM)
    receiving.close()
    sending.close()
    assert [(info.payload, info.state, info.attempt) for info in outbox.queue.tasks()] == [(1, "ready", 0)]


@pytest.mark.parametrize("what", ["stop", "close"])
@proves("O1", "G1")
def test_a_delivery_may_end_its_worker(connect: Connect, url: str, flavour: str, what: str) -> None:
    """A kit closed there waits for all deliveries but the closing one, which is retried by another worker."""
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
        assert [(info.payload, info.state) for info in other.queue("outbox:mails").tasks()] == [(1, "ready")]
    else:
        with pytest.raises(Closed):  # The kit is closed, so the delivery cannot be acked.
            end.result(PATIENCE)
        assert [info.payload for info in other.queue("outbox:mails").tasks()] == [0, 1]
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
    """No attempt is spent, except for a delivery that a thread has begun, which cannot be undone."""
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
    [info] = kit.outbox("awaited").queue.tasks()
    assert (info.state, info.attempt) == ("ready", 0)
    assert target.delivered == ["in a thread"]
    assert kit.outbox("in a thread").queue.tasks() == []
