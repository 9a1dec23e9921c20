"""Each method of a kit and of its handles, called once with a kit of each flavour.

The other tests of the methods that neither wait nor take part in transactions run with a sync kit: the handles of both
flavours are the same classes, which return what `execute` returns without a look at it (``tests/test_loops.py``).
"""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import eventkit
from eventkit import Closed, EventKit, LockHeld, NewTask, Snooze, TimedOut
from eventkit.protocols import (
    AsyncEventStream,
    AsyncInbox,
    AsyncLock,
    AsyncNotificationChannel,
    AsyncOutbox,
    AsyncResults,
    AsyncSchedules,
    AsyncTaskQueue,
)

from .clauses import proves
from .flavours import Blocking, Loop
from .threads import PATIENCE, asleep, in_thread, rolled_back

_HANDLES: dict[str, type[Any]] = {
    "": eventkit.AsyncEventKit,
    "stream": AsyncEventStream,
    "queue": AsyncTaskQueue,
    "channel": AsyncNotificationChannel,
    "outbox": AsyncOutbox,
    "inbox": AsyncInbox,
    "lock": AsyncLock,
    "schedules": AsyncSchedules,
    "results": AsyncResults,
}
_ELSEWHERE = {".run_scheduler", ".run_maintenance", "outbox.run", "outbox.stop", ".sync"}
"""The loops, whose own tests run in both flavours, and the view, which is tested below."""


class _Recorded:
    """A handle that records which of its attributes are used."""

    def __init__(self, target: Any, kind: str, used: set[str]) -> None:
        self._target, self._kind, self._used = target, kind, used

    def __getattr__(self, name: str) -> Any:
        self._used.add(f"{self._kind}.{name}")
        return getattr(self._target, name)


@pytest.fixture
def view(kit: Any, loop: Loop | None) -> Iterator[Any]:
    """Return the view of the kit in the other flavour, which looks like a sync kit."""
    if loop is not None:
        yield kit.sync()
        return
    with closing(Loop()) as other:
        yield Blocking(kit.async_(), other)


@proves("G1", "H3", "H5", "H6", "O1", "O2", "S16")
def test_every_method_answers_in_each_flavour(kit: EventKit, connect: Any, url: str) -> None:
    _use_everything(connect(url))


@proves("G16", "H3", "H5", "H6", "O1", "O2", "S16")
def test_every_method_answers_in_a_view(kit: EventKit, view: Any) -> None:
    """A view is closed without its kit."""
    _use_everything(view)
    with pytest.raises(Closed):
        view.stream("s").publish("late")
    with pytest.raises(Closed), view.transaction():
        pass
    assert kit.overview().queues


@proves("G16")
def test_a_view_waits_and_closes_with_its_kit(kit: EventKit, view: Any) -> None:
    """Its iterators wake for commits of the kit, resume after a timeout, and end when the kit is closed."""
    events, queue = view.stream("s").subscribe("c", start="earliest"), view.queue("q")
    with pytest.raises(TimedOut):
        events.next(timeout=0.05)
    reader = in_thread(lambda: [next(events), next(events)])
    with kit.transaction() as tx:
        kit.stream("s").publish("first", key="k", headers={"h": "1"}, tx=tx)
    kit.stream("s").publish("second")
    first, second = reader.result(PATIENCE)
    assert (first.payload, first.key, first.headers, second.payload) == ("first", "k", {"h": "1"}, "second")
    waiting = [asleep(queue.claim, "w", wait=PATIENCE), asleep(list, events)]
    kit.close()
    assert [answer.result(PATIENCE) for answer in waiting] == [[], []]
    with pytest.raises(Closed):
        queue.enqueue("late")


@proves("G16", "G4")
def test_transactions_of_a_view(kit: EventKit, view: Any) -> None:
    """They commit whole, and an error rolls them back."""
    with rolled_back(view) as tx:
        view.stream("s").publish("undone", tx=tx)
    with view.transaction() as tx:
        view.queue("q").enqueue("task", tx=tx)
        view.stream("s").publish("done", tx=tx)
        assert (kit.stream("s").read(), kit.queue("q").size()) == ([], 0)
    assert [event.payload for event in kit.stream("s").read()] == ["done"]
    [task] = view.queue("q").claim("w")
    with view.queue("q").handling(task):
        pass
    assert (task.payload, kit.queue("q").get(task.id)) == ("task", None)


@proves("G16")
def test_a_sync_view_refuses_the_thread_of_its_loop(url: str) -> None:
    """The call would wait for the loop that makes it."""

    async def main() -> None:
        async with eventkit.connect_async(url) as kit:
            view = kit.sync()
            with pytest.raises(RuntimeError, match=r"asyncio\.to_thread"):
                view.stream("s").publish("event")
            assert await asyncio.to_thread(view.stream("s").publish, "event") == await kit.stream("s").head()

    asyncio.run(main())


def _use_everything(kit: Any) -> None:
    used: set[str] = set()

    def recorded(handle: Any, kind: str) -> Any:
        return _Recorded(handle, kind, used)

    whole = recorded(kit, "")
    _use_streams(recorded(whole.stream("s"), "stream"))
    _use_queues(whole, recorded(whole.queue("q", type=str), "queue"))
    _use_channels(whole, recorded(whole.channel("c"), "channel"))
    with whole.transaction() as tx:
        outbox = recorded(whole.outbox("o"), "outbox")
        assert isinstance(outbox.add("message", tx=tx, key="k"), str)
    assert (outbox.queue.size(), outbox.stats().pending) == (1, 1)
    _use_inboxes(whole, recorded(whole.inbox("i"), "inbox"))
    _use_locks(whole, recorded(whole.lock("l"), "lock"))
    _use_schedules(recorded(whole.schedules, "schedules"))
    _use_results(recorded(whole.results, "results"))
    whole.cluster_limit("several", 3, queues=["q", "other"])
    assert [(limit.name, limit.queues) for limit in whole.cluster_limits()] == [("several", ["other", "q"])]
    for limit in (whole.limit("r", count=1, per=60), whole.limit("b", rate=0.01)):
        assert limit.acquire()
        assert not limit.acquire()
    assert {limit.name for limit in whole.limits()} == {"r", "b"}
    assert "outbox:o" in whole.overview().queues
    assert whole.workers() == []
    assert whole.maintain() is not None
    whole.close()
    methods = {f"{kind}.{name}" for kind, type in _HANDLES.items() for name in vars(type) if not name.startswith("_")}
    assert sorted(methods - used - _ELSEWHERE) == []


def _use_streams(stream: Any) -> None:
    first = stream.publish("a", key="k", headers={"h": "1"})
    [second] = stream.publish_many(["b"])
    assert [(event.offset, event.payload, event.key, event.headers) for event in stream.read()] == [
        (first, "a", "k", {"h": "1"}),
        (second, "b", None, {}),
    ]
    with stream.subscribe(start="earliest") as events:
        assert next(events).payload == "a"
    assert stream.head() == second
    assert stream.save_offset("consumer", first)
    assert not stream.save_offset("consumer", first)
    stream.seek("consumer", 0)
    assert stream.offset("consumer") == 0
    assert [consumer.name for consumer in stream.consumers()] == ["consumer"]
    assert stream.offset_at(datetime.now(UTC) - timedelta(hours=1)) < first
    assert [stream.remove_consumer("consumer") for _ in range(2)] == [True, False]
    with stream.join("group") as member:
        event = next(member)
        member.save(event)
        assert event.offset == first
    assert stream.pause_group("group")
    assert [(group.name, group.paused, group.lag) for group in stream.groups()] == [("group", True, 1)]
    assert stream.resume_group("group")
    assert stream.reset_group("group", "latest")
    assert stream.drain_group("group", timeout=0)
    assert [stream.remove_group("group") for _ in range(2)] == [True, False]
    stream.configure(keep=60)
    assert stream.settings().keep == 60
    assert stream.prune(keep_count=1, keep_unconsumed=False) == 1


def _use_queues(kit: Any, queue: Any) -> None:
    queue.configure(max_attempts=2, keep_done=60)
    assert queue.settings().max_attempts == 2
    assert queue.enqueue("1").created
    assert [answer.created for answer in queue.enqueue_many(["2", queue.new("3", key="k"), NewTask("4")])] == [True] * 3
    assert [task.payload for task in queue.peek(2)] == ["1", "2"]
    one, two, three, four = queue.claim("w", 4)
    assert queue.extend(one, 60)
    assert queue.ack(one, result=5)
    assert not queue.ack(one)
    assert queue.ack_many([two]) == [two.id]
    assert queue.retry(three, delay=0)
    assert queue.fail(four, "wrong")
    assert not queue.release(four)
    with queue.handling(queue.claim("w")[0]):
        raise Snooze(60)
    assert queue.next_due() > datetime.now(UTC)
    assert [(task.payload, task.state) for task in queue.tasks()] == [
        ("1", "done"),
        ("2", "done"),
        ("3", "scheduled"),
        ("4", "dead"),
    ]
    assert queue.get(four.id).error == "wrong"
    assert [(dead.error, dead.number) for dead in queue.dead_by_error()] == [("wrong", 1)]
    assert [task.id for task in queue.dead()] == [four.id]
    assert queue.requeue([four.id]) == 1
    [again] = queue.claim("w")
    assert queue.snooze(again, 60)
    assert queue.cancel(again.id)
    queue.pause()
    queue.enqueue("paused")
    assert queue.claim("w") == []
    queue.resume()
    for works in (queue.work("w"), kit.work(["q"], worker="w")):
        with works as tasks:
            assert queue.release(next(tasks))
    assert [task.payload for task in queue.receive()] == ["paused"]
    assert (queue.sweep(), queue.size(), queue.stats().done) == (0, 1, 2)
    assert (queue.purge("done"), queue.purge_dead(), queue.drop(force=True)) == (2, 0, True)


def _use_channels(kit: Any, channel: Any) -> None:
    with channel.listen() as heard, kit.listen("c") as all_heard:
        channel.notify("n", headers={"h": "1"})
        assert next(heard).payload == next(all_heard).payload == "n"
    assert [(one.name, one.head) for one in kit.channels()] == [("c", channel.head())]
    channel.configure(keep_count=5)
    assert channel.settings().keep_count == 5
    assert channel.prune(keep_count=0) == 1
    assert kit.prune_channels(keep_count=0) == 0
    with kit.changes() as changes:
        channel.notify("changed")
        assert next(changes) is None


def _use_inboxes(kit: Any, inbox: Any) -> None:
    for new in (True, False):
        with kit.transaction() as tx:
            assert inbox.once("id", tx=tx) is new
    inbox.configure(keep=60)
    assert inbox.settings().keep == 60
    assert inbox.prune(older_than=0) == 1


def _use_locks(kit: Any, lock: Any) -> None:
    assert lock.acquire()
    assert lock.renew()
    assert lock.fence
    with pytest.raises(LockHeld), kit.lock("l"):
        pass
    assert lock.release()
    assert not lock.release()


def _use_schedules(schedules: Any) -> None:
    now = datetime.now(UTC)
    schedules.add("s", "@every 1h", "q")
    assert schedules.update("s", when="@every 2h")
    assert schedules.get("s").when == "@every 2h"
    assert [schedule.name for schedule in schedules.list()] == ["s"]
    assert schedules.soonest() == schedules.upcoming("s", 1)[0] > now
    assert schedules.next_after("@every 1h", now) == now + timedelta(hours=1)
    assert schedules.pause("s")
    assert schedules.resume("s")
    assert [fire.schedule for fire in schedules.tick(now + timedelta(hours=3))] == ["s"]
    assert schedules.remove("s")
    assert not schedules.remove("s")


def _use_results(results: Any) -> None:
    results.save("r", {"n": 1}, ttl=60)
    assert results.get("r") == results.wait("r", 1) == {"n": 1}
    assert results.sweep() == 0
