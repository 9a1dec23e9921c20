"""The triggers of a history, which exist only while a queue keeps one."""

import random
from typing import Any

import moving
import pytest
from moving import Places, run_sql

import eventkit
from eventkit import EventKit
from eventkit.conformance import proves
from eventkit.conformance.replaying import HISTORY, Replay, kinds
from eventkit.conformance.threads import PATIENCE, in_thread

TRIGGERS = {
    "sqlite": "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'eventkit_task'",
    "postgres": "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'eventkit_task'::regclass",
}


places = moving.places


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, places: Places) -> str:
    """Return the URL of one of them."""
    return places.fresh(request.param)


def triggers(url: str) -> Any:
    """Return the number of triggers beside those for keys and groups."""
    return run_sql(url, TRIGGERS["sqlite" if url.startswith("sqlite") else "postgres"])[0][0] - 3


def switch(kit: EventKit, name: str, chance: random.Random) -> None:
    """Turn a queue's history on and off, and in the end on or off."""
    queue = kit.queue(name)
    for _ in range(12):
        queue.configure(history=chance.random() < 0.5)
        queue.enqueue(1)
        queue.receive()


@proves("T4")
def test_they_are_there_while_a_queue_keeps_its_history(url: str) -> None:
    """A database without histories has no triggers for them."""
    with eventkit.connect(url) as kit:
        a, b = kit.queue("a"), kit.queue("b")
        a.configure(lease=60, history=False)
        assert triggers(url) == 0
        for act, count in (
            (lambda: a.configure(history=True), 3),
            (lambda: b.configure(history=True), 3),
            (lambda: a.configure(history=None), 3),
            (lambda: b.configure(history=False), 0),
            (lambda: b.configure(history=True), 3),
            (lambda: a.drop(), 3),
            (lambda: b.drop(), 0),
        ):
            act()
            assert triggers(url) == count


@proves("T4")
def test_many_turn_it_on_and_off_at_once(url: str) -> None:
    """Others enqueue meanwhile; afterwards exactly the needed triggers exist."""
    chance = random.Random(url[:6])
    for _ in range(3):
        with eventkit.connect(url) as one, eventkit.connect(url) as two:
            ends = [in_thread(switch, kit, name, chance) for kit, name in ((one, "a"), (two, "b"), (two, "c"))]
            for end in ends:
                end.result(PATIENCE)
            kept = [one.queue(name).settings().history for name in "abc"]
            assert triggers(url) == (3 if any(kept) else 0)


@proves("T6")
@pytest.mark.parametrize(("here", "there", "way"), [("sqlite", "postgres", "copy"), ("postgres", "sqlite", "export")])
def test_a_history_moves_and_goes_on(places: Places, here: str, there: str, way: str) -> None:
    """Earlier steps are recorded once, and steps at the target are recorded there."""
    here, there = places.fresh(here), places.fresh(there)
    with eventkit.connect(here) as kit:
        queue = kit.queue("q")
        queue.configure(history=True)
        queue.enqueue_many([1, 2, 3])
        first, second = queue.claim("w", 2)
        queue.fail(first, "x")
        before = kit.stream(HISTORY).read()
    if way == "copy":
        eventkit.copy(here, there)
        eventkit.copy(here, there)
        with eventkit.connect(here) as kit:
            kit.queue("q").enqueue(4)
            before = kit.stream(HISTORY).read()
        eventkit.copy(here, there)
    else:
        from eventkit import transfer

        transfer.write(there, transfer.read(here))
    with eventkit.connect(there) as kit:
        assert kit.stream(HISTORY).read() == before
        assert kit.queue("q").ack(second)
        kit.queue("q").requeue()
        assert kinds(kit)[len(before) :] == ["succeeded", "requeued"]
        replay = Replay("q")
        replay.follow(kit.stream(HISTORY).read())
        assert replay.tasks[first.id] == ("waiting", 0)
