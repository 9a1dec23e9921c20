"""``eventkit queue``: what queues there are, their settings, and what becomes of all their tasks."""

from typing import Annotated, Any

import typer

from . import settings, show
from .opening import care, opened
from .options import Json, Limit, Queue, Url, Yes
from .refusals import Failed
from .telling import told
from .values import duration

app = typer.Typer(help="Queues: list, settings, pause, purge.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("queue", "ready", "scheduled", "leased", "dead", "done", "oldest", "paused")
STATES = "scheduled, ready, leased, dead or done"

_NONE = "none"
"""What is typed for the default again."""


def _or_none(parse: Any) -> Any:
    return lambda text: _NONE if text == _NONE else parse(text)


def _number(kind: type) -> Any:
    def parse(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is no number: write one, or none for the default") from None

    return _or_none(parse)


def _policy(text: str) -> Any:
    """``exponential``, ``linear``, ``fixed``, or seconds as in ``5,30,300``."""
    if text[:1].isdigit():
        return [duration(part) for part in text.split(",")]
    return text


def _setting(name: str, metavar: str, parse: Any, help: str) -> Any:
    return typer.Option(f"--{name}", metavar=metavar, parser=_or_none(parse), help=help)


MaxAttempts = Annotated[Any, _setting("max-attempts", "N", _number(int), "Runs of a task in all (3).")]
Lease = Annotated[Any, _setting("lease", "TIME", duration, "How long a claim holds (5m).")]
Retry = Annotated[Any, _setting("retry", "POLICY", _policy, "exponential, linear, fixed, or delays as in 5,30,300.")]
MaxSize = Annotated[Any, _setting("max-size", "N", _number(int), "How many tasks it takes.")]
Rate = Annotated[Any, _setting("rate", "N", _number(float), "Tasks a second that are handed out.")]
Burst = Annotated[Any, _setting("burst", "N", _number(float), "How many of them at once.")]
MaxRunning = Annotated[Any, _setting("max-running", "N", _number(int), "How many run at a time, of all workers.")]
KeepDone = Annotated[Any, _setting("keep-done", "TIME", duration, "How long finished tasks are kept.")]
KeepDead = Annotated[Any, _setting("keep-dead", "TIME", duration, "How long dead letters are kept.")]
KeyTtl = Annotated[Any, _setting("key-ttl", "TIME", duration, "How long a key stays taken (24h).")]
DeadLetterTo = Annotated[Any, _setting("dead-letter-to", "QUEUE", str, "Where dead tasks are copied to.")]
History = Annotated[
    bool | None,
    typer.Option("--history/--no-history", help="Make each step of a task an event.", show_default=False),
]


@app.command("list")
def list_(url: Url = None, json: Json = False) -> None:
    """All queues that have tasks or settings, in numbers."""
    with opened(url) as kit:
        show.listing(rows(kit.overview().queues, json), COLUMNS, json, "there are no queues")


@app.command()
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
    """Make a queue with settings.

    One without settings needs no making: it is there when a task is.
    """
    given = _given(locals())
    with told(url, "queue.add", queue=queue, **given) as kit:
        if queue in kit.overview().queues:
            raise Failed(f"there is a queue {queue!r} already: change it with eventkit queue configure {queue}")
        kit.queue(queue).configure(**given)
        show.answer(f"queue {queue} is there", kit.queue(queue).settings(), json)


@app.command()
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
    """Change settings, for every process at once.

    The word none is the default again; what is left out stays as it is.
    """
    given = _given(locals())
    with told(url, "queue.configure", queue=queue, **given) as kit:
        kit.queue(queue).configure(**given)
        show.details(kit.queue(queue).settings(), json)


def known(kit: Any, names: list[str]) -> None:
    """Refuse the name of a queue that has neither tasks nor settings."""
    there = kit.overview().queues
    for name in names:
        if name not in there:
            raise Failed(f"there is no queue {name!r}: eventkit queue list shows those that have tasks or settings")


@app.command("show")
def show_(queue: Queue, url: Url = None, json: Json = False) -> None:
    """A queue's numbers and settings.

    A setting shown as - has its default.
    """
    with opened(url) as kit:
        known(kit, [queue])
        handle = kit.queue(queue)
        numbers = show.plain(handle.stats())
        numbers.update(show.plain(handle.settings()), next_due=handle.next_due())
        show.details({"queue": queue, **numbers}, json)


@app.command()
def rm(
    queue: Queue,
    force: Annotated[bool, typer.Option("--force", help="Even if there are tasks in it, which go with it.")] = False,
    yes: Yes = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Forget a queue: its settings and its keys.

    If there are tasks in it that are not done, only with --force, which deletes them too.
    """
    with told(url, "queue.rm", queue=queue, force=force) as kit:
        if force:
            show.confirm(f"Delete queue {queue} and all tasks in it?", yes)
        if not kit.queue(queue).drop(force=force):
            raise Failed(f"queue {queue!r} has tasks: let workers finish them, or say --force to delete them with it")
        show.answer(f"queue {queue} is gone", {"queue": queue, "removed": True}, json)


@app.command()
def pause(queue: Queue, url: Url = None, json: Json = False) -> None:
    """Accept tasks and hand out none."""
    with told(url, "queue.pause", queue=queue) as kit:
        kit.queue(queue).pause()
        show.answer(f"queue {queue} is paused", {"queue": queue, "paused": True}, json)


@app.command()
def resume(queue: Queue, url: Url = None, json: Json = False) -> None:
    """Hand out tasks again."""
    with told(url, "queue.resume", queue=queue) as kit:
        kit.queue(queue).resume()
        show.answer(f"queue {queue} hands out tasks", {"queue": queue, "paused": False}, json)


@app.command()
def purge(
    queue: Queue,
    state: Annotated[str, typer.Option("--state", metavar="STATE", help=f"Which tasks: {STATES}.")] = "ready",
    yes: Yes = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Delete all tasks in one state."""
    with told(url, "queue.purge", queue=queue, state=state) as kit:
        show.confirm(f"Delete all {state} tasks of queue {queue}?", yes)
        number = kit.queue(queue).purge(state)
        show.answer(f"{number:,} tasks deleted", {"queue": queue, "deleted": number}, json)


@app.command()
def peek(queue: Queue, limit: Limit = 10, url: Url = None, json: Json = False) -> None:
    """What a worker would get next."""
    with opened(url) as kit:
        tasks(kit.queue(queue).peek(limit), json, f"nothing is ready in queue {queue}")


@app.command()
def compact(url: Url = None, json: Json = False) -> None:
    """Give space that nothing takes any more back.

    What is over in any queue is cleared away first. On SQLite nobody can write meanwhile.
    """
    address = settings.url(url)
    with opened(address) as kit:
        cleared = kit.maintain()
    before, after = care(address, "compact")(address)
    show.answer(
        f"{before:,} bytes before, {after:,} bytes now",
        {"before": before, "after": after, "cleared": cleared},
        json,
    )


@app.command("requeue-dlq")
def requeue_dlq(
    queue: Queue,
    ids: Annotated[list[int] | None, typer.Argument(metavar="ID", help="Those alone.", show_default=False)] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Make dead tasks ready again, all or these.

    With no attempt made, as if they were new.
    """
    with told(url, "dlq.requeue", queue=queue, ids=ids or "all") as kit:
        number = kit.queue(queue).requeue(ids or None)
        show.answer(f"{number:,} tasks are ready again", {"queue": queue, "requeued": number}, json)


def rows(queues: Any, json: bool = False) -> list[dict[str, Any]]:
    """Queues and their numbers; for a table also with how old the oldest is in words."""
    found = []
    for name, numbers in queues.items():
        row = {"queue": name, **show.plain(numbers)}
        found.append(row if json else {**row, "oldest": show.span(row["oldest_ready_age"])})
    return found


def tasks(found: Any, json: bool, nothing: str) -> None:
    """Tasks, with their payloads shortened where they go into a table."""
    if json:
        show.document(found)
        return
    columns = ("id", "state", "priority", "attempt", "run_at", "key", "payload")
    listed = [{**show.plain(task), "payload": show.payload(task.payload)} for task in found]
    show.listing(listed, columns, False, nothing)


def _given(local: dict[str, Any]) -> dict[str, Any]:
    """The settings that were said."""
    rest = ("queue", "url", "json")
    return {
        name: None if value == _NONE else value
        for name, value in local.items()
        if name not in rest and value is not None
    }
