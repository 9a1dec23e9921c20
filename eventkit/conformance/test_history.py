"""History: each step of a task is an event if its queue keeps its history (T)."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from eventkit import EventKit, NewTask, Permanent, Retry, Snooze, TaskQueue
from eventkit.testing import advance

from .calling import Caller
from .clauses import both_flavours, proves, requires
from .collecting import collecting, kit_of
from .replaying import FIELDS, HISTORY, Replay, history, kinds
from .threads import SOON, asleep, database_ms, rolled_back

Connect = Callable[..., Any]


@pytest.fixture
def logged(kit: EventKit) -> TaskQueue[Any]:
    """Return a queue that keeps its history."""
    queue = kit.queue("q")
    queue.configure(history=True)
    return queue


@proves("T1")
def test_an_event_has_what_a_report_needs(kit: EventKit, logged: TaskQueue[Any]) -> None:
    """Events hold how long a task waited after it was due, how long each attempt took, its worker, and how it ended."""
    began_ms = database_ms(kit)
    id = logged.enqueue("payload", delay=50, priority=7).id
    advance(kit, 53)
    [task] = logged.claim("ann", lease=90)
    advance(kit, 20)
    logged.retry(task, delay=0, error="no answer")
    [task] = logged.claim("bob")
    logged.ack(task, result=1)
    events = kit.stream(HISTORY).read()
    assert {event.key for event in events} == {f"q:{id}"}
    steps = [event.payload for event in events]
    assert all([*step] == FIELDS for step in steps)
    assert {(step["queue"], step["id"], step["priority"]) for step in steps} == {("q", id, 7)}
    assert [(step["kind"], step["attempt"], step["worker"], step["error"]) for step in steps] == [
        ("enqueued", 0, None, None),
        ("started", 1, "ann", None),
        ("retried", 1, "ann", "no answer"),
        ("started", 2, "bob", None),
        ("succeeded", 2, "bob", None),
    ]
    enqueued, started, retried, again, succeeded = steps
    assert enqueued["run_at"] - began_ms in range(50_000, 80_000)
    assert retried["run_at"] == again["run_at"]
    assert 3_000 <= started["wait_ms"] < 50_000 <= 50_000 + again["wait_ms"] < 60_000
    assert 20_000 <= retried["run_ms"] < 60_000
    assert 0 <= succeeded["run_ms"] < 20_000
    assert {step["reason"] for step in steps} == {None}


def _held(queue: TaskQueue[Any], **options: Any) -> Any:
    queue.enqueue("x", **options)
    [task] = queue.claim("w", lease=5)
    return task


def _acked_of_many(kit: EventKit, queue: TaskQueue[Any]) -> None:
    assert queue.ack_many([_held(queue)])


def _kept(kit: EventKit, queue: TaskQueue[Any]) -> None:
    queue.configure(keep_done=1)
    queue.ack(_held(queue, key="k"))
    advance(kit, 2)
    assert kit.maintain().done == 1


def _lapsed(kit: EventKit, queue: TaskQueue[Any], **options: Any) -> None:
    _held(queue, **options)
    advance(kit, 6)
    assert kit.maintain().moved == 1


def _expired(kit: EventKit, queue: TaskQueue[Any]) -> None:
    queue.enqueue("x", expires=5)
    advance(kit, 6)
    assert queue.claim("w") == []


def _handled(queue: TaskQueue[Any], error: Exception | None) -> None:
    with queue.handling(_held(queue)):
        if error is not None:
            raise error


def _lapsed_then_failed(kit: EventKit, queue: TaskQueue[Any]) -> None:
    _lapsed(kit, queue, max_attempts=2)
    [task] = queue.claim("w")
    queue.retry(task)


def _purged(kit: EventKit, queue: TaskQueue[Any]) -> None:
    queue.fail(_held(queue), "x")
    assert queue.purge_dead() == 1


def _purged_while_leased(kit: EventKit, queue: TaskQueue[Any]) -> None:
    task = _held(queue)
    assert queue.purge("running") == 1
    assert not queue.ack(task)


def _cancelled_after_lapse(kit: EventKit, queue: TaskQueue[Any]) -> None:
    task = _held(queue)
    advance(kit, 6)
    assert queue.cancel(task.id)


_DIED = ["failed", "dead"]
_ENDINGS: dict[str, tuple[Callable[[EventKit, TaskQueue[Any]], Any], list[str], str | None]] = {
    "ack": (lambda kit, queue: queue.ack(_held(queue)), ["started", "succeeded"], None),
    "ack with a key": (lambda kit, queue: queue.ack(_held(queue, key="k")), ["started", "succeeded"], None),
    "ack_many": (_acked_of_many, ["started", "succeeded"], None),
    "kept": (_kept, ["started", "succeeded"], None),
    "receive": (lambda kit, queue: queue.enqueue("x") and queue.receive(), ["started", "succeeded"], None),
    "handling": (lambda kit, queue: _handled(queue, None), ["started", "succeeded"], None),
    "Retry": (lambda kit, queue: _handled(queue, Retry(9, "text")), ["started", "retried"], None),
    "Snooze": (lambda kit, queue: _handled(queue, Snooze(9)), ["started", "snoozed"], None),
    "Permanent": (lambda kit, queue: _handled(queue, Permanent("text")), ["started", *_DIED], "failed"),
    "release": (lambda kit, queue: queue.release(_held(queue)), ["started", "released"], None),
    "snooze": (lambda kit, queue: queue.snooze(_held(queue), 9), ["started", "snoozed"], None),
    "retry": (lambda kit, queue: queue.retry(_held(queue)), ["started", "retried"], None),
    "extend": (lambda kit, queue: queue.extend(_held(queue), 9), ["started"], None),
    "exhausted": (lambda kit, queue: queue.retry(_held(queue, max_attempts=1)), ["started", *_DIED], "exhausted"),
    "fail": (lambda kit, queue: queue.fail(_held(queue), "text"), ["started", *_DIED], "failed"),
    "lapse": (_lapsed, ["started", "lapsed"], None),
    "last lapse": (lambda kit, queue: _lapsed(kit, queue, max_attempts=1), ["started", "lapsed", "dead"], "exhausted"),
    "lapse and expiry": (
        lambda kit, queue: _lapsed(kit, queue, expires=5),
        ["started", "lapsed", "expired"],
        "expired",
    ),
    "lapse before": (_lapsed_then_failed, ["started", "lapsed", "started", *_DIED], "exhausted"),
    "expiry": (_expired, ["expired"], "expired"),
    "cancel": (lambda kit, queue: queue.cancel(queue.enqueue("x").id), ["cancelled"], None),
    "cancel running": (lambda kit, queue: queue.cancel(_held(queue).id, True), ["started", "cancelled"], None),
    "cancel lapsed": (_cancelled_after_lapse, ["started", "cancelled"], None),
    "purge": (lambda kit, queue: queue.enqueue("x") and queue.purge(), ["cancelled"], None),
    "purge leased": (_purged_while_leased, ["started", "cancelled"], None),
    "purge_dead": (_purged, ["started", *_DIED, "purged"], None),
    "requeue": (
        lambda kit, queue: queue.fail(_held(queue), "x") and queue.requeue(),
        ["started", *_DIED, "requeued"],
        None,
    ),
    "drop": (lambda kit, queue: _held(queue) and queue.drop(force=True), ["started", "cancelled"], None),
}


@proves("T2")
@pytest.mark.parametrize("way", _ENDINGS)
def test_a_step_has_its_word(kit: EventKit, logged: TaskQueue[Any], way: str, caplog: pytest.LogCaptureFixture) -> None:
    """Every call records its kind of event, so that the events alone give the state of the task."""
    caplog.set_level("CRITICAL", "eventkit")
    act, expected, reason = _ENDINGS[way]
    act(kit, logged)
    assert kinds(kit) == ["enqueued", *expected]
    assert history(kit)[-1]["reason"] == reason
    Replay("q").follow(kit.stream(HISTORY).read())


@proves("T1")
def test_an_attempt_that_lapsed_took_as_long_as_its_lease(kit: EventKit, logged: TaskQueue[Any]) -> None:
    """The duration does not depend on when the lapse is found."""
    _lapsed(kit, logged)
    assert (history(kit)[-1]["kind"], history(kit)[-1]["run_ms"]) == ("lapsed", 5_000)


@proves("T2")
def test_poison_has_failed(kit: EventKit) -> None:
    """Poison fails in the attempt that claimed it."""
    typed = kit.queue("q", type=int)
    typed.configure(history=True)
    kit.queue("q").enqueue("no number")
    assert typed.claim("w") == []
    assert [(step["kind"], step["reason"]) for step in history(kit)] == [
        ("enqueued", None),
        ("started", None),
        ("failed", "poison"),
        ("dead", "poison"),
    ]
    assert "int" in history(kit)[-2]["error"]


@proves("T2")
def test_a_long_error_is_cut(kit: EventKit, logged: TaskQueue[Any]) -> None:
    """The dead task keeps the whole error."""
    logged.fail(_held(logged), "é" * 5_000)
    assert {step["error"] for step in history(kit)} == {None, "é" * 2_000}
    assert logged.dead()[0].error == "é" * 5_000


@proves("T3")
def test_every_way_to_enqueue_is_recorded(kit: EventKit, logged: TaskQueue[Any], engine: Any) -> None:
    """Batches, keys, tasks enqueued by an ack or a session, fires, copies of dead tasks and messages are recorded."""
    logged.enqueue_many([1, NewTask(2, key="k"), NewTask(3, key="k")])
    logged.enqueue_many([4, 5])
    other = kit.queue("other")
    other.configure(dead_letter_to="q")
    other.enqueue_many([1, 2])
    first, second = other.claim("w", 2)
    other.ack(first, then=[logged.new(6), logged.new(7, delay=9)])
    other.fail(second, "copied")
    with collecting(engine, kit) as session:
        kit_of(session).queue("q").enqueue(8)
        session.commit()
    kit.schedules.add("s", "@every 10s", "q")
    advance(kit, 11)
    assert len(kit.schedules.tick()) == 1
    assert kinds(kit) == ["enqueued"] * len(logged.tasks())
    assert [step["id"] for step in history(kit)] == [task.id for task in logged.tasks()]
    outbox = kit.outbox("mails", deliver=lambda message: None)
    outbox.queue.configure(history=True)
    with kit.transaction() as tx:
        outbox.add(1, tx=tx, key="ann")
    [message] = outbox.queue.claim("w")
    outbox.queue.ack(message)
    assert kinds(kit, "outbox:mails") == ["enqueued", "started", "succeeded"]
    assert kinds(kit, "other") == []


@proves("T3")
def test_steps_by_sql_are_recorded(kit: EventKit, logged: TaskQueue[Any], caller: Caller) -> None:
    """SQL functions and plain statements are recorded."""
    caller.call("enqueue", "q", "1")
    caller.call("enqueue", "q", "2")
    caller.call("enqueue", "q", "3")
    tasks = caller.call("claim", "q", "w", 2)
    assert caller.call("ack", json.dumps(tasks[0]))
    assert caller.call("fail", json.dumps(tasks[1]), "error")
    assert caller.call("cancel", "q", caller.call("claim", "q", "w")[0]["id"], True)
    steps = ["enqueued"] * 3 + ["started"] * 2 + ["succeeded", "failed", "dead", "started", "cancelled"]
    assert kinds(kit) == steps
    with kit.transaction() as tx:
        tx.execute(f"INSERT INTO {caller.prefix}eventkit_task (queue, payload) VALUES ('q', '1'), ('q', '2')")
        tx.execute(f"DELETE FROM {caller.prefix}eventkit_task WHERE state = 'ready'")
    assert kinds(kit)[len(steps) :] == ["enqueued"] * 2 + ["cancelled"] * 2


@proves("T1", "T3")
def test_a_step_and_its_event_are_one(kit: EventKit, logged: TaskQueue[Any]) -> None:
    """A rolled-back step has no event; committed steps are recorded in the order of the calls."""
    with rolled_back(kit) as tx:
        logged.enqueue(1, tx=tx)
        logged.receive(tx=tx)
    assert history(kit) == []
    with kit.transaction() as tx:
        logged.enqueue(1, tx=tx)
        [task] = logged.claim("w", tx=tx)
        logged.ack(task, tx=tx)
        logged.enqueue(2, tx=tx)
        logged.enqueue_many([3, 4], tx=tx)
    assert kinds(kit) == ["enqueued", "started", "succeeded", "enqueued", "enqueued", "enqueued"]


@proves("T4")
def test_a_history_begins_and_ends_when_it_is_configured_to(kit: EventKit) -> None:
    """It covers tasks that existed before; each queue has its own setting."""
    queue, other = kit.queue("q"), kit.queue("other")
    assert queue.settings().history is False
    queue.enqueue_many([1, 2, 3])
    queue.configure(history=True)
    assert queue.settings().history is True
    queue.configure(lease=60)
    other.enqueue(1)
    other.release(*other.claim("w"))
    first, second, third = queue.claim("w", 3)
    queue.ack(first)
    other.configure(history=True)
    queue.configure(history=False)
    queue.ack(second)
    other.receive()
    queue.configure(history=True)
    queue.ack(third)
    other.configure(history=None)
    other.enqueue(2)
    other.drop(force=True)
    queue.enqueue(4)
    assert kinds(kit) == ["started"] * 3 + ["succeeded"] * 2 + ["enqueued"]
    assert kinds(kit, "other") == ["started", "succeeded"]
    assert queue.drop(force=True)
    queue.enqueue(5)
    assert kinds(kit)[6:] == ["cancelled"]
    with pytest.raises(TypeError, match="history is True or False"):
        queue.configure(history=1)  # type: ignore[arg-type]


@proves("T5", "W1")
@both_flavours
def test_a_step_wakes_readers_of_the_history(kit: EventKit, logged: TaskQueue[Any]) -> None:
    """The commit of any step wakes them."""
    with kit.stream(HISTORY).subscribe() as steps:
        for act, kind in ((lambda: logged.enqueue(1), "enqueued"), (lambda: logged.claim("w"), "started")):
            waiting = asleep(lambda: next(steps))
            act()
            assert waiting.result(SOON).payload["kind"] == kind


@proves("T5")
@requires("concurrent_writers")
def test_no_step_is_passed_by(kit: EventKit, logged: TaskQueue[Any], connect: Connect, url: str) -> None:
    """A reader does not pass the position of a step that is not committed yet."""
    other = connect(url)
    with kit.transaction() as tx:
        logged.enqueue(1, tx=tx)
        other.queue("q").enqueue(2)
        assert history(other) == []
    assert kinds(other) == ["enqueued"] * 2


def _through(kit: EventKit, queue: TaskQueue[Any], count: int) -> None:
    queue.enqueue_many(range(count))
    while tasks := queue.claim("w", 1000):
        assert len(queue.ack_many(tasks)) == len(tasks)
    replay, stream = Replay("q"), kit.stream(HISTORY)
    after = 0
    while events := stream.read(after):
        replay.follow(events)
        after = events[-1].offset
    assert [*replay.tasks.values()] == [("done", 1)] * count


@proves("T3")
def test_a_batch_is_recorded_task_by_task(kit: EventKit, logged: TaskQueue[Any]) -> None:
    """Each task of the batch has an event."""
    _through(kit, logged, 1_500)


@pytest.mark.slow
@proves("T3")
def test_a_large_batch_is_recorded_task_by_task(kit: EventKit, logged: TaskQueue[Any]) -> None:
    """Each of a hundred thousand tasks has an event."""
    _through(kit, logged, 100_000)
