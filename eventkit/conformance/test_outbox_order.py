"""The order of an outbox, and inboxes."""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from eventkit import EventKit, Fixed, Message
from eventkit.testing import advance

from .clauses import one_flavour, proves, requires
from .delivering import (
    Target,
    add,
    attempts_in,
    check_order,
    deliver_all,
    deliver_to_file,
    running,
    see_in_transactions,
)
from .processes import Process, spawn
from .threads import PATIENCE, SOON, asleep, eventually, in_thread, rolled_back

Connect = Callable[..., EventKit]

_BEHIND = 3000


def _is_free(outbox: Any) -> bool:
    stats = outbox.stats()
    return bool(stats.pending == 0 and stats.delivering == 0)


@proves("O1")
def test_a_key_is_delivered_in_order(kit: EventKit, caplog: pytest.LogCaptureFixture) -> None:
    """The order holds with several workers, although every third delivery fails."""
    caplog.set_level("ERROR", "eventkit")
    chance = random.Random(7)
    under_way: set[str | None] = set()
    delivered: dict[str | None, list[int]] = {"ann": [], "bob": [], "cy": [], None: []}

    def deliver(message: Message[int]) -> None:
        assert message.key is None or message.key not in under_way
        under_way.add(message.key)
        time.sleep(chance.random() * 0.002)
        under_way.discard(message.key)
        if chance.random() < 0.3:
            raise ConnectionError
        delivered[message.key].append(message.payload)

    outbox = kit.outbox("mails", deliver=deliver, ordered=True)
    outbox.queue.configure(max_attempts=100, retry=Fixed(base=0.002))
    with running(outbox, workers=4, batch=2):
        for n in range(30):
            for key in delivered:
                add(kit, outbox, n, key=key)
        eventually(lambda: _is_free(outbox))
    for key in ("ann", "bob", "cy"):
        assert delivered[key] == list(range(30))
    assert sorted(delivered[None]) == list(range(30))


@proves("O1")
def test_what_fails_holds_up_its_own_key_only(kit: EventKit, caplog: pytest.LogCaptureFixture) -> None:
    """The key waits until the next attempt of its message; a dead message no longer holds it up."""
    caplog.set_level("ERROR", "eventkit")
    target = Target()
    target.failing.add("lost")
    outbox = kit.outbox("mails", deliver=target, ordered=True)
    outbox.queue.configure(max_attempts=2)
    add(kit, outbox, "lost", "second", "third", key="ann")
    add(kit, outbox, "other", key="bob")
    add(kit, outbox, "keyless")
    deliver_all(outbox)
    assert target.payloads == ["lost", "other", "keyless"]
    add(kit, outbox, "fourth", key="ann")
    deliver_all(kit.outbox("mails", deliver=target, ordered=True))
    assert target.payloads == ["lost", "other", "keyless"]
    advance(kit, 5)
    outbox = kit.outbox("mails", deliver=target, ordered=True)
    with running(outbox):
        eventually(lambda: _is_free(outbox))
    assert target.payloads == ["lost", "other", "keyless", "lost", "second", "third", "fourth"]
    assert [dead.payload for dead in outbox.queue.dead()] == ["lost"]


@proves("O1")
def test_what_is_under_way_holds_up_its_own_key_only(kit: EventKit) -> None:
    target = Target()
    target.blocked["slow"] = threading.Event()
    outbox = kit.outbox("mails", deliver=target, ordered=True)
    add(kit, outbox, "slow", "second", key="ann")
    add(kit, outbox, "other", key="bob")
    with running(outbox, workers=3):
        eventually(lambda: target.delivered == ["other"])
        add(kit, outbox, "third", key="ann")
        add(kit, outbox, "fourth", key="bob")
        eventually(lambda: target.delivered == ["other", "fourth"])
        time.sleep(0.1)
        assert sorted(target.payloads) == ["fourth", "other", "slow"]
        target.blocked["slow"].set()
        eventually(lambda: _is_free(outbox))
    assert target.delivered[2:] == ["slow", "second", "third"]


@proves("O1", "Q16")
def test_kept_delivered_messages_block_no_other(kit: EventKit) -> None:
    target = Target()
    outbox = kit.outbox("mails", deliver=target, ordered=True)
    outbox.queue.configure(keep_done=3600)
    add(kit, outbox, 1, 2, 3, key="ann")
    advance(kit, 600)
    with running(outbox, workers=2):
        eventually(lambda: _is_free(outbox))
    assert target.delivered == [1, 2, 3]
    assert [(info.payload, info.state, info.group) for info in outbox.queue.tasks()] == [
        (1, "done", "ann"),
        (2, "done", "ann"),
        (3, "done", "ann"),
    ]


@requires("concurrent_writers")
@proves("O1")
def test_an_earlier_message_that_is_committed_later_waits_for_the_end_of_the_later_one(
    kit: EventKit, loop: Any
) -> None:
    """Two messages of a key are never delivered at the same time, in any order of their commits."""
    target = Target()
    target.blocked["later"] = threading.Event()
    outbox = kit.outbox("mails", deliver=target, ordered=True)
    with running(outbox, workers=3):
        with kit.transaction() as tx:
            outbox.add("earlier", tx=tx, key="ann")
            add(kit, outbox, "later", key="ann")
            eventually(lambda: target.payloads == ["later"])
        add(kit, outbox, "last", key="ann")
        add(kit, outbox, "other", key="bob")
        eventually(lambda: target.delivered == ["other"])
        time.sleep(0.1)
        assert target.payloads == ["later", "other"]
        target.blocked["later"].set()
        eventually(lambda: _is_free(outbox))
    assert target.payloads == ["later", "other", "earlier", "last"]


@proves("O1", "Q11")
def test_a_dead_message_that_is_requeued_takes_its_place(kit: EventKit, caplog: pytest.LogCaptureFixture) -> None:
    """It goes before the remaining messages of its key, and not beside one in delivery."""
    caplog.set_level("ERROR", "eventkit")
    target = Target()
    target.failing.add("lost")
    target.blocked["second"] = threading.Event()
    outbox = kit.outbox("mails", deliver=target, ordered=True)
    outbox.queue.configure(max_attempts=1)
    add(kit, outbox, "lost", "second", "third", key="ann")
    with running(outbox, workers=2):
        eventually(lambda: target.payloads == ["lost", "second"])
        target.failing.clear()
        assert outbox.queue.requeue() == 1
        time.sleep(0.1)
        assert target.payloads == ["lost", "second"]
        target.blocked["second"].set()
        eventually(lambda: _is_free(outbox))
    assert target.delivered == ["second", "lost", "third"]


@pytest.mark.parametrize("way", ["cancel", "purge", "fail", "retry", "lapse", "release"])
@proves("O1", "Q9")
def test_however_a_message_ends_the_next_one_goes(kit: EventKit, way: str) -> None:
    """The next message goes at once, also if another process ended the first one without delivering it."""
    target = Target()
    outbox = kit.outbox("mails", deliver=target, ordered=True)
    outbox.queue.configure(max_attempts=1)
    add(kit, outbox, "first", key="ann")
    [first] = outbox.queue.claim("by hand", lease=601 if way == "lapse" else 86_400)
    add(kit, outbox, "second", "third", key="ann")
    advance(kit, 600)  # After ten minutes of waiting, the worker's next check would be in another ten.
    with running(outbox):
        eventually(lambda: outbox.queue.stats().scheduled == 2)
        assert target.payloads == []
        match way:
            case "cancel":
                assert outbox.queue.cancel(first.id, running=True)
            case "purge":
                assert outbox.queue.purge("running") == 1
            case "fail":
                assert outbox.queue.fail(first, "gone")
            case "retry":
                assert outbox.queue.retry(first, error="the last attempt")
            case "release":
                assert outbox.queue.release(first)
        eventually(lambda: target.delivered[-2:] == ["second", "third"])
    assert target.delivered == (["first", "second", "third"] if way == "release" else ["second", "third"])


@proves("O1")
def test_a_message_that_became_first_without_a_wake_is_found(kit: EventKit) -> None:
    """The worker finds it after it has waited twice as long: an ack outside the outbox announces nothing."""
    target = Target()
    outbox = kit.outbox("mails", deliver=target, ordered=True)
    add(kit, outbox, "first", key="ann")
    [first] = outbox.queue.claim("by hand")
    add(kit, outbox, "second", key="ann")
    with running(outbox):
        eventually(lambda: outbox.queue.stats().scheduled == 1)
        assert outbox.queue.ack(first)
        eventually(lambda: target.delivered == ["second"])


@proves("O1", "Q18")
@one_flavour
def test_what_waits_behind_a_key_costs_the_others_nothing(kit: EventKit, caplog: pytest.LogCaptureFixture) -> None:
    """The tenfold bound tolerates a busy machine and still catches another order of growth."""
    caplog.set_level("ERROR", "eventkit")
    target = Target()
    target.failing.add("first")

    def seconds() -> float:
        """Return the seconds that twenty messages of other keys took."""
        outbox = kit.outbox("mails", deliver=target, ordered=True)
        for n in range(20):
            add(kit, outbox, n, key=f"key {n}")
        end, began = len(target.messages) + 20, perf_counter()
        with running(outbox):
            eventually(lambda: len(target.messages) >= end)
            return perf_counter() - began

    alone = min(seconds() for _ in range(3))
    outbox = kit.outbox("mails", deliver=target, ordered=True)
    outbox.queue.configure(retry=[3600])
    add(kit, outbox, "first", *range(_BEHIND), key="ann")
    deliver_all(outbox)
    assert target.payloads[-1] == "first"
    assert outbox.queue.stats().scheduled == _BEHIND + 1
    assert min(seconds() for _ in range(3)) < 10 * alone


def _race_and_kill(kit: EventKit, url: str, flavour: str, path: str, each: int, kills: int) -> None:
    chance = random.Random(kills)
    outbox = kit.outbox("ordered")
    outbox.queue.configure(lease=0.5, max_attempts=1000, retry=Fixed(base=0.005))
    messages: dict[str, list[str]] = {key: [] for key in ("ann", "bob", "cy", "di")}

    def start() -> Process:
        return spawn(deliver_to_file, url, flavour, path, None, None)

    workers = [start() for _ in range(3)]
    try:
        for n in range(each):
            for key, ids in messages.items():
                with kit.transaction() as tx:
                    ids.append(outbox.add(n, tx=tx, key=key))
            if n % max(1, each // kills) == 0 and n // max(1, each // kills) < kills:
                eventually(lambda: Path(path).exists())
                time.sleep(chance.random() * 0.1)
                victim = workers.pop(chance.randrange(3))
                victim.kill()
                victim.join()
                workers.append(start())
        end = in_thread(lambda: eventually(lambda: _is_free(outbox)))
        end.result(2 * PATIENCE)
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
    check_order(attempts_in(path), messages)


@proves("O1")
def test_killed_workers_break_no_order(kit: EventKit, url: str, flavour: str, tmp_path: Any) -> None:
    """Three processes deliver, some are killed at any moment: each key arrives complete and in order."""
    _race_and_kill(kit, url, flavour, str(tmp_path / "log"), 20, 2)


@proves("O1")
@pytest.mark.slow
def test_workers_killed_very_often_break_no_order(kit: EventKit, url: str, flavour: str, tmp_path: Any) -> None:
    """More workers are killed for longer."""
    _race_and_kill(kit, url, flavour, str(tmp_path / "log"), 200, 50)


def _sees(kit: EventKit, consumer: str, message: str) -> bool:
    with kit.transaction() as tx:
        return kit.inbox(consumer).once(message, tx=tx)


@proves("O2")
def test_a_message_is_new_once(kit: EventKit) -> None:
    """It is new to each consumer, and to one whose transaction rolled back."""
    with rolled_back(kit) as tx:
        assert kit.inbox("billing").once("m-1", tx=tx) is True
        assert kit.inbox("billing").once("m-1", tx=tx) is False
    assert [_sees(kit, "billing", "m-1") for _ in range(3)] == [True, False, False]
    assert _sees(kit, "billing", "m-2") is True
    assert _sees(kit, "shipping", "m-1") is True
    assert kit.inbox("billing").consumer == "billing"


@proves("O2", "G10")
def test_ids_and_consumers_are_names(kit: EventKit) -> None:
    with pytest.raises(ValueError, match="characters"):
        kit.inbox("")
    with kit.transaction() as tx:
        inbox = kit.inbox("billing")
        with pytest.raises(ValueError, match="1 to 1000 characters"):
            inbox.once("m" * 1001, tx=tx)
        with pytest.raises(TypeError, match="str"):
            inbox.once(7, tx=tx)  # type: ignore[arg-type]
        assert inbox.once("🐘: ann's", tx=tx)
        assert inbox.once("m" * 1000, tx=tx)


@proves("O2")
def test_seeing_needs_a_transaction(kit: EventKit) -> None:
    """Without a transaction, `once` could not commit together with the effects of the message."""
    with pytest.raises(ValueError, match="inside the transaction"):
        kit.inbox("billing").once("m-1", tx=None)


@pytest.mark.parametrize("commit", [True, False])
@proves("O2")
def test_the_second_of_two_waits_for_the_first(kit: EventKit, commit: bool) -> None:
    """The second sees the message as new only if the first rolled back."""
    with kit.transaction() if commit else rolled_back(kit) as tx:
        assert kit.inbox("billing").once("m-1", tx=tx) is True
        second = asleep(_sees, kit, "billing", "m-1")
        assert not second.done()
    assert second.result(SOON) is not commit


@proves("O2")
def test_racing_consumers_see_each_message_once(kit: EventKit, url: str, flavour: str) -> None:
    """Some of their transactions are rolled back."""
    ids = [f"m-{n}" for n in range(25)]
    racers = [spawn(see_in_transactions, url, flavour, 4, ids, seed) for seed in range(4)]
    for racer in racers:
        racer.join()
    seen = [id for racer in racers for id in racer.result()]
    assert sorted(seen) == sorted(ids)


@proves("O2")
def test_what_was_seen_long_ago_can_be_forgotten(kit: EventKit) -> None:
    """Forgetting is per consumer; the message is then new to it again."""
    inbox = kit.inbox("billing")
    for consumer in ("billing", "shipping"):
        assert _sees(kit, consumer, "old")
    advance(kit, 3600)
    assert _sees(kit, "billing", "young")
    assert inbox.prune(older_than=3601 + PATIENCE) == 0
    assert inbox.prune(older_than=3000) == 1
    assert [_sees(kit, "billing", id) for id in ("old", "young")] == [True, False]
    assert _sees(kit, "shipping", "old") is False
    with pytest.raises(ValueError, match="at least 0"):
        inbox.prune(older_than=-1)
