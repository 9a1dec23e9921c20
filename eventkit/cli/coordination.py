"""``eventkit schedule``, ``lock``, ``cluster-limit`` and ``pipeline``."""

from typing import Annotated, Any, TypedDict, Unpack

from ..protocols import Connection, EventKit
from .output import Failed, Result, answer, cell, confirm, listing, plain
from .settings import Headers, Yes, argument, audited, command, flag, group, headers, json_value, option, period

schedules = group("schedule", "Schedules: enqueue tasks at set times.")
locks = group("lock", "Locks and their holders.")
cluster_limits = group("cluster-limit", "Limits of running tasks over several queues.")
pipelines = group("pipeline", "Pipelines and their state.")

Name = Annotated[str, argument("NAME", "The name of the schedule.")]


@command(schedules, "list")
def list_schedules(kit: EventKit) -> Result:
    """List all schedules with their next times."""
    columns = ("name", "when", "tz", "queue", "next_at", "last_at", "fired", "skipped", "paused")
    return listing(kit.schedules.list(), columns, "there are no schedules")


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule."""

    tz: Annotated[str, option("ZONE", "Time zone, for example Europe/Berlin."), "UTC"]
    priority: Annotated[int, option("N", "Priority of its tasks."), 0]
    expires: Annotated[float | None, period("How long after a fire its task expires.")]
    max_attempts: Annotated[int | None, option("N", "Attempts per task.")]
    catch_up: Annotated[str, option("WHICH", "Missed fires to make up for: all, latest or none."), "all"]
    paused: Annotated[bool, flag("Add it paused.", "--paused"), False]
    header: Headers


@command(schedules)
def add(
    kit: EventKit,
    name: Name,
    when: Annotated[str, argument("WHEN", "For example '0 3 * * *', @hourly or '@every 30s'.")],
    queue: Annotated[str, argument("QUEUE", "The queue of its tasks.")],
    payload: Annotated[str, argument("PAYLOAD", "Payload, as JSON.")] = "null",
    **given: Unpack[ScheduleOptions],
) -> Result:
    """Add a schedule, or replace the one of the same name."""
    options: dict[str, Any] = {"headers": headers(given.pop("header", None)), **given}
    schedules = audited(kit, "schedule.add", schedule=name, when=when, queue=queue).schedules
    schedules.add(name, when, queue, json_value(payload), **options)
    return _next_fire(kit, name)


@command(schedules)
def rm(kit: EventKit, name: Name) -> Result:
    """Remove a schedule."""
    _check(audited(kit, "schedule.rm", schedule=name).schedules.remove(name), name)
    return answer(f"schedule {name} removed", {"name": name, "removed": True})


@command(schedules)
def pause(kit: EventKit, name: Name) -> Result:
    """Pause a schedule."""
    _check(audited(kit, "schedule.pause", schedule=name).schedules.pause(name), name)
    return _next_fire(kit, name)


@command(schedules)
def resume(kit: EventKit, name: Name) -> Result:
    """Resume a paused schedule from now on."""
    _check(audited(kit, "schedule.resume", schedule=name).schedules.resume(name), name)
    return _next_fire(kit, name)


@command(schedules, "next")
def upcoming(
    kit: EventKit, name: Name, count: Annotated[int, option("N", "Number of fires.", "--count", "-n", min=1)] = 10
) -> Result:
    """Show the next times of a schedule."""
    _check(kit.schedules.get(name) is not None, name)
    fires = [{"name": name, "next_at": moment} for moment in kit.schedules.upcoming(name, count)]
    return listing(fires, ("name", "next_at"), f"schedule {name} is paused")


def _check(exists: bool, name: str) -> None:
    if not exists:
        raise Failed(f"there is no schedule {name!r}: see eventkit schedule list")


def _next_fire(kit: EventKit, name: str) -> Result:
    schedule: Any = kit.schedules.get(name)
    if schedule is None or schedule.next_at is None:
        return answer(f"schedule {name} is paused", schedule)
    return answer(f"schedule {name} fires next at {cell(schedule.next_at)}", schedule)


@command(locks, "list")
def list_locks(kit: EventKit) -> Result:
    """List the locks that are held."""
    rows = [{"lock": name, **plain(held)} for name, held in kit.overview().locks.items()]
    return listing(rows, ("lock", "holder", "fence", "until"), "no locks are held")


@command(cluster_limits, "list")
def list_cluster_limits(kit: EventKit) -> Result:
    """List the limits over several queues, with the number of running tasks."""
    return listing(kit.cluster_limits(), ("name", "max_running", "running", "queues"), "there are no such limits")


LimitName = Annotated[str, argument("NAME", "The name of the limit.")]


@command(cluster_limits, "set")
def set_cluster_limit(
    kit: EventKit,
    name: LimitName,
    max_running: Annotated[int, argument("N", "Maximum number of running tasks.")],
    queue: Annotated[list[str], option("QUEUE", "A queue of the limit; repeatable.", "--queue", "-q")],
) -> Result:
    """Set a limit over several queues, or replace the one of the same name."""
    changed = audited(kit, "cluster_limit.set", limit=name, max_running=max_running, queues=queue)
    changed.cluster_limit(name, max_running, queues=queue)
    return answer(f"at most {max_running} tasks of {', '.join(queue)} run at once", {"name": name, "queues": queue})


@command(cluster_limits, "rm")
def rm_cluster_limit(kit: EventKit, name: LimitName) -> Result:
    """Remove a limit over several queues."""
    if name not in {limit.name for limit in kit.cluster_limits()}:
        raise Failed(f"there is no limit {name!r}: see eventkit cluster-limit list")
    audited(kit, "cluster_limit.rm", limit=name).cluster_limit(name, None)
    return answer(f"limit {name} removed", {"name": name, "removed": True})


@command(pipelines, "list")
def list_pipelines(connection: Connection) -> Result:
    """List all pipelines, archives and replays included.

    A pipeline that is shown as running but was not updated for long has crashed.
    """
    from eventkit.operations.admin import ListPipelines

    columns = ("name", "state", "source", "sink", "rows", "lag", "updated_at", "error")
    return listing(connection.execute(ListPipelines()), columns, "there are no pipelines")


@command(pipelines)
def remove(
    connection: Connection, name: Annotated[str, argument("NAME", "The name of the pipeline.")], yes: Yes = False
) -> Result:
    """Remove a pipeline from the list.

    Its output and checkpoint are kept. The pipeline is listed again when it runs.
    """
    from eventkit.operations.admin import RemovePipeline

    confirm(f"Remove pipeline {name!r}?", yes)
    if not connection.execute(RemovePipeline(name)):
        raise Failed(f"there is no pipeline {name!r}")
    return answer(f"pipeline {name} removed", {"name": name, "removed": True})
