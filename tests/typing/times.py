"""Types of schedules, locks, limits and results as type checkers see them.  Checked by mypy and pyright, never run."""

from datetime import datetime, timedelta
from typing import Any, assert_type

from payloads import Email

import eventkit
from eventkit import AsyncEventKit, EventKit, Lock, Results, Schedules, Task, TaskQueue
from eventkit.protocols import AsyncLock, AsyncResults, AsyncSchedules
from eventkit.values import Fire, LimitInfo, Maintained, Overview, Schedule, WorkerInfo


def schedules(kit: EventKit, moment: datetime) -> None:
    schedules = kit.schedules
    assert_type(schedules, Schedules)
    assert_type(schedules.add("s", "@hourly", "q", {"any": "payload"}, tz="Europe/Berlin", expires=timedelta(1)), None)
    assert_type(schedules.update("s", payload=None, expires=None, max_attempts=None, paused=True), bool)
    schedules.update("s", when=None)  # type: ignore[arg-type]
    schedules.update("s", catch_up="some")  # type: ignore[arg-type]
    assert_type(schedules.get("s"), Schedule | None)
    assert_type(schedules.list(), list[Schedule])
    assert_type(schedules.soonest(), datetime | None)
    assert_type(schedules.upcoming("s", 3), list[datetime])
    assert_type(schedules.next_after("@hourly", moment, tz="UTC"), datetime)
    [fire] = schedules.tick(moment)
    assert_type(fire, Fire)
    assert_type(fire.moment, datetime)
    assert_type(kit.run_scheduler(), None)
    assert_type(kit.maintain(), Maintained)
    assert_type(kit.overview(), Overview)
    assert_type(kit.workers(), list[WorkerInfo])
    assert_type(kit.limits(), list[LimitInfo])
    assert_type(kit.run_maintenance(every=60), None)


async def async_schedules(kit: AsyncEventKit, moment: datetime) -> None:
    schedules = kit.schedules
    assert_type(schedules, AsyncSchedules)
    async with kit.transaction() as tx:
        assert_type(await schedules.add("s", "@hourly", "q", tx=tx), None)
        assert_type(await schedules.remove("s", tx=tx), bool)
    assert_type(await schedules.list(), list[Schedule])
    assert_type(await schedules.tick(), list[Fire])
    assert_type(schedules.next_after("@hourly", moment), datetime)
    assert_type(await kit.run_scheduler(), None)
    assert_type(await kit.maintain(), Maintained)
    assert_type(await kit.overview(), Overview)
    assert_type(await kit.workers(), list[WorkerInfo])
    assert_type(await kit.limits(), list[LimitInfo])
    assert_type(await kit.run_maintenance(every=60), None)


def locks_limits_and_results(kit: EventKit, emails: TaskQueue[Email], task: Task[Email]) -> None:
    with kit.lock("l", ttl=timedelta(minutes=1)) as lock:
        assert_type(lock, Lock)
        assert_type(lock.fence, int | None)
    assert_type(lock.acquire(wait=5), bool)
    assert_type(lock.renew(), bool)
    assert_type(lock.release(), bool)
    assert_type(kit.limit("r", count=10, per=timedelta(minutes=1)).acquire(), bool)
    assert_type(kit.limit("b", rate=0.5, burst=10).acquire(), bool)
    kit.limit("r", count=10)  # type: ignore[call-overload]
    kit.limit("r", count=10, per=60, rate=0.5)  # type: ignore[call-overload]
    assert_type(kit.results, Results)
    assert_type(kit.results.save(7, None, ttl=60), None)
    kit.results.save(1.5, None)  # type: ignore[arg-type]
    assert_type(kit.results.get("name", default=0), Any)
    assert_type(kit.results.wait(7, timeout=timedelta(seconds=5)), Any)
    assert_type(kit.results.wait(7), Any)
    assert_type(kit.results.sweep(), int)
    assert_type(emails.ack(task, result=None), bool)
    error = eventkit.TaskFailed(7, "failed", None)
    assert_type(error.reason, str)
    assert_type(error.error, str | None)


async def async_locks_limits_and_results(kit: AsyncEventKit) -> None:
    async with kit.lock("l") as lock:
        assert_type(lock, AsyncLock)
        assert_type(await lock.renew(), bool)
    with kit.lock("l"):  # type: ignore[attr-defined]
        pass
    assert_type(await kit.limit("r", count=10, per=60).acquire(), bool)
    assert_type(await kit.limit("b", rate=0.5).acquire(), bool)
    async with kit.transaction() as tx:
        assert_type(await kit.results.save("name", [1], tx=tx), None)
    assert_type(kit.results, AsyncResults)
    assert_type(await kit.results.wait("name", 5), Any)
    assert_type(await kit.results.sweep(), int)
