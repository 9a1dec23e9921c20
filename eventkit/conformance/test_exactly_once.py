"""S9: a consumer's rows and its offset in one transaction, with the consumer killed at every step."""

import random
import time
from multiprocessing import get_context
from typing import Any

import pytest

from eventkit import EventKit

from .clauses import proves
from .processes import spawn
from .rollback import rolled_back
from .streaming import END, copy_exactly_once
from .threads import PATIENCE

_STEPS = ("received", "begun", "written", "saved", "committed")


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


@proves("S9")
def test_a_consumer_killed_at_any_step_has_exactly_one_effect(kit: EventKit, url: str, flavour: str) -> None:
    """After each kill the rows are those of the events up to the offset, and in the end those of all."""
    _create_effect(kit)
    stream = kit.stream("source")
    offsets = [0, *stream.publish_many(range(20))]
    for n, step in enumerate(_STEPS):
        payload = 3 * n + 2
        receiving, sending = get_context("spawn").Pipe(duplex=False)
        with spawn(copy_exactly_once, url, flavour, (step, payload), sending) as copier:
            assert receiving.poll(PATIENCE)
            copier.kill()
        receiving.close()
        sending.close()
        done = payload + 1 if step == "committed" else payload
        assert _effects(kit) == list(range(done))
        assert stream.offset("copier") == offsets[done]
    stream.publish(END)
    with spawn(copy_exactly_once, url, flavour, None, None):
        pass
    assert _effects(kit) == list(range(20))
    assert stream.offset("copier") == offsets[20]


def _kill_at_random(kit: Any, url: str, flavour: str, kills: int) -> None:
    chance = random.Random(kills)
    _create_effect(kit)
    stream = kit.stream("source")
    published = 0
    for _ in range(kills):
        stream.publish_many(range(published, published + 100))
        published += 100
        before = stream.offset("copier")
        with spawn(copy_exactly_once, url, flavour, None, None) as copier:
            while stream.offset("copier") == before:
                time.sleep(0.001)
            time.sleep(chance.random() * 0.03)
            copier.kill()
        offset = stream.offset("copier")
        assert len(_effects(kit)) == sum(event.offset <= offset for event in stream.read(limit=1_000_000))
    stream.publish(END)
    with spawn(copy_exactly_once, url, flavour, None, None):
        pass
    assert _effects(kit) == list(range(published))


@proves("S9")
def test_a_consumer_killed_at_random_has_exactly_one_effect(kit: EventKit, url: str, flavour: str) -> None:
    """The totals are exact."""
    _kill_at_random(kit, url, flavour, 2)


@proves("S9")
@pytest.mark.slow
def test_a_consumer_killed_very_often_has_exactly_one_effect(kit: EventKit, url: str, flavour: str) -> None:
    """The totals are exact."""
    _kill_at_random(kit, url, flavour, 40)
