"""Waiting for the result of a task: what wakes, and what ends it (K3, W1)."""

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import eventkit
from eventkit import Closed, EventKit, EventkitError, TaskFailed, TimedOut
from eventkit.testing import advance

from .clauses import proves
from .processes import Elsewhere, another_process  # noqa: F401  # a fixture
from .races import SOON, asleep
from .threads import PATIENCE, eventually
from .urls import with_options


@pytest.fixture
def dozer(connect: Callable[..., Any], url: str) -> Any:
    """A kit that looks for nothing of its own accord."""
    return connect(with_options(url, fallback_poll=3600))


def _save(url: str, id: int | str, value: Any) -> None:
    with eventkit.connect(url) as kit:
        kit.results.save(id, value)


def _run_one(url: str, result: Any) -> None:
    with eventkit.connect(url) as kit:
        [task] = kit.queue("jobs").claim("worker")
        assert kit.queue("jobs").ack(task, result=result)


class _Email(msgspec.Struct):
    to: str


_DEATHS: dict[str, tuple[Callable[[Any, Any], object], str, str | None]] = {
    "fail": (lambda kit, queue: queue.fail(queue.claim("w")[0], "broken"), "failed", "broken"),
    "out of attempts": (lambda kit, queue: queue.retry(queue.claim("w")[0], error="again"), "exhausted", "again"),
    "poison": (lambda kit, queue: queue.claim("w"), "poison", "Expected `object`"),
    "poison, received": (lambda kit, queue: queue.receive(), "poison", "Expected `object`"),
    "lapsed, and claimed": (lambda kit, queue: queue.claim("w", lease=0) and queue.claim("w"), "exhausted", "lease"),
    "expired, and swept": (lambda kit, queue: advance(kit, 100) or queue.sweep(), "expired", None),
}


def _end(url: str, how: str) -> None:
    with eventkit.connect(url) as kit:
        _DEATHS[how][0](kit, kit.queue("jobs", type=_Email) if "poison" in how else kit.queue("jobs"))


@proves("K3", "W1", "W2")
def test_a_result_saved_in_another_process_wakes(dozer: EventKit, url: str, elsewhere: Elsewhere) -> None:
    id = dozer.queue("jobs").enqueue(1).id
    waiting = [asleep(dozer.results.wait, which, PATIENCE) for which in ("named", id, id)]
    elsewhere(_save, url, "another", 0)
    assert not any(future.done() for future in waiting)
    elsewhere(_save, url, "named", {"a": 1})
    assert waiting[0].result(SOON) == {"a": 1}
    elsewhere(_run_one, url, None)
    assert [future.result(SOON) for future in waiting[1:]] == [None, None]


@proves("K3", "W1")
def test_nobody_gets_a_result_before_its_commit(dozer: EventKit, url: str) -> None:
    waiting = asleep(dozer.results.wait, "x", PATIENCE)
    with dozer.transaction() as tx:
        dozer.results.save("x", 1, tx=tx)
        time.sleep(0.2)
        assert not waiting.done()
    assert waiting.result(SOON) == 1


@proves("K3", "G13", "W2")
@pytest.mark.parametrize("how", _DEATHS)
def test_a_death_in_another_process_wakes(dozer: EventKit, url: str, elsewhere: Elsewhere, how: str) -> None:
    """With the reason and the error; and whoever comes later is told the same."""
    _, reason, error = _DEATHS[how]
    expires = 90 if "expired" in how else None
    id = dozer.queue("jobs").enqueue(1, max_attempts=1, expires=expires).id
    waiting = asleep(dozer.results.wait, id, PATIENCE)
    assert not waiting.done()
    elsewhere(_end, url, how)
    for outcome in (waiting, asleep(dozer.results.wait, id, 0)):
        with pytest.raises(TaskFailed) as caught:
            outcome.result(SOON)
        assert (caught.value.id, caught.value.reason) == (id, reason)
        assert error is None if caught.value.error is None else error and error in caught.value.error
        assert f"task {id} is dead ({reason}" in str(caught.value)
        assert "requeue()" in str(caught.value)
    assert dozer.results.get(id, "nothing") == "nothing"


@proves("K3", "Q4", "Q8")
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"max_attempts": 1}, "exhausted"),
        ({"expires": 0.4}, "expired"),
        ({"expires": 0.4, "delay": 100}, "expired"),
    ],
    ids=["last lease", "ready", "scheduled"],
)
def test_a_death_by_the_clock_wakes_though_nobody_works(dozer: EventKit, how: dict[str, Any], reason: str) -> None:
    queue = dozer.queue("jobs")
    id = queue.enqueue(1, **how).id
    if reason == "exhausted":
        assert queue.claim("worker", lease=0.4)
    with pytest.raises(TaskFailed) as caught:
        asleep(dozer.results.wait, id, PATIENCE).result(SOON)
    assert caught.value.reason == reason


@proves("K3")
def test_a_lapsed_attempt_is_no_death(kit: EventKit) -> None:
    """As long as there are others; nor is a retry."""
    queue = kit.queue("jobs")
    id = queue.enqueue(1, max_attempts=3).id
    assert queue.claim("worker", lease=0.05)
    waiting = asleep(kit.results.wait, id, PATIENCE)
    [task] = queue.claim("worker", wait=PATIENCE)
    assert queue.retry(task, delay=0, error="again")
    [task] = queue.claim("worker")
    time.sleep(0.1)
    assert not waiting.done()
    assert queue.ack(task, result="at last")
    assert waiting.result(SOON) == "at last"


@proves("K3", "G4")
def test_who_is_just_finishing_is_waited_for(kit: EventKit) -> None:
    """A lease may lapse between an ack and the commit of its transaction; that is no death."""
    queue = kit.queue("jobs")
    id = queue.enqueue(1, max_attempts=1).id
    with kit.transaction() as tx:
        [task] = queue.claim("worker", lease=0.4, tx=tx)
    waiting = asleep(kit.results.wait, id, PATIENCE)
    with kit.transaction() as tx:
        assert queue.ack(task, result="done", tx=tx)
        time.sleep(1)
        assert not waiting.done()
    assert waiting.result(SOON) == "done"


@proves("K3", "G13")
def test_waiting_in_vain_is_an_error(kit: EventKit) -> None:
    id = kit.queue("jobs").enqueue(1).id
    for which in (id, "nothing", 10**9):
        started = time.monotonic()
        with pytest.raises(TimedOut, match="has no result yet: wait longer") as caught:
            kit.results.wait(which, 0.3)
        assert 0.3 <= time.monotonic() - started < SOON
        assert isinstance(caught.value, TimeoutError)
        assert isinstance(caught.value, EventkitError)
    with pytest.raises(ValueError, match="timeout is at least"):
        kit.results.wait(id, -1)


@proves("K3", "G1")
def test_closing_the_kit_ends_who_waits_for_a_result(kit: EventKit, connect: Any, url: str) -> None:
    other = connect(url)
    waiting = asleep(other.results.wait, "x", PATIENCE)
    other.close()
    with pytest.raises(Closed):
        waiting.result(SOON)


@proves("K3", "Q11")
def test_a_requeued_task_may_come_to_something(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    id = queue.enqueue(1).id
    assert queue.fail(queue.claim("worker")[0], "broken")
    with pytest.raises(TaskFailed):
        kit.results.wait(id, PATIENCE)
    assert queue.requeue() == 1
    waiting = asleep(kit.results.wait, id, PATIENCE)
    assert queue.ack(queue.claim("worker")[0], result=1)
    assert waiting.result(SOON) == 1
    assert eventually(lambda: kit.results.get(id)) == 1
