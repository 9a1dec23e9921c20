"""What tasks came to, and waiting for it: K3."""

from collections.abc import Callable
from typing import Any

import pytest

from eventkit import EventKit, TimedOut
from eventkit.testing import advance

from .clauses import proves
from .processes import Elsewhere, another_process  # noqa: F401  # a fixture
from .rollback import rolled_back
from .threads import PATIENCE

"""What ends a task for good, and what whoever waits is told."""


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
    """A number is not its digits."""
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


@proves("K3", "G4")
def test_saving_commits_and_rolls_back_with_its_transaction(kit: EventKit, connect: Any, url: str) -> None:
    other = connect(url)
    with rolled_back(kit) as tx:
        kit.results.save("x", 1, tx=tx)
    assert other.results.get("x") is None
    with kit.transaction() as tx:
        kit.results.save("x", 2, tx=tx)
        assert other.results.get("x") is None
    assert other.results.get("x") == 2


@proves("K3", "Q5")
def test_an_ack_saves_its_result_under_the_tasks_id(kit: EventKit) -> None:
    """Whatever else becomes of the task."""
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


@proves("K3", "Q5")
def test_an_ack_without_a_result_saves_none(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue_many([1, 2, 3])
    one, *rest = queue.claim("worker", 3)
    assert queue.ack(one)
    assert len(queue.ack_many(rest)) == 2
    assert [kit.results.get(task.id, "nothing") for task in (one, *rest)] == ["nothing"] * 3


@proves("K3", "Q16")
def test_a_tasks_result_is_there_for_an_hour_or_as_long_as_the_task(kit: EventKit) -> None:
    tasks = []
    for name, keep in (("default", None), ("briefly", 60), ("long", 7200)):
        queue = kit.queue(name)
        queue.configure(keep_done=keep)
        queue.enqueue(1)
        tasks += queue.claim("worker")
        assert queue.ack(tasks[-1], result=name)
    assert [info.result for info in kit.queue("long").list("done")] == ["long"]
    advance(kit, 3600 - PATIENCE)
    assert [kit.results.get(task.id) for task in tasks] == ["default", "briefly", "long"]
    advance(kit, PATIENCE)
    assert [kit.results.get(task.id) for task in tasks] == [None, None, "long"]
    advance(kit, 3600)
    assert [kit.results.get(task.id) for task in tasks] == [None, None, None]


@proves("K3", "G4", "Q5")
def test_an_ack_and_its_result_are_one(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue(1)
    [task] = queue.claim("worker")
    with rolled_back(kit) as tx:
        assert queue.ack(task, result=1, tx=tx)
    assert kit.results.get(task.id, "nothing") == "nothing"
    with pytest.raises(ValueError, match="nan"):
        queue.ack(task, result=float("nan"))
    with kit.transaction() as tx:
        assert queue.ack(task, result=2, tx=tx)
    assert kit.results.get(task.id) == 2
    queue.enqueue(1)
    [lost] = queue.claim("worker", lease=0)
    assert not queue.ack(lost, result=3)
    assert kit.results.get(lost.id, "nothing") == "nothing"
