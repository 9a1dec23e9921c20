"""Random calls beside a model: races, and events that are handled exactly once."""

import random
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

import pytest

from eventkit import EventKit, EventStream, NewEvent, NewTask

from .clauses import proves, requires
from .processes import spawn
from .streaming import END, copy_exactly_once
from .threads import PATIENCE, ack_batches, drain_in_threads, eventually, rolled_back, work_on

_REWRITTEN = ("model_queue", "model_stream", "queue_calls", "queue_machine", "stream_machine")
pytest.register_assert_rewrite(*(f"{__package__}.{module}" for module in _REWRITTEN))

_QUEUE = ("Q1", "Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Q8", "Q9", "Q10", "Q11", "Q12", "Q13", "Q15", "Q16", "G4", "T2")
_STREAM = ("S1", "S3", "S4", "S5", "S6", "S7", "S8", "G4")


Walk = Callable[..., None]


@pytest.fixture
def walk(connect: Callable[..., Any], url: str, flavour: str, caplog: pytest.LogCaptureFixture) -> Walk:
    """Make some runs of so many steps with a machine; ``shrink=True`` makes a failure as short as possible."""
    caplog.set_level("ERROR", "eventkit")  # Half of the calls are made with lost leases, which are logged as warnings.
    return partial(_walk, connect, url, flavour)


def _walk(
    connect: Callable[..., Any], url: str, flavour: str, machine: str, runs: int, steps: int, *, shrink: bool = False
) -> None:
    reason = "the models are walked by Hypothesis: pip install hypothesis"
    hypothesis = pytest.importorskip("hypothesis", reason=reason)
    stateful = pytest.importorskip("hypothesis.stateful", reason=reason)
    from .queue_calls import Ground
    from .queue_machine import QueueMachine
    from .stream_machine import StreamMachine

    chosen = {"queue": QueueMachine, "stream": StreamMachine}[machine]
    ground = Ground(connect, url)
    # The steps differ for each flavour and scheme but are the same every time, so that a failure is reproducible.
    seed = crc32(f"{flavour} {urlsplit(url).scheme} {runs}".encode())
    stateful.run_state_machine_as_test(
        hypothesis.seed(seed)(lambda: chosen(ground)),
        settings=hypothesis.settings(
            max_examples=runs,
            stateful_step_count=steps,
            # Shrinking takes minutes; only the slow tests do it.
            phases=[hypothesis.Phase.generate, *([hypothesis.Phase.shrink] if shrink else [])],
            database=None,
            deadline=None,
            # A step makes several real transactions on a shared machine, so slowness is no failure.
            suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
        ),
    )


@proves(*_QUEUE)
def test_a_queue_answers_as_its_model(walk: Walk) -> None:
    """A queue holds and answers the same as its model, for random calls in random order."""
    walk("queue", 40, 30)


@proves(*_STREAM)
def test_a_stream_answers_as_its_model(walk: Walk) -> None:
    """A stream holds and answers the same as its model, for random calls in random order."""
    walk("stream", 40, 30)


@pytest.mark.slow
@proves(*_QUEUE)
def test_a_queue_answers_as_its_model_for_long(walk: Walk) -> None:
    """Five thousand steps of a queue agree with the model."""
    walk("queue", 100, 50, shrink=True)


@pytest.mark.slow
@proves(*_STREAM)
def test_a_stream_answers_as_its_model_for_long(walk: Walk) -> None:
    """Five thousand steps of a stream agree with the model."""
    walk("stream", 100, 50, shrink=True)


_STEPS = ("received", "begun", "seen", "written", "saved", "committed")


def _create_effect(kit: Any) -> None:
    with kit.transaction() as tx:
        tx.execute("DROP TABLE IF EXISTS effect")  # A table beside eventkit's own, which are fresh for each test.
        tx.execute("CREATE TABLE effect (n INTEGER)")


def _effects(kit: Any) -> list[int]:
    """Return the rows that the consumer has written, in the order of the events."""
    with kit.transaction() as tx:
        return [n for (n,) in tx.execute("SELECT n FROM effect ORDER BY n").fetchall()]


@proves("S9", "S4")
def test_rows_and_offset_commit_together(kit: EventKit) -> None:
    """Both are committed or neither is."""
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
    """Publish each number twice, as a producer does that lost the first answer."""
    ids = [f"message {n}" for n in numbers]
    return stream.publish_many(
        NewEvent(n, headers={"message-id": id}) for n, id in zip(numbers, ids, strict=True) for _ in range(2)
    )


def _kill_at_each_step(kit: Any, url: str, flavour: str, kills: int) -> None:
    """Kill the copier between any two statements of its transaction, at each place in turn."""
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
    """The copier is killed at every step, many times."""
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
            effects, offset = now  # The server may still be committing for the killed process.
        handled = {event.payload for event in stream.read(limit=1_000_000) if event.offset <= offset}
        assert effects == sorted(handled)
    last = stream.head()
    stream.publish(END)
    with spawn(copy_exactly_once, url, flavour, None, None):
        # On a slow machine most of the events are left; the last copier has time for them.
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


@proves("Q2")
@requires("concurrent_writers")
def test_sixteen_claimers_share_the_tasks(kit: EventKit, url: str) -> None:
    """No two get the same task, and none waits for the one that keeps a transaction open."""
    queue = kit.queue("jobs")
    queue.enqueue_many([NewTask(number, priority=number % 3) for number in range(600)])
    with kit.transaction() as tx:
        held = queue.claim("slow", 20, tx=tx)
        processes = [spawn(drain_in_threads, url, 3, 5) for _ in range(3)]
        shares = [share for process in processes for share in process.result()]
        assert len(held) == 20
    assert sorted(payload for share in shares for payload in share) == sorted(
        set(range(600)) - {task.payload for task in held}
    )
    assert queue.ack_many(held) == sorted(task.id for task in held)
    assert queue.size() == 0


@proves("Q5")
def test_batches_are_acked_in_any_order(kit: EventKit, url: str) -> None:
    """Two workers ack the same tasks from opposite ends: each task is acked once, and neither blocks the other."""
    queue = kit.queue("jobs")
    queue.enqueue_many([NewTask(n, priority=n % 7, key=None if n % 5 else str(n)) for n in range(300)])
    tasks = queue.claim("worker", 300)
    random.Random(1).shuffle(tasks)
    with spawn(ack_batches, url, 2, tasks, 1) as one, spawn(ack_batches, url, 2, tasks[::-1], 2) as two:
        pass
    assert sorted(one.result() + two.result()) == sorted(task.id for task in tasks)


@proves("Q2", "Q5")
@pytest.mark.parametrize("seconds", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_calls_for_many_tasks_do_not_disturb_each_other(kit: EventKit, url: str, seconds: float) -> None:
    """Acks, purges, requeues, lapses and claims of the same tasks at once all succeed."""
    kit.queue("jobs").enqueue_many(range(200))
    for process in [spawn(work_on, url, 4, seconds, seed) for seed in range(4)]:
        process.join()
