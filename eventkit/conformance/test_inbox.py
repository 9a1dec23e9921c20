"""O2: a consumer sees each message once, in its own transaction."""

import pytest

from eventkit import EventKit
from eventkit.testing import advance

from .clauses import proves
from .delivering import see_in_transactions
from .processes import spawn
from .races import SOON, asleep
from .rollback import rolled_back
from .threads import PATIENCE


def _sees(kit: EventKit, consumer: str, message: str) -> bool:
    with kit.transaction() as tx:
        return kit.inbox(consumer).once(message, tx)


@proves("O2")
def test_a_message_is_new_once(kit: EventKit) -> None:
    """To each consumer, and to one whose transaction came to nothing again."""
    with rolled_back(kit) as tx:
        assert kit.inbox("billing").once("m-1", tx) is True
        assert kit.inbox("billing").once("m-1", tx) is False
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
            inbox.once("m" * 1001, tx)
        with pytest.raises(TypeError, match="str"):
            inbox.once(7, tx)  # type: ignore[arg-type]
        assert inbox.once("🐘: ann's", tx)
        assert inbox.once("m" * 1000, tx)


@proves("O2")
def test_seeing_needs_a_transaction(kit: EventKit) -> None:
    """Of its own it would say nothing about what the message has led to."""
    with pytest.raises(ValueError, match="inside the transaction"):
        kit.inbox("billing").once("m-1", None)


@pytest.mark.parametrize("commit", [True, False])
@proves("O2")
def test_the_second_of_two_waits_for_the_first(kit: EventKit, commit: bool) -> None:
    """And gets what the first has left: nothing if it committed, the message if it did not."""
    with kit.transaction() if commit else rolled_back(kit) as tx:
        assert kit.inbox("billing").once("m-1", tx) is True
        second = asleep(_sees, kit, "billing", "m-1")
        assert not second.done()
    assert second.result(SOON) is not commit


@proves("O2")
def test_many_who_race_see_each_message_once(kit: EventKit, url: str, flavour: str) -> None:
    """Some of their transactions are rolled back."""
    ids = [f"m-{n}" for n in range(25)]
    racers = [spawn(see_in_transactions, url, flavour, 4, ids, seed) for seed in range(4)]
    for racer in racers:
        racer.join()
    seen = [id for racer in racers for id in racer.result()]
    assert sorted(seen) == sorted(ids)


@proves("O2")
def test_what_was_seen_long_ago_can_be_forgotten(kit: EventKit) -> None:
    """By one consumer; the message would be new to it again."""
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
