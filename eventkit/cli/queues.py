"""``eventkit queue``: the list of queues, their settings, and operations on all tasks of a queue."""

from typing import Annotated, Any

import typer

from . import console, settings
from .console import Failed
from .database import audited, backend_function, opened
from .settings import Json, Limit, Queue, Url, Yes, duration

queue_app = typer.Typer(help="Queues: list, settings, pause, purge.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("queue", "ready", "scheduled", "leased", "dead", "done", "oldest", "paused")
STATES = "scheduled, ready, leased, dead or done"

_NONE = "none"
"""The word for the default value of a setting."""


def _or_none(parse: Any) -> Any:
    return lambda text: _NONE if text == _NONE else parse(text)


def _number(kind: type) -> Any:
    def parse(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a number: pass one, or none for the default") from None

    return _or_none(parse)


def _policy(text: str) -> Any:
    """Parse ``exponential``, ``linear``, ``fixed``, or delays such as ``5,30,300``."""
    if text[:1].isdigit():
        return [duration(part) for part in text.split(",")]
    return text


def _setting(name: str, metavar: str, parse: Any, help: str) -> Any:
    return typer.Option(f"--{name}", metavar=metavar, parser=_or_none(parse), help=help)


MaxAttempts = Annotated[Any, _setting("max-attempts", "N", _number(int), "Attempts per task (3).")]
Lease = Annotated[Any, _setting("lease", "TIME", duration, "How long a claim is valid (5m).")]
Retry = Annotated[Any, _setting("retry", "POLICY", _policy, "exponential, linear, fixed, or delays such as 5,30,300.")]
MaxSize = Annotated[Any, _setting("max-size", "N", _number(int), "Maximum number of tasks.")]
Rate = Annotated[Any, _setting("rate", "N", _number(float), "Tasks started per second.")]
Burst = Annotated[Any, _setting("burst", "N", _number(float), "Tasks started at once above the rate.")]
MaxRunning = Annotated[Any, _setting("max-running", "N", _number(int), "Maximum number of running tasks.")]
KeepDone = Annotated[Any, _setting("keep-done", "TIME", duration, "How long finished tasks are kept.")]
KeepDead = Annotated[Any, _setting("keep-dead", "TIME", duration, "How long dead letters are kept.")]
KeyTtl = Annotated[Any, _setting("key-ttl", "TIME", duration, "How long a key stays in use (24h).")]
DeadLetterTo = Annotated[Any, _setting("dead-letter-to", "QUEUE", str, "The queue that gets copies of dead tasks.")]
History = Annotated[
    bool | None,
    typer.Option("--history/--no-history", help="Record each step of a task as an event.", show_default=False),
]


@queue_app.command("list")
def list_(url: Url = None, json: Json = False) -> None:
    """List all queues with tasks or settings."""
    with opened(url) as kit:
        console.listing(rows(kit.overview().queues, json), COLUMNS, json, "there are no queues")


@queue_app.command()
def add(
    queue: Queue,
    max_attempts: MaxAttempts = None,
    lease: Lease = None,
    retry: Retry = None,
    max_size: MaxSize = None,
    rate: Rate = None,
    burst: Burst = None,
    max_running: MaxRunning = None,
    keep_done: KeepDone = None,
    keep_dead: KeepDead = None,
    key_ttl: KeyTtl = None,
    dead_letter_to: DeadLetterTo = None,
    history: History = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Create a queue with settings.

    A queue without settings exists as soon as it has a task.
    """
    given = _given(locals())
    with audited(url, "queue.add", queue=queue, **given) as kit:
        if queue in kit.overview().queues:
            raise Failed(f"queue {queue!r} already exists: change it with eventkit queue configure {queue}")
        kit.queue(queue).configure(**given)
        console.answer(f"queue {queue} created", kit.queue(queue).settings(), json)


@queue_app.command()
def configure(
    queue: Queue,
    max_attempts: MaxAttempts = None,
    lease: Lease = None,
    retry: Retry = None,
    max_size: MaxSize = None,
    rate: Rate = None,
    burst: Burst = None,
    max_running: MaxRunning = None,
    keep_done: KeepDone = None,
    keep_dead: KeepDead = None,
    key_ttl: KeyTtl = None,
    dead_letter_to: DeadLetterTo = None,
    history: History = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Change settings, for all processes at once.

    Pass none to restore a default. Settings that are not given are kept.
    """
    given = _given(locals())
    with audited(url, "queue.configure", queue=queue, **given) as kit:
        kit.queue(queue).configure(**given)
        console.details(kit.queue(queue).settings(), json)


def known(kit: Any, names: list[str]) -> None:
    """Raise `Failed` for a queue without tasks and settings."""
    there = kit.overview().queues
    for name in names:
        if name not in there:
            raise Failed(f"there is no queue {name!r}: see eventkit queue list")


@queue_app.command("show")
def show_(queue: Queue, url: Url = None, json: Json = False) -> None:
    """Show the statistics and settings of a queue.

    A setting shown as - has its default.
    """
    with opened(url) as kit:
        known(kit, [queue])
        handle = kit.queue(queue)
        numbers = console.plain(handle.stats())
        numbers.update(console.plain(handle.settings()), next_due=handle.next_due())
        console.details({"queue": queue, **numbers}, json)


@queue_app.command()
def rm(
    queue: Queue,
    force: Annotated[bool, typer.Option("--force", help="Also delete tasks that are not done.")] = False,
    yes: Yes = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Remove a queue with its settings and keys.

    A queue with tasks that are not done needs --force, which deletes them too.
    """
    with audited(url, "queue.rm", queue=queue, force=force) as kit:
        if force:
            console.confirm(f"Delete queue {queue} and all tasks in it?", yes)
        if not kit.queue(queue).drop(force=force):
            raise Failed(f"queue {queue!r} has tasks: let workers finish them, or pass --force to delete them")
        console.answer(f"queue {queue} removed", {"queue": queue, "removed": True}, json)


@queue_app.command()
def pause(queue: Queue, url: Url = None, json: Json = False) -> None:
    """Pause a queue: it accepts tasks, but workers get none."""
    with audited(url, "queue.pause", queue=queue) as kit:
        kit.queue(queue).pause()
        console.answer(f"queue {queue} is paused", {"queue": queue, "paused": True}, json)


@queue_app.command()
def resume(queue: Queue, url: Url = None, json: Json = False) -> None:
    """Resume a paused queue."""
    with audited(url, "queue.resume", queue=queue) as kit:
        kit.queue(queue).resume()
        console.answer(f"queue {queue} resumed", {"queue": queue, "paused": False}, json)


@queue_app.command()
def purge(
    queue: Queue,
    state: Annotated[str, typer.Option("--state", metavar="STATE", help=f"State of the tasks: {STATES}.")] = "ready",
    yes: Yes = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Delete all tasks in one state."""
    with audited(url, "queue.purge", queue=queue, state=state) as kit:
        console.confirm(f"Delete all {state} tasks of queue {queue}?", yes)
        number = kit.queue(queue).purge(state)
        console.answer(f"{number:,} tasks deleted", {"queue": queue, "deleted": number}, json)


@queue_app.command()
def peek(queue: Queue, limit: Limit = 10, url: Url = None, json: Json = False) -> None:
    """Show the tasks that workers would get next."""
    with opened(url) as kit:
        tasks(kit.queue(queue).peek(limit), json, f"no ready tasks in queue {queue}")


@queue_app.command()
def compact(url: Url = None, json: Json = False) -> None:
    """Return unused space to the operating system.

    First removes expired rows of all queues. On SQLite it blocks writers.
    """
    address = settings.url(url)
    with opened(address) as kit:
        cleared = kit.maintain()
    before, after = backend_function(address, "compact")(address)
    console.answer(
        f"{before:,} bytes before, {after:,} bytes now",
        {"before": before, "after": after, "cleared": cleared},
        json,
    )


@queue_app.command("requeue-dlq")
def requeue_dlq(
    queue: Queue,
    ids: Annotated[list[int] | None, typer.Argument(metavar="ID", help="Only these tasks.", show_default=False)] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Make dead tasks ready again, all or those given.

    Their attempts start again at zero.
    """
    with audited(url, "dlq.requeue", queue=queue, ids=ids or "all") as kit:
        number = kit.queue(queue).requeue(ids or None)
        console.answer(f"{number:,} tasks are ready again", {"queue": queue, "requeued": number}, json)


def rows(queues: Any, json: bool = False) -> list[dict[str, Any]]:
    """Return queues as rows; for a table with the age of the oldest task in words."""
    found = []
    for name, numbers in queues.items():
        row = {"queue": name, **console.plain(numbers)}
        found.append(row if json else {**row, "oldest": console.span(row["oldest_ready_age"])})
    return found


def tasks(found: Any, json: bool, nothing: str) -> None:
    """Print tasks, with shortened payloads in a table."""
    if json:
        console.document(found)
        return
    columns = ("id", "state", "priority", "attempt", "run_at", "key", "payload")
    listed = [{**console.plain(task), "payload": console.payload(task.payload)} for task in found]
    console.listing(listed, columns, False, nothing)


def _given(local: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that were given."""
    rest = ("queue", "url", "json")
    return {
        name: None if value == _NONE else value
        for name, value in local.items()
        if name not in rest and value is not None
    }
