"""A table of everything that a caller can wait for: its preparation, the change and the plan that finds it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from eventkit.operations import Plan, Probe, Readiness
from eventkit.operations.bulk import EnqueueAll, NotifyAll, PublishAll
from eventkit.operations.channel import NotificationsAhead
from eventkit.operations.claim import TasksAhead
from eventkit.operations.coordination import AcquireLock, LockAhead, ReleaseLock, ResultAhead
from eventkit.operations.enqueue import PLAIN, RoomAhead
from eventkit.operations.schedule import SchedulesAhead
from eventkit.operations.stream import EventsAhead
from eventkit.testing import advance


class Change(NamedTuple):
    """A change that a caller can wait for."""

    make: Callable[[Any, str, Any], object]
    probe: Callable[[str], Probe] = TasksAhead
    prepare: Callable[[Any, str], Any] = lambda kit, name: None


def _held(kit: Any, name: str) -> Any:
    kit.queue(name).enqueue("held")
    return kit.queue(name).claim("worker")[0]


def _dead(kit: Any, name: str) -> None:
    kit.queue(name).fail(_held(kit, name), "broken")


def _paused(kit: Any, name: str) -> None:
    kit.queue(name).enqueue(None)
    kit.queue(name).pause()


def _full(kit: Any, name: str) -> Any:
    kit.queue(name).configure(max_size=1)
    return _held(kit, name)


def _busy(kit: Any, name: str) -> Any:
    kit.queue(name).configure(max_running=1)
    kit.queue(name).enqueue("waits", delay=0, priority=-1)
    return _held(kit, name)


def _locked(kit: Any, name: str) -> int:
    kit._connection.execute(AcquireLock(name, 7, "another", 600_000))
    return 7


_WAITED_FOR: dict[str, int] = {}
"""The tasks with awaited results, by the name of their queue."""


def _waited_for(kit: Any, name: str) -> Any:
    task = _held(kit, name)
    _WAITED_FOR[name] = task.id
    return task


def _result(name: str) -> Probe:
    return ResultAhead(f'"{name}"', None)


def _result_of_task(name: str) -> Probe:
    return ResultAhead(str(_WAITED_FOR[name]), _WAITED_FOR[name])


def _events(name: str) -> Probe:
    return EventsAhead(name, 0)


def _notifications(name: str) -> Probe:
    return NotificationsAhead((name, f"{name} too"), 0)


def _room(name: str) -> Probe:
    return RoomAhead(name, 1)


class AnySchedule(Probe, frozen=True):
    """`SchedulesAhead` for callers that need not wait for the fire."""

    @property
    def subjects(self) -> tuple[str, ...]:
        """Return all schedules."""
        return SchedulesAhead().subjects

    def plan(self) -> Plan[Readiness]:
        """Return ready when any schedule is going to fire."""
        rows = yield SchedulesAhead()
        return Readiness(SchedulesAhead().decode(rows).due is not None)


def _any_schedule(name: str) -> Probe:
    return AnySchedule()


def _no_schedule(kit: Any, name: str) -> None:
    for schedule in kit.schedules.list():
        kit.schedules.remove(schedule.name)


def _due_schedule(kit: Any, name: str) -> None:
    _no_schedule(kit, name)
    kit.schedules.add(name, "@every 1h", name)
    advance(kit, 3600)


def _paused_schedule(kit: Any, name: str) -> None:
    _no_schedule(kit, name)
    kit.schedules.add(name, "@every 1d", "q", paused=True)


def _publish_to_many(kit: Any, name: str, _: Any) -> None:
    """Publish to more topics than a transaction has marks."""
    for n in range(33):
        kit.stream(f"{name} {n}").publish(None)
    kit.stream(name).publish(1)


def _publish_collected(kit: Any, name: str, _: Any) -> None:
    both = [(topic, "1", None, None, None) for topic in (f"{name} too", name)]
    kit._connection.execute(PublishAll(both))


def _enqueue_collected(kit: Any, name: str, _: Any) -> None:
    both = [(queue, "1", *PLAIN) for queue in (f"{name} too", name)]
    kit._connection.execute(EnqueueAll(both))


def _notify_collected(kit: Any, name: str, _: Any) -> None:
    both = [(channel, "1", None) for channel in (f"{name} too", name)]
    kit._connection.execute(NotifyAll(both))


CHANGES = {
    "publish": Change(lambda kit, name, _: kit.stream(name).publish(1), _events),
    "publish_many": Change(lambda kit, name, _: kit.stream(name).publish_many([1, 2]), _events),
    "publish to many": Change(_publish_to_many, _events),
    "publish with dedup": Change(lambda kit, name, _: kit.stream(name).publish(1, dedup="id"), _events),
    "notify": Change(lambda kit, name, _: kit.channel(name).notify(1), _notifications),
    "enqueue": Change(lambda kit, name, _: kit.queue(name).enqueue(1)),
    "enqueue with a key": Change(lambda kit, name, _: kit.queue(name).enqueue(1, key="key")),
    "enqueue_many": Change(lambda kit, name, _: kit.queue(name).enqueue_many([1, 2])),
    "publish, collected": Change(_publish_collected, _events),
    "notify, collected": Change(_notify_collected, _notifications),
    "enqueue, collected": Change(_enqueue_collected),
    "retry": Change(lambda kit, name, task: kit.queue(name).retry(task, delay=0), prepare=_held),
    "release": Change(lambda kit, name, task: kit.queue(name).release(task), prepare=_held),
    "requeue": Change(lambda kit, name, _: kit.queue(name).requeue(), prepare=_dead),
    "resume": Change(lambda kit, name, _: kit.queue(name).resume(), prepare=_paused),
    "configure": Change(lambda kit, name, _: kit.queue(name).configure(max_running=2), prepare=_busy),
    "ack at max_running": Change(lambda kit, name, task: kit.queue(name).ack(task), prepare=_busy),
    "ack makes room": Change(lambda kit, name, task: kit.queue(name).ack(task), _room, _full),
    "fail makes room": Change(lambda kit, name, task: kit.queue(name).fail(task, "broken"), _room, _full),
    "cancel makes room": Change(lambda kit, name, task: kit.queue(name).cancel(task.id, running=True), _room, _full),
    "purge makes room": Change(lambda kit, name, _: kit.queue(name).purge("running"), _room, _full),
    "release a lock": Change(
        lambda kit, name, token: kit._connection.execute(ReleaseLock(name, token)), LockAhead, _locked
    ),
    "save a result": Change(lambda kit, name, _: kit.results.save(name, 1), _result),
    "ack with a result": Change(
        lambda kit, name, task: kit.queue(name).ack(task, result=1), _result_of_task, _waited_for
    ),
    "fail, waited for": Change(
        lambda kit, name, task: kit.queue(name).fail(task, "broken"), _result_of_task, _waited_for
    ),
    "tick": Change(lambda kit, name, _: kit.schedules.tick(), prepare=_due_schedule),
    "add a schedule": Change(
        lambda kit, name, _: kit.schedules.add(name, "@every 1d", "q"), _any_schedule, _no_schedule
    ),
    "resume a schedule": Change(lambda kit, name, _: kit.schedules.resume(name), _any_schedule, _paused_schedule),
    "update a schedule": Change(
        lambda kit, name, _: kit.schedules.update(name, paused=False), _any_schedule, _paused_schedule
    ),
    "configure makes room": Change(lambda kit, name, _: kit.queue(name).configure(max_size=2), _room, _full),
}
