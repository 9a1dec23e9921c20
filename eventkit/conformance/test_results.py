"""Results, and waiting for them."""

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
from .threads import PATIENCE, SOON, asleep, eventually
from .urls import with_options

"""The ends of a task, and the answer that waiters get."""


@proves("K3")
def test_what_was_saved_is_there(kit: EventKit, connect: Any, url: str) -> None:
    kit.results.save("report", {"rows": [1, 2.5, None, "🐘"]})
    assert connect(url).results.get("report") == {"rows": [1, 2.5, None, "🐘"]}
    kit.results.save("report", "again")
    assert kit.results.get("report") == "again"
    assert kit.results.get("another") is None
    assert kit.results.get("another", "none") == "none"


@proves("K3")
def test_a_stored_null_is_not_missing(kit: EventKit) -> None:
    kit.results.save("null", None)
    assert kit.results.get("null", "default") is None
    assert kit.results.wait("null", 0) is None


@proves("K3", "G10")
def test_ids_are_numbers_or_names(kit: EventKit) -> None:
    """A number is a different id from its digits."""
    ids: list[int | str] = [7, "7", '"7"', "🐘: ann's", "x" * 255, 2**63 - 1]
    for id in ids:
        kit.results.save(id, [id])
    assert [kit.results.get(id) for id in ids] == [[id] for id in ids]
    assert [kit.results.wait(id, 0) for id in ids] == [[id] for id in ids]
    calls: list[Callable[[Any], object]] = [
        lambda id: kit.results.save(id, 1),
        lambda id: kit.results.get(id),
        lambda id: kit.results.wait(id, 0),
    ]
    for call in calls:
        for name in ("", "x" * 256, "a\nb"):
            with pytest.raises(ValueError, match="name of a result"):
                call(name)
        for number in (-1, 2**63):
            with pytest.raises(ValueError, match="id is a whole number"):
                call(number)
        for other in (1.5, None, True):
            with pytest.raises(TypeError, match="id is a whole number"):
                call(other)


@proves("K3", "G8")
def test_a_value_is_held_to_the_rules_of_payloads(kit: EventKit) -> None:
    with pytest.raises(ValueError, match="nan"):
        kit.results.save("x", float("nan"))
    with pytest.raises(ValueError, match="bytes as JSON"):
        kit.results.save("x", "x" * 600_000)
    for ttl in (0, -1):
        with pytest.raises(ValueError, match="ttl is at least"):
            kit.results.save("x", 1, ttl=ttl)
    assert kit.results.get("x") is None
    queue = kit.queue("jobs")
    queue.enqueue(1)
    [task] = queue.claim("worker")
    with pytest.raises(ValueError, match="nan"):
        queue.ack(task, result=float("nan"))
    assert queue.ack(task)


@proves("K3")
def test_a_result_expires(kit: EventKit) -> None:
    kit.results.save("an hour", 1)
    kit.results.save("two hours", 2, ttl=7200)
    advance(kit, 3600 - PATIENCE)
    assert [kit.results.get(id) for id in ("an hour", "two hours")] == [1, 2]
    assert kit.results.sweep() == 0
    advance(kit, PATIENCE)
    assert [kit.results.get(id) for id in ("an hour", "two hours")] == [None, 2]
    with pytest.raises(TimedOut):
        kit.results.wait("an hour", 0)
    assert [kit.results.sweep(), kit.results.sweep()] == [1, 0]
    kit.results.save("an hour", 3)
    assert kit.results.get("an hour") == 3


@proves("K3", "Q5")
def test_an_ack_saves_its_result_under_the_tasks_id(kit: EventKit) -> None:
    """The result stays although the task is deleted or kept."""
    for number, result in enumerate(({"sum": 3}, None, 0, "")):
        for key in (None, "key"):
            queue = kit.queue(f"jobs {number} {key}")
            queue.enqueue(1, key=key)
            [task] = queue.claim("worker")
            assert queue.ack(task, result=result) is True
            assert kit.results.get(task.id, "nothing") == result
            assert queue.get(task.id) is None
            assert queue.ack(task, result="again") is False
            assert kit.results.get(task.id, "nothing") == result


@proves("K3", "Q16")
def test_a_tasks_result_is_there_for_an_hour_or_as_long_as_the_task(kit: EventKit) -> None:
    tasks = []
    for name, keep in (("default", None), ("briefly", 60), ("long", 7200)):
        queue = kit.queue(name)
        queue.configure(keep_done=keep)
        queue.enqueue(1)
        tasks += queue.claim("worker")
        assert queue.ack(tasks[-1], result=name)
    assert [info.result for info in kit.queue("long").tasks("done")] == ["long"]
    advance(kit, 3600 - PATIENCE)
    assert [kit.results.get(task.id) for task in tasks] == ["default", "briefly", "long"]
    advance(kit, PATIENCE)
    assert [kit.results.get(task.id) for task in tasks] == [None, None, "long"]
    advance(kit, 3600)
    assert [kit.results.get(task.id) for task in tasks] == [None, None, None]


@pytest.fixture
def dozer(connect: Callable[..., Any], url: str) -> Any:
    """Return a kit whose fallback poll never comes."""
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
    waiting = [asleep(dozer.results.wait, *which) for which in (("named", PATIENCE), (id, PATIENCE), (id,))]
    elsewhere(_save, url, "another", 0)
    assert not any(future.done() for future in waiting)
    elsewhere(_save, url, "named", {"a": 1})
    assert waiting[0].result(SOON) == {"a": 1}
    elsewhere(_run_one, url, None)
    assert [future.result(SOON) for future in waiting[1:]] == [None, None]


@proves("K3", "W1")
def test_no_wait_gets_a_result_before_its_commit(dozer: EventKit, url: str) -> None:
    waiting = asleep(dozer.results.wait, "x", PATIENCE)
    with dozer.transaction() as tx:
        dozer.results.save("x", 1, tx=tx)
        time.sleep(0.2)
        assert not waiting.done()
    assert waiting.result(SOON) == 1


@proves("K3", "G13", "W2")
@pytest.mark.parametrize("how", _DEATHS)
def test_a_death_in_another_process_wakes(dozer: EventKit, url: str, elsewhere: Elsewhere, how: str) -> None:
    """The error has the reason and the text; later callers get the same."""
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
        assert caught.value.code == {"lapsed, and claimed": "LEASE_LOST"}.get(how, reason.upper())
        assert error is None if caught.value.error is None else error and error in caught.value.error
        assert f"task {id} is dead ({reason}, {caught.value.code};" in str(caught.value)
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
def test_a_death_by_the_clock_wakes_without_a_worker(dozer: EventKit, how: dict[str, Any], reason: str) -> None:
    queue = dozer.queue("jobs")
    id = queue.enqueue(1, **how).id
    if reason == "exhausted":
        assert queue.claim("worker", lease=0.4)
    with pytest.raises(TaskFailed) as caught:
        asleep(dozer.results.wait, id, PATIENCE).result(SOON)
    assert caught.value.reason == reason


@proves("K3")
def test_a_lapsed_attempt_is_no_death(kit: EventKit) -> None:
    """A lapse with attempts left is no death, nor is a retry."""
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
def test_a_wait_for_a_result_outlasts_an_uncommitted_ack(kit: EventKit) -> None:
    """A lease that lapses between an ack and the commit of its transaction is no death."""
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
def test_closing_the_kit_ends_waits_for_a_result(kit: EventKit, connect: Any, url: str) -> None:
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
