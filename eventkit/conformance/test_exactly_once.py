"""S9: a consumer's rows, its inbox and its offset in one transaction, with the consumer killed at every step."""

import random
import time
from functools import partial
from multiprocessing import get_context
from typing import Any

import pytest

from eventkit import EventKit, EventStream, NewEvent

from .clauses import proves
from .processes import spawn
from .rollback import rolled_back
from .streaming import END, copy_exactly_once
from .threads import PATIENCE, eventually

_STEPS = ("received", "begun", "seen", "written", "saved", "committed")


def _create_effect(kit: Any) -> None:
    with kit.transaction() as tx:
        tx.execute("DROP TABLE IF EXISTS effect")  # Beside eventkit's own tables, which are fresh for each test.
        tx.execute("CREATE TABLE effect (n INTEGER)")


def _effects(kit: Any) -> list[int]:
    """The rows the consumer has written, in the order of the events."""
    with kit.transaction() as tx:
        return [n for (n,) in tx.execute("SELECT n FROM effect ORDER BY n").fetchall()]


@proves("S9", "S4")
def test_rows_and_offset_commit_together(kit: EventKit) -> None:
    """Or neither does."""
    _create_effect(kit)
    stream = kit.stream("source")
    offset = stream.publish(0)
    with rolled_back(kit) as tx:
        tx.execute("INSERT INTO effect (n) VALUES (0)")
        assert stream.save_offset("copier", offset, tx=tx) is True
    assert (_effects(kit), stream.offset("copier")) == ([], 0)
    with kit.transaction() as tx:
        tx.execute("INSERT INTO effect (n) VALUES (0)")
        assert stream.save_offset("copier", offset, tx=tx) is True
    assert (_effects(kit), stream.offset("copier")) == ([0], offset)


def _publish_twice(stream: EventStream[Any], numbers: range) -> list[int]:
    """Publish each number, and again before the next one: as a producer does that did not hear the first time."""
    ids = [f"message {n}" for n in numbers]
    return stream.publish_many(
        NewEvent(n, headers={"message-id": id}) for n, id in zip(numbers, ids, strict=True) for _ in range(2)
    )


def _kill_at_each_step(kit: Any, url: str, flavour: str, kills: int) -> None:
    """Kill the copier between any two statements of its transaction, one place after the other."""
    _create_effect(kit)
    stream = kit.stream("source")
    offsets = [0, *_publish_twice(stream, range(kills + 1))]
    for n in range(kills):
        step = _STEPS[n % len(_STEPS)]
        receiving, sending = get_context("spawn").Pipe(duplex=False)
        with spawn(copy_exactly_once, url, flavour, (step, n), sending) as copier:
            assert receiving.poll(PATIENCE)
            copier.kill()
        receiving.close()
        sending.close()
        offset = stream.offset("copier")
        assert offset == offsets[2 * n + (step == "committed")]
        assert _effects(kit) == list(range(n + (step == "committed")))
    stream.publish(END)
    with spawn(copy_exactly_once, url, flavour, None, None):
        pass
    assert _effects(kit) == list(range(kills + 1))
    assert stream.offset("copier") == offsets[-1]


@proves("S9", "O2")
def test_a_consumer_killed_at_any_step_has_exactly_one_effect(kit: EventKit, url: str, flavour: str) -> None:
    """After each kill the rows are those of the events up to the offset, and in the end those of all messages."""
    _kill_at_each_step(kit, url, flavour, len(_STEPS))


@proves("S9", "O2")
@pytest.mark.slow
def test_a_consumer_killed_a_hundred_times_has_exactly_one_effect(kit: EventKit, url: str, flavour: str) -> None:
    """At every step, many times over."""
    _kill_at_each_step(kit, url, flavour, 17 * len(_STEPS))


def _is_beyond(stream: EventStream[Any], place: int) -> bool:
    return stream.offset("copier") > place


def _kill_at_random(kit: Any, url: str, flavour: str, kills: int) -> None:
    chance = random.Random(kills)
    _create_effect(kit)
    stream = kit.stream("source")
    published = 0
    for _ in range(kills):
        _publish_twice(stream, range(published, published + 100))
        published += 100
        before = stream.offset("copier")
        with spawn(copy_exactly_once, url, flavour, None, None) as copier:
            while stream.offset("copier") == before:
                time.sleep(0.001)
            time.sleep(chance.random() * 0.03)
            copier.kill()
        effects, offset = _effects(kit), stream.offset("copier")
        while (effects, offset) != (now := (_effects(kit), stream.offset("copier"))):
            effects, offset = now  # A server may have been at the commit of whoever was killed.
        handled = {event.payload for event in stream.read(limit=1_000_000) if event.offset <= offset}
        assert effects == sorted(handled)
    last = stream.head()
    stream.publish(END)
    with spawn(copy_exactly_once, url, flavour, None, None):
        # The more so the slower the machine is, most of the events are left; whoever comes on has time for them.
        while (place := stream.offset("copier")) < last:
            eventually(partial(_is_beyond, stream, place))
    assert _effects(kit) == list(range(published))


@proves("S9", "O2")
def test_a_consumer_killed_at_random_has_exactly_one_effect(kit: EventKit, url: str, flavour: str) -> None:
    """The totals are exact."""
    _kill_at_random(kit, url, flavour, 2)


@proves("S9", "O2")
@pytest.mark.slow
def test_a_consumer_killed_very_often_has_exactly_one_effect(kit: EventKit, url: str, flavour: str) -> None:
    """The totals are exact."""
    _kill_at_random(kit, url, flavour, 40)
