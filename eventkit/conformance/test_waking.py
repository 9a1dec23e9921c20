"""Waking, and clocks that differ."""

import asyncio
import random
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import eventkit
from eventkit import EventKit, Task

from .clauses import proves
from .flavours import Blocking, Loop
from .processes import PATIENCE, Elsewhere, another_process, background, spawn  # noqa: F401  # a fixture
from .threads import SOON
from .urls import with_options

NEVER = 3600
"""Seconds of a fallback poll that no test reaches: every waiter that wakes was woken."""


@pytest.fixture
def sleeper(connect: Callable[..., Any], url: str) -> Any:
    """Return a kit whose fallback poll never comes."""
    return connect(with_options(url, fallback_poll=NEVER))


@proves("W1", "W2")
def test_a_commit_in_another_process_wakes_every_waiter(sleeper: EventKit, url: str, elsewhere: Elsewhere) -> None:
    """Subscribers, workers, listeners and waiting calls wake when another process commits what they wait for."""
    sleeper.queue("full").configure(max_size=1)
    sleeper.queue("full").enqueue("in the way")
    events, tasks = sleeper.stream("t").subscribe(), sleeper.queue("worked").work("w")
    heard, both = sleeper.channel("c").listen(), sleeper.listen("other", "c")
    waiting = [
        background(lambda: next(events).payload),
        background(lambda: next(tasks).payload),
        background(lambda: next(heard).payload),
        background(lambda: next(both).payload),
        background(lambda: sleeper.queue("claimed").claim("w", wait=PATIENCE)[0].payload),
        background(lambda: sleeper.queue("full").enqueue("waited", wait=PATIENCE).created),
    ]
    time.sleep(0.2)
    elsewhere(_commit_nothing_of_interest, url)
    time.sleep(0.2)
    assert not any(future.done() for future in waiting)
    elsewhere(_commit_everything, url)
    assert [future.result(PATIENCE) for future in waiting] == ["woken"] * 5 + [True]


def _commit_nothing_of_interest(url: str) -> None:
    with eventkit.connect(url) as kit:
        kit.stream("t!").publish(1)
        kit.queue("q!").enqueue(1)
        kit.queue("claimed").enqueue("later", delay=1000)
        kit.channel("c!").notify(1)
        kit.stream("t").save_offset("c", 1)


def _commit_everything(url: str) -> None:
    with eventkit.connect(url) as kit:
        kit.stream("t").publish("woken")
        kit.queue("worked").enqueue("woken")
        kit.queue("claimed").enqueue("woken")
        kit.channel("c").notify("woken")
        kit.queue("full").receive()


def _write_elsewhere(url: str) -> None:
    """Commit to a table that is not eventkit's own."""
    with eventkit.connect(url) as kit:
        for sql in ("CREATE TABLE shop (n integer)", "DROP TABLE shop"):
            with kit.transaction() as tx:
                tx.execute(sql)


@proves("W7")
def test_a_commit_to_any_table_is_a_change(sleeper: EventKit, url: str, elsewhere: Elsewhere) -> None:
    """It is noticed before the first step, between two steps, and while a step waits."""
    with sleeper.changes() as changes:
        elsewhere(_write_elsewhere, url)
        changes.next(SOON)
        sleeper.stream("t").save_offset("c", 1)
        changes.next(SOON)
        waiting = background(changes.next, PATIENCE)
        elsewhere(_write_elsewhere, url)
        waiting.result(SOON)
    assert list(changes) == []


@proves("W7", "W2")
def test_the_last_commit_is_followed_by_a_change(sleeper: EventKit, url: str) -> None:
    """A reader that only reads when something has changed reads everything."""
    changes, seen = sleeper.changes(), list[Any]()
    with spawn(_publish_slowly, url, 100):
        while len(seen) < 100:
            changes.next(PATIENCE)
            seen += [event.payload for event in sleeper.stream("t").read()][len(seen) :]
    assert seen == list(range(100))
    waiting = background(list, changes)
    time.sleep(0.1)
    sleeper.close()
    assert len(waiting.result(SOON)) <= 2


_MAKE_READY: dict[str, Callable[[Any, Task[Any] | None], object]] = {
    "retry": lambda queue, task: queue.retry(task, delay=0),
    "retry later": lambda queue, task: queue.retry(task, delay=0.2),
    "release": lambda queue, task: queue.release(task),
    "extend to less": lambda queue, task: queue.extend(task, 0.2),
    "fail and requeue": lambda queue, task: queue.fail(task, "x") and queue.requeue(),
    "a delay that is shorter": lambda queue, task: queue.enqueue("sooner", delay=0.2),
    "resume": lambda queue, task: queue.enqueue(1) and queue.resume(),
    "more may run": lambda queue, task: queue.configure(max_running=2),
    "ack at max_running": lambda queue, task: queue.ack(task),
    "ack_many at max_running": lambda queue, task: queue.ack_many([task]),
    "fail at max_running": lambda queue, task: queue.fail(task, "x"),
    "retry at max_running": lambda queue, task: queue.retry(task, delay=1000),
    "cancel at max_running": lambda queue, task: queue.cancel(task.id if task else 0, running=True),
    "a faster rate": lambda queue, task: queue.configure(rate=1000),
}


@proves("W2", "Q2")
def test_every_call_that_makes_a_task_ready_wakes(sleeper: EventKit, url: str, elsewhere: Elsewhere) -> None:
    """A waiting claim wakes when another process makes a task ready, by any call."""
    for what in _MAKE_READY:
        queue = sleeper.queue("q")
        queue.enqueue("delayed", delay=5000)
        queue.enqueue("held", priority=1)
        if what == "a faster rate":
            queue.configure(rate=0.0001, burst=1)
        task = None if what == "resume" else elsewhere(_hold, url)
        if what == "resume":
            queue.pause()
        elif "max_running" in what or what in ("more may run", "a faster rate"):
            if what != "a faster rate":
                queue.configure(max_running=1)
            queue.enqueue("next")
        waiting = background(lambda: queue.claim("w", wait=PATIENCE))  # noqa: B023
        time.sleep(0.05)
        assert not waiting.done(), what
        elsewhere(_make_ready, url, what, task)
        assert len(waiting.result(PATIENCE / 2)) == 1, what
        queue.drop(force=True)


def _hold(url: str) -> Task[Any]:
    with eventkit.connect(url) as kit:
        return kit.queue("q").claim("elsewhere", lease=1000)[0]


def _make_ready(url: str, what: str, task: Task[Any] | None) -> None:
    with eventkit.connect(url) as kit:
        _MAKE_READY[what](kit.queue("q"), task)


_MAKE_ROOM: dict[str, Callable[[Any], object]] = {
    "ack": lambda queue: queue.ack(queue.claim("w")[0]),
    "fail": lambda queue: queue.fail(queue.claim("w")[0], "x"),
    "receive": lambda queue: queue.receive(),
    "cancel": lambda queue: queue.cancel(queue.peek()[0].id),
    "purge": lambda queue: queue.purge(),
    "configure": lambda queue: queue.configure(max_size=2),
    "no bound": lambda queue: queue.configure(max_size=None),
}


@proves("W2", "Q13")
def test_every_call_that_makes_room_wakes(sleeper: EventKit, url: str, elsewhere: Elsewhere) -> None:
    """A waiting enqueue wakes when another process makes room, by any call."""
    for what in _MAKE_ROOM:
        queue = sleeper.queue("q")
        queue.configure(max_size=1)
        queue.enqueue("in the way")
        waiting = background(lambda: queue.enqueue("waited", wait=PATIENCE))  # noqa: B023
        time.sleep(0.05)
        assert not waiting.done(), what
        elsewhere(_make_room, url, what)
        assert waiting.result(PATIENCE / 2).created, what
        queue.drop(force=True)


def _make_room(url: str, what: str) -> None:
    with eventkit.connect(url) as kit:
        _MAKE_ROOM[what](kit.queue("q"))


def _receiver(kit: Any, kind: str, name: str) -> Callable[[], Any]:
    """Return a callable that waits for the next payload sent under *name*."""
    if kind == "subscribe":
        events = kit.stream(name).subscribe()
        return lambda: next(events).payload
    if kind == "listen":
        notifications = kit.channel(name).listen()
        return lambda: next(notifications).payload
    queue = kit.queue(name)
    if kind == "claim":

        def claim() -> Any:
            [task] = queue.claim("w", wait=PATIENCE)
            assert queue.ack(task)
            return task.payload

        return claim
    tasks = queue.work("w")

    def work() -> Any:
        with queue.handling(next(tasks)) as task:
            return task.payload

    return work


def _send(kit: Any, kind: str, name: str, payload: Any) -> None:
    if kind == "subscribe":
        kit.stream(name).publish(payload)
    elif kind == "listen":
        kit.channel(name).notify(payload)
    else:
        kit.queue(name).enqueue(payload)


def _play(kit: Any, kind: str, name: str, other: str, rounds: int, serves: bool) -> None:
    receive = _receiver(kit, kind, name)
    _send(kit, "claim", other + " is there", True)
    assert _receiver(kit, "claim", name + " is there")()
    for number in range(rounds):
        if serves:
            _send(kit, kind, other, number)
        assert receive() == number
        if not serves:
            # The random pauses cover every moment between "found nothing" and "asleep".
            time.sleep(random.choice((0, 0, 0.0002, 0.0005, 0.001, 0.002)) * random.random())
            _send(kit, kind, other, number)


def _play_in_child(url: str, flavour: str, kind: str, rounds: int) -> None:
    if flavour == "sync":
        with eventkit.connect(url) as kit:
            _play(kit, kind, "pong", "ping", rounds, False)
        return
    loop = Loop()
    kit = Blocking(loop.run(eventkit.connect_async(url)), loop)
    _play(kit, kind, "pong", "ping", rounds, False)
    kit.close()
    loop.close()


@proves("W1", "W2")
@pytest.mark.parametrize("rounds", [150, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["subscribe", "listen", "claim", "work"])
def test_no_wake_is_lost(
    sleeper: EventKit, url: str, flavour: str, elsewhere: Elsewhere, kind: str, rounds: int
) -> None:
    """Two processes that wait for each other's every commit never miss one."""
    elsewhere.begin(_play_in_child, with_options(url, fallback_poll=NEVER), flavour, kind, rounds)
    game = background(_play, sleeper, kind, "ping", "pong", rounds, True)
    game.result(PATIENCE + rounds / 20)
    elsewhere.end()


@proves("W2")
def test_listeners_that_come_and_go_do_not_disturb_others(sleeper: EventKit, url: str, elsewhere: Elsewhere) -> None:
    """A listener that stays hears everything while others attach and leave."""
    stop = threading.Event()
    guests = 0

    def come_and_go() -> None:
        nonlocal guests
        while not stop.is_set():
            with sleeper.channel("c").listen(), sleeper.stream("t").subscribe(start="latest"):
                sleeper.queue("empty").claim("w", wait=0.001)
                guests += 1

    staying = sleeper.stream("t").subscribe()
    coming = [background(come_and_go) for _ in range(3)]
    elsewhere.begin(_publish_slowly, url, 150)
    seen = background(lambda: [next(staying).payload for _ in range(150)])
    assert seen.result(PATIENCE) == list(range(150))
    elsewhere.end()
    stop.set()
    for future in coming:
        future.result(PATIENCE)
    assert guests > 10


def _publish_slowly(url: str, count: int) -> None:
    with eventkit.connect(url) as kit:
        for number in range(count):
            time.sleep(random.random() * 0.004)
            kit.stream("t").publish(number)


@proves("W3")
def test_idle_waiters_cost_next_to_nothing(kit: EventKit) -> None:
    """A process full of waiters without events uses hardly any CPU."""
    iterators = [kit.stream("t").subscribe() for _ in range(20)] + [kit.queue("q").work() for _ in range(20)]
    for iterator in iterators:
        background(lambda iterator: list(iterator), iterator)
    time.sleep(0.5)
    began = time.process_time()
    time.sleep(1)
    assert time.process_time() - began < 0.4


_PAUSE = timedelta(seconds=0.3)
_ABOUT = timedelta(seconds=30)


@proves("G7")
def test_moments_in_a_long_transaction_are_those_of_the_calls(kit: EventKit) -> None:
    """Late in a transaction, creation, delays, leases and retries count from the time of the call."""
    stream, queue = kit.stream("t"), kit.queue("q")
    queue.configure(keep_done=1000)
    with kit.transaction() as tx:
        stream.publish("early", tx=tx)
        for payload in ("lease", "extend", "retry", "ack"):
            queue.enqueue(payload, tx=tx)
        time.sleep(_PAUSE.total_seconds())
        stream.publish("late", tx=tx)
        stream.publish_many(["late"], tx=tx)
        queue.enqueue("plain", tx=tx)
        queue.enqueue("delay", delay=100, expires=200, tx=tx)
        lease, extend, retry, ack = queue.claim("w", 4, lease=100, tx=tx)
        queue.extend(extend, 50, tx=tx)
        queue.retry(retry, delay=100, tx=tx)
        queue.ack(ack, tx=tx)
        kit.channel("c").notify("late", tx=tx)
        stream.save_offset("c", 1, tx=tx)

    early, *later = [event.created_at for event in stream.read()]
    tasks: dict[str, Any] = {info.payload: info for info in queue.tasks()}
    with kit.channel("c").listen(start="earliest") as notifications:
        later.append(next(notifications).created_at)
    [consumer] = stream.consumers()
    later += [
        consumer.updated_at,
        tasks["plain"].run_at,
        tasks["plain"].enqueued_at,
        tasks["delay"].run_at - timedelta(seconds=100),
        tasks["delay"].expires_at - timedelta(seconds=200),
        lease.lease_expires_at - timedelta(seconds=100),
        tasks["lease"].claimed_at,
        tasks["extend"].lease_expires_at - timedelta(seconds=50),
        tasks["retry"].run_at - timedelta(seconds=100),
        tasks["ack"].finished_at,
    ]
    for number, moment in enumerate(later):
        # A clock with milliseconds that is being adjusted may differ by a few.
        assert early + _PAUSE * 0.9 <= moment < early + _ABOUT, f"moment {number}"


@proves("G7", "Q4", "Q17")
def test_a_workers_wrong_clock_does_not_matter(kit: EventKit, url: str, flavour: str) -> None:
    """A process whose clock is a day off writes the same times, waits as long, and keeps its leases."""
    kit.stream("t").publish("here")
    with spawn(_work, url, flavour, "behind", -86_400) as behind, spawn(_work, url, flavour, "ahead", 86_400) as ahead:
        pass
    assert (behind.result(), ahead.result()) == ("waited", "waited")
    here, *there = kit.stream("t").read()
    now = here.created_at
    assert all(abs(event.created_at - now) < _ABOUT for event in there)
    for name in ("behind", "ahead"):
        infos: dict[str, Any] = {info.payload: info for info in kit.queue(name).tasks()}
        for moment in (infos["delay"].run_at, infos["expires"].expires_at, infos["running"].lease_expires_at):
            assert abs(moment - now - timedelta(seconds=1000)) < _ABOUT
        assert infos["slow"].state == "done"
        assert infos["slow"].attempt == 1


def _work(url: str, flavour: str, name: str, shift: int) -> str:
    real = time.time
    time.time = lambda: real() + shift

    async def settled(result: Any) -> Any:
        return await result if hasattr(result, "__await__") else result

    async def main(kit: Any) -> Any:
        queue = kit.queue(name)
        await settled(queue.configure(keep_done=1000))
        await settled(kit.stream("t").publish("there"))
        await settled(queue.enqueue("delay", delay=1000))
        await settled(queue.enqueue("running", priority=2))
        await settled(queue.enqueue("slow", priority=1))
        await settled(queue.enqueue("expires", expires=1000))
        await settled(queue.claim("w", lease=1000))
        [task] = await settled(queue.claim("w", lease=0.6))
        if flavour == "sync":
            with queue.handling(task):
                time.sleep(1)
        else:
            async with queue.handling(task):
                await asyncio.sleep(1)
        await settled(kit.queue(name + " waited").enqueue("waited", delay=0.3))
        [task] = await settled(kit.queue(name + " waited").claim("w", wait=30))
        return task.payload

    async def asynchronous() -> Any:
        async with eventkit.connect_async(url) as kit:
            return await main(kit)

    if flavour == "async":
        return str(asyncio.run(asynchronous()))
    with eventkit.connect(url) as kit:
        return str(asyncio.run(main(kit)))
