"""O1: messages leave the database after the commit that wrote them, at least once, with the same id each time."""

import time
from typing import Any

import pytest

from eventkit import EventKit, Fixed, Message, Permanent, Retry
from eventkit.testing import advance

from .clauses import proves
from .delivering import Target, add, deliver_all, running
from .races import SOON, database_ms
from .rollback import rolled_back
from .threads import eventually


@proves("O1", "G4")
def test_a_message_belongs_to_the_transaction(kit: EventKit) -> None:
    """It is delivered if that commits, and never if it does not."""
    target = Target()
    outbox = kit.outbox("mails", deliver=target)
    with running(outbox):
        with rolled_back(kit) as tx:
            outbox.add(tx, "never")
        with kit.transaction() as tx:
            id = outbox.add(tx, "once", key="ann", headers={"kind": "greeting"})
            time.sleep(0.1)
            assert target.messages == []
        eventually(lambda: target.delivered)
        eventually(lambda: outbox.stats().pending + outbox.stats().delivering == 0)
    [message] = target.messages
    assert (message.message_id, message.outbox, message.key, message.payload) == (id, "mails", "ann", "once")
    assert (message.headers, message.attempt) == ({"kind": "greeting"}, 1)
    assert abs(message.enqueued_ms - database_ms(kit)) < 60_000
    assert message.enqueued_at.tzinfo is not None
    assert outbox.queue.list() == []


@proves("O1")
def test_a_message_needs_a_transaction(kit: EventKit) -> None:
    """Without one there would be nothing that it could not get lost beside."""
    outbox = kit.outbox("mails")
    with pytest.raises(ValueError, match="inside a transaction"):
        outbox.add(None, "lost")
    with kit.transaction() as tx, pytest.raises(ValueError, match="the outbox's own"):
        outbox.add(tx, "mine", headers={"message-id": "my own"})
    with kit.transaction() as tx, pytest.raises(ValueError, match="characters"):
        outbox.add(tx, "mine", key="")
    assert outbox.stats().pending == 0


@proves("O1")
def test_whoever_only_adds_needs_nothing_to_deliver_with(kit: EventKit) -> None:
    outbox = kit.outbox("mails")
    add(kit, outbox, 1)
    assert outbox.stats().pending == 1
    with pytest.raises(ValueError, match="deliver="):
        outbox.run()
    with pytest.raises(TypeError, match="cannot be"):
        kit.outbox("mails", deliver="a name")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="1 to 248 characters"):
        kit.outbox("m" * 249)
    assert kit.outbox("m" * 248).stats().pending == 0


@proves("O1")
def test_a_failing_delivery_is_tried_five_times(kit: EventKit, caplog: pytest.LogCaptureFixture) -> None:
    """After 5, 10, 20 and 40 seconds; then the message is dead, with the traceback.  Its id is the same all along."""
    caplog.set_level("ERROR", "eventkit")
    target = Target()
    target.failing.add("lost")
    outbox = kit.outbox("mails", deliver=target)
    [id] = add(kit, outbox, "lost")
    with running(outbox):
        for attempt, delay in enumerate((5, 10, 20, 40), 1):
            eventually(lambda attempt=attempt: len(target.messages) == attempt)  # type: ignore[misc]
            [info] = eventually(lambda: outbox.queue.list("scheduled"))
            assert delay - SOON < (info.run_ms - database_ms(kit)) / 1000 <= delay
            assert info.attempt == attempt
            advance(kit, delay)
        [dead] = eventually(outbox.queue.dead)
    assert [message.attempt for message in target.messages] == [1, 2, 3, 4, 5]
    assert {message.message_id for message in target.messages} == {id}
    assert (dead.reason, dead.headers) == ("exhausted", {"message-id": id})
    assert dead.error is not None
    assert "Traceback" in dead.error
    assert "ConnectionError: nobody takes 'lost'" in dead.error
    assert outbox.stats().dead == 1

    target.failing.clear()
    outbox = kit.outbox("mails", deliver=target)
    assert outbox.queue.requeue() == 1
    with running(outbox):
        eventually(lambda: target.delivered == ["lost"])
    assert (target.messages[-1].message_id, target.messages[-1].attempt) == (id, 1)


@proves("O1", "Q12")
def test_the_queue_below_says_otherwise_if_it_is_configured(kit: EventKit, caplog: pytest.LogCaptureFixture) -> None:
    """Attempts and delays are settings like any queue's, and running the outbox leaves them alone."""
    caplog.set_level("ERROR", "eventkit")
    target = Target()
    target.failing.add("lost")
    outbox = kit.outbox("mails", deliver=target)
    outbox.queue.configure(max_attempts=2, retry=Fixed(base=0.001, jitter=0))
    add(kit, outbox, "lost")
    with running(outbox):
        eventually(outbox.queue.dead)
    assert len(target.messages) == 2


@proves("O1", "Q17")
def test_a_delivery_may_say_what_to_do(kit: EventKit, caplog: pytest.LogCaptureFixture) -> None:
    """`Retry` and `Permanent`, as in `handling`."""
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
    """A coroutine that nobody awaits is not a delivery."""
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
            [info] = eventually(lambda: outbox.queue.list("scheduled"))
            assert info.error is not None
            assert "TypeError: deliver gave something to await" in info.error
        else:
            eventually(lambda: delivered == [1])


@proves("O1", "G9", "Q14")
def test_messages_have_a_type(kit: EventKit) -> None:
    """What does not decode is a dead letter, and the others are delivered."""
    target = Target()
    outbox = kit.outbox("mails", deliver=target, type=int)
    with kit.transaction() as tx:
        kit.outbox("mails").add(tx, "not a number")
        outbox.add(tx, 1)
        with pytest.raises(TypeError):
            outbox.add(tx, "two")  # type: ignore[arg-type]
    deliver_all(outbox)
    assert target.payloads == [1]
    assert [dead.reason for dead in kit.outbox("mails").queue.dead()] == ["poison"]


@proves("O1")
def test_a_task_that_nobody_gave_an_id_has_one_all_the_same(kit: EventKit) -> None:
    """As one has that was inserted in plain SQL; it is the same at each attempt."""
    target = Target()
    outbox = kit.outbox("mails", deliver=target)
    id = kit.queue("outbox:mails").enqueue("raw").id
    target.failing.add("raw")
    with running(outbox):
        eventually(lambda: outbox.queue.list("scheduled"))
        target.failing.clear()
        advance(kit, 5)
        eventually(lambda: target.delivered)
    assert [message.message_id for message in target.messages] == [f"outbox:mails:{id}"] * 2


@proves("O1")
def test_an_outbox_in_numbers(kit: EventKit, caplog: pytest.LogCaptureFixture) -> None:
    """What waits, what is under way, what is dead, how old the oldest is; and what this kit did in the last minute."""
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


@proves("O1")
def test_outboxes_do_not_meet(kit: EventKit) -> None:
    """Neither each other nor queues."""
    target = Target()
    mails, calls = kit.outbox("mails", deliver=target), kit.outbox("calls")
    add(kit, mails, "mail")
    add(kit, calls, "call")
    kit.queue("mails").enqueue("task")
    deliver_all(mails)
    assert target.payloads == ["mail"]
    assert (calls.stats().pending, kit.queue("mails").size()) == (1, 1)
