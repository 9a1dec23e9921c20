"""``eventkit queue``, ``task`` and ``dead``: queues, their tasks, and dead tasks."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, TypedDict, Unpack, cast

import typer

from ..checks import default_worker
from ..protocols import EventKit
from ..values import NewTask
from . import settings
from .data import File, Payload, one_or_lines
from .output import Failed, Refused, Result, answer, confirm, details, listing, plain, span
from .settings import Headers, Limit, OlderThan, Yes, argument, audited, command, flag, group, option, period

queues = group("queue", "Queues: list, settings, pause, purge.")
tasks = group("task", "Tasks of a queue: enqueue, claim, finish, show.")
dead_tasks = group("dead", "Dead tasks: tasks that failed for good.")

Queue = Annotated[str, argument("QUEUE", "The name of the queue.")]
Id = Annotated[int, argument("ID", "The id of the task.")]
Ids = Annotated[list[int] | None, argument("ID", "Only these tasks.")]
Token = Annotated[str, argument("TOKEN", "The token that poll printed with the task, or current.")]
Force = Annotated[bool, flag("Also delete tasks that are not done.", "--force")]
State = Annotated[str, option("STATE", "State of the tasks: scheduled, ready, running, dead or done.")]
Running = Annotated[bool, flag("Also if a worker runs it.", "--running")]
ResultOption = Annotated[str | None, option("JSON", "Result of the task.")]

QUEUE_COLUMNS = ("queue", "ready", "scheduled", "running", "dead", "done", "oldest", "paused")
_TASK_COLUMNS = ("id", "state", "priority", "attempt", "run_at", "key", "payload")
_NONE = "none"
"""The word for the default value of a setting."""


def _setting(metavar: str, parse: Callable[[str], Any], help: str) -> Any:
    def parsed(text: str) -> Any:
        try:
            return _NONE if text == _NONE else parse(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a number: pass one, or none for the default") from None

    return option(metavar, help, parser=parsed)


def _policy(text: str) -> Any:
    """Parse ``exponential``, ``linear``, ``fixed``, or delays such as ``5,30,300``."""
    return [settings.duration(part) for part in text.split(",")] if text[:1].isdigit() else text


def _weights(text: str) -> dict[str, float]:
    return {group: float(weight) for group, _, weight in (part.rpartition("=") for part in text.split(","))}


class QueueOptions(TypedDict, total=False):
    """The settings of a queue."""

    max_attempts: Annotated[Any, _setting("N", int, "Attempts per task (3).")]
    lease: Annotated[Any, _setting("TIME", settings.duration, "How long a claim is valid (5m).")]
    retry: Annotated[Any, _setting("POLICY", _policy, "exponential, linear, fixed, or delays such as 5,30,300.")]
    max_size: Annotated[Any, _setting("N", int, "Maximum number of tasks.")]
    rate: Annotated[Any, _setting("N", float, "Tasks started per second.")]
    burst: Annotated[Any, _setting("N", float, "Tasks started at once above the rate.")]
    max_running: Annotated[Any, _setting("N", int, "Maximum number of running tasks.")]
    keep_done: Annotated[Any, _setting("TIME", settings.duration, "How long finished tasks are kept.")]
    keep_dead: Annotated[Any, _setting("TIME", settings.duration, "How long dead tasks are kept.")]
    key_ttl: Annotated[Any, _setting("TIME", settings.duration, "How long a key stays in use (24h).")]
    dead_letter_to: Annotated[Any, _setting("QUEUE", str, "The queue that gets copies of dead tasks.")]
    history: Annotated[bool | None, option(None, "Record each step of a task as an event.", show_default=False)]
    max_bytes: Annotated[Any, _setting("N", int, "Maximum size of a payload as JSON.")]
    strict_keys: Annotated[bool | None, option(None, "Refuse a key in use with another payload.", show_default=False)]
    enqueue_rate: Annotated[Any, _setting("N", float, "Tasks accepted per second.")]
    enqueue_burst: Annotated[Any, _setting("N", float, "Tasks accepted at once above the rate.")]
    ordered: Annotated[bool | None, option(None, "Run the tasks of a group in order.", show_default=False)]
    on_dead: Annotated[Any, _setting("WHAT", str, "After a dead task of an ordered group: continue or stop.")]
    fair: Annotated[bool | None, option(None, "Let the groups take turns.", show_default=False)]
    group_max_running: Annotated[Any, _setting("N", int, "Maximum number of running tasks of a group.")]
    group_rate: Annotated[Any, _setting("N", float, "Tasks of a group started per second.")]
    weights: Annotated[Any, _setting("GROUP=N,...", _weights, "Shares of groups in a fair queue, 1 by default.")]


@command(queues, "list")
def list_queues(kit: EventKit) -> Result:
    """List all queues with tasks or settings."""
    return listing(queue_rows(kit.overview().queues), QUEUE_COLUMNS, "there are no queues")


@command(queues)
def add(kit: EventKit, queue: Queue, **given: Unpack[QueueOptions]) -> Result:
    """Create a queue with settings.

    A queue without settings exists as soon as it has a task.
    """
    if queue in kit.overview().queues:
        raise Failed(f"queue {queue!r} already exists: change it with eventkit queue configure {queue}")
    return answer(f"queue {queue} created", _configured(kit, "queue.add", queue, given))


@command(queues)
def configure(kit: EventKit, queue: Queue, **given: Unpack[QueueOptions]) -> Result:
    """Change settings, for all processes at once.

    Pass none to restore a default. Settings that are not given are kept.
    """
    return details(_configured(kit, "queue.configure", queue, given))


def _configured(kit: EventKit, action: str, queue: str, given: Mapping[str, Any]) -> Any:
    changes = {name: None if value == _NONE else value for name, value in given.items()}
    audited(kit, action, queue=queue, **changes).queue(queue).configure(**changes)
    return kit.queue(queue).settings()


@command(queues)
def show(kit: EventKit, queue: Queue) -> Result:
    """Show the statistics and settings of a queue.

    A setting shown as - has its default.
    """
    check_queues(kit, [queue])
    handle = kit.queue(queue)
    fields = plain(handle.stats()) | plain(handle.settings()) | {"next_due": handle.next_due()}
    return details({"queue": queue} | fields)


@command(queues)
def rm(kit: EventKit, queue: Queue, force: Force = False, yes: Yes = False) -> Result:
    """Remove a queue with its settings and keys.

    A queue with tasks that are not done needs --force, which deletes them too.
    """
    if force:
        confirm(f"Delete queue {queue} and all tasks in it?", yes)
    if not audited(kit, "queue.rm", queue=queue, force=force).queue(queue).drop(force=force):
        raise Failed(f"queue {queue!r} has tasks: let workers finish them, or pass --force to delete them")
    return answer(f"queue {queue} removed", {"queue": queue, "removed": True})


@command(queues)
def pause(kit: EventKit, queue: Queue) -> Result:
    """Pause a queue: it accepts tasks, but workers get none."""
    audited(kit, "queue.pause", queue=queue).queue(queue).pause()
    return answer(f"queue {queue} is paused", {"queue": queue, "paused": True})


@command(queues)
def resume(kit: EventKit, queue: Queue) -> Result:
    """Resume a paused queue."""
    audited(kit, "queue.resume", queue=queue).queue(queue).resume()
    return answer(f"queue {queue} resumed", {"queue": queue, "paused": False})


@command(queues)
def purge(kit: EventKit, queue: Queue, state: State = "ready", yes: Yes = False) -> Result:
    """Delete all tasks in one state."""
    confirm(f"Delete all {state} tasks of queue {queue}?", yes)
    number = audited(kit, "queue.purge", queue=queue, state=state).queue(queue).purge(cast(Any, state))
    return answer(f"{number:,} tasks deleted", {"queue": queue, "deleted": number})


@command(queues)
def peek(kit: EventKit, queue: Queue, limit: Limit = 10) -> Result:
    """Show the tasks that workers would get next."""
    return listing(kit.queue(queue).peek(limit), _TASK_COLUMNS, f"no ready tasks in queue {queue}")


@command(queues)
def compact(address: str) -> Result:
    """Return unused space to the operating system.

    First removes expired rows of all queues. On SQLite it blocks writers.
    """
    with settings.opened(address) as kit:
        cleared = kit.maintain()
    before, after = settings.backend_function(address, "compact")(address)
    text = f"{before:,} bytes before, {after:,} bytes now"
    return answer(text, {"before": before, "after": after, "cleared": cleared})


@command(dead_tasks)
def requeue(kit: EventKit, queue: Queue, ids: Ids = None) -> Result:
    """Make dead tasks ready again, all or those given.

    Their attempts start again at zero.
    """
    number = audited(kit, "dead.requeue", queue=queue, ids=ids or "all").queue(queue).requeue(ids or None)
    return answer(f"{number:,} tasks are ready again", {"queue": queue, "requeued": number})


def check_queues(kit: EventKit, names: list[str]) -> None:
    """Raise `Failed` for a queue without tasks and settings."""
    there = kit.overview().queues if names else ()
    for name in names:
        if name not in there:
            raise Failed(f"there is no queue {name!r}: see eventkit queue list")


def queue_rows(queues: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the statistics of queues as records."""
    return [{"queue": name, **plain(statistics)} for name, statistics in queues.items()]


class TaskOptions(TypedDict, total=False):
    """The options of a task."""

    delay: Annotated[float | None, period("Delay before it is ready.")]
    run_at: Annotated[datetime | None, option("MOMENT", "When it is due.", parser=settings.moment)]
    priority: Annotated[int, option("N", "Higher priorities run first."), 0]
    expires: Annotated[float | None, period("How long until it expires.")]
    max_attempts: Annotated[int | None, option("N", "Attempts.")]
    key: Annotated[str | None, option("KEY", "Unique key of the task.")]
    group: Annotated[str | None, option("GROUP", "Group of the task.")]
    header: Headers


@command(tasks)
def enqueue(
    kit: EventKit, queue: Queue, payload: Payload = None, file: File = None, **given: Unpack[TaskOptions]
) -> Result:
    """Enqueue a task, or one for each line of a file.

    A file is committed in batches of 2,000 lines. An invalid line stops the command, which reports its
    number; the lines before it are enqueued.
    """
    options: dict[str, Any] = {"headers": settings.headers(given.pop("header", None)), **given}
    if file is not None and "key" in given:
        raise Refused("--key does not work with --file: all tasks would have the same key")

    def send(value: Any) -> Result:
        made = kit.queue(queue).enqueue(value, **options)
        return answer(f"task {made.id}" if made.created else f"task {made.id} already has this key", made)

    def send_many(values: list[Any]) -> None:
        bare = options == {"priority": 0, "headers": None}
        tasks = values if bare else [NewTask(value, **options) for value in values]
        kit.queue(queue).enqueue_many(tasks)

    return one_or_lines(payload, file, "tasks enqueued", send, send_many)


@command(tasks)
def poll(
    kit: EventKit,
    queue: Queue,
    limit: Limit = 1,
    lease: Annotated[float | None, period("How long the claim is valid.")] = None,
    wait: Annotated[float | None, period("How long to wait for a task.")] = None,
    worker: Annotated[str | None, option("NAME", "The name of the worker.")] = None,
) -> Result:
    """Claim tasks, and print them with their tokens.

    ack, nack and extend-lease need the token.
    """
    claimed = kit.queue(queue).claim(worker or default_worker(), limit, lease=lease, wait=wait or 0)
    columns = ("id", "token", "attempt", "lease_expires_at", "payload")
    return listing(claimed, columns, f"no ready tasks in queue {queue}")


@command(tasks)
def ack(kit: EventKit, queue: Queue, id: Id, token: Token, result: ResultOption = None) -> Result:
    """Finish a task."""
    extra = {} if result is None else {"result": settings.json_value(result, "result")}
    return _ended(kit.queue(queue).ack(_claimed(kit, queue, id, token), **extra), id, f"task {id} is done")


@command(tasks)
def nack(
    kit: EventKit,
    queue: Queue,
    id: Id,
    token: Token,
    delay: Annotated[float | None, period("Delay before the next attempt.")] = None,
    error: Annotated[str | None, option("TEXT", "Error message.")] = None,
    code: Annotated[str | None, option("CODE", "Short name of the failure, for programs.")] = None,
    dead: Annotated[bool, flag("Mark it dead instead.", "--dead")] = False,
) -> Result:
    """Return a task for another attempt.

    By default the queue's retry policy sets the delay.
    """
    handle, task = kit.queue(queue), _claimed(kit, queue, id, token)
    if dead:
        return _ended(handle.fail(task, error or "failed manually", code=code), id, f"task {id} is dead")
    return _ended(handle.retry(task, delay=delay, error=error, code=code), id, f"task {id} will be retried")


@command(tasks, "extend-lease")
def extend_lease(
    kit: EventKit,
    queue: Queue,
    id: Id,
    token: Token,
    time: Annotated[float, typer.Argument(metavar="TIME", parser=settings.duration, help="New lease, from now.")],
) -> Result:
    """Extend the lease of a task."""
    extended = kit.queue(queue).extend(_claimed(kit, queue, id, token), time)
    return _ended(extended, id, f"the lease of task {id} was extended by {span(time)}")


@command(tasks)
def get(kit: EventKit, queue: Queue, id: Id) -> Result:
    """Show a task in any state."""
    return details(_found(kit, queue, id))


@command(tasks)
def remove(kit: EventKit, queue: Queue, id: Id, running: Running = False) -> Result:
    """Delete a task that is not running. Its key stays in use."""
    if not audited(kit, "task.remove", queue=queue, id=id).queue(queue).cancel(id, running):
        state = _found(kit, queue, id).state
        remedies = {"running": "pass --running to take it from its worker", "dead": "see eventkit dead purge"}
        raise Failed(f"task {id} is {state}: {remedies.get(state, 'nothing to remove')}")
    return answer(f"task {id} removed", {"id": id, "removed": True})


def _claimed(kit: EventKit, queue: str, id: int, token: str) -> tuple[int, int]:
    from eventkit.operations.queue import FindTokens

    if token == "current":
        owner, number = kit._connection.execute(FindTokens([id])).get(id, ("", 0))  # type: ignore[attr-defined]
        token = str(number if owner == queue else 0)
    if not token.isdecimal():
        raise Refused(f"{token!r} is not a token: pass the number that poll printed, or current")
    return id, int(token)


def _found(kit: EventKit, queue: str, id: int) -> Any:
    task = kit.queue(queue).get(id)
    if task is None:
        raise Failed(f"there is no task {id} in queue {queue!r}: it has finished, or never existed")
    return task


def _ended(held: bool, id: int, text: str) -> Result:
    if not held:
        raise Failed(f"the lease of task {id} has expired, or the token is wrong: poll it again")
    return answer(text, {"id": id, "ok": True})


@command(dead_tasks, "list")
def list_dead(
    kit: EventKit,
    queue: Annotated[str | None, argument("QUEUE", "Only this queue.")] = None,
    limit: Limit = 20,
    by_error: Annotated[bool, flag("Count them by error.", "--by-error")] = False,
) -> Result:
    """List dead tasks, newest first.

    Without a queue, count them by queue; with --by-error, by error.
    """
    names = [queue] if queue else [name for name, stats in kit.overview().queues.items() if stats.dead]
    if by_error:
        groups = [
            {"queue": name, **plain(group), "summary": _summary(group.error)}
            for name in names
            for group in kit.queue(name).dead_by_error(limit)
        ]
        columns = ("queue", "number", "reason", "code", "summary", "last_at", "last_id")
        return listing(groups, columns, "there are no dead tasks")
    if queue:
        found = kit.queue(queue).dead(limit)
        rows = [{**plain(task), "died_at": task.died_at, "summary": _summary(task.error)} for task in found]
        return listing(
            rows, ("id", "reason", "code", "attempt", "died_at", "summary"), f"queue {queue} has no dead tasks"
        )
    counts = [{"queue": name, "dead": kit.queue(name).stats().dead} for name in names]
    return listing(counts, ("queue", "dead"), "there are no dead tasks")


@command(dead_tasks, "show")
def show_dead(kit: EventKit, queue: Queue, id: Id) -> Result:
    """Show a dead task with its whole error."""
    task = _found(kit, queue, id)
    if task.state != "dead":
        raise Failed(f"task {id} is {task.state}, not dead: see eventkit task get {queue} {id}")
    return details(task)


@command(dead_tasks, "purge")
def purge_dead(kit: EventKit, queue: Queue, older_than: OlderThan = None, yes: Yes = False) -> Result:
    """Delete dead tasks, all or those older than a time."""
    which = "all" if older_than is None else f"older than {span(older_than)}"
    confirm(f"Delete the dead tasks of queue {queue} ({which})?", yes)
    number = audited(kit, "dead.purge", queue=queue, older_than=older_than).queue(queue).purge_dead(older_than)
    return answer(f"{number:,} dead tasks deleted", {"queue": queue, "deleted": number})


def _summary(error: str | None) -> str | None:
    """Return the most telling line of an error: the last of a traceback."""
    return error.strip().splitlines()[-1] if error and error.strip() else error
