"""``eventkit message`` and ``eventkit dlq``: tasks of a queue, and dead tasks."""

import time
from datetime import datetime
from typing import Annotated, Any

import typer

from . import console
from .console import Failed, Refused
from .database import audited, opened
from .files import feed
from .queues import tasks
from .settings import (
    File,
    Headers,
    Id,
    Json,
    Limit,
    OlderThan,
    Payload,
    Queue,
    Token,
    Url,
    Yes,
    duration,
    headers,
    json_value,
    moment,
)

message_app = typer.Typer(
    help="Tasks of a queue: enqueue, claim, finish, show.", no_args_is_help=True, rich_markup_mode=None
)

_LOST = "the lease of task {} has expired, or the token is wrong: poll it again"


def _time(name: str, help: str) -> Any:
    return typer.Option(name, parser=duration, metavar="TIME", help=help)


@message_app.command()
def enqueue(
    queue: Queue,
    payload: Payload = None,
    file: File = None,
    delay: Annotated[float | None, _time("--delay", "Delay before it is ready.")] = None,
    run_at: Annotated[
        datetime | None, typer.Option("--run-at", parser=moment, metavar="MOMENT", help="When it is due.")
    ] = None,
    priority: Annotated[int, typer.Option("--priority", metavar="N", help="Higher priorities run first.")] = 0,
    expires: Annotated[float | None, _time("--expires", "How long until it expires.")] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", metavar="N", help="Attempts.")] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Unique key of the task.")] = None,
    header: Headers = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Enqueue a task, or one for each line of a file.

    A file is committed in batches of 2,000 lines. An invalid line stops the command, which reports its
    number; the lines before it are enqueued.
    """
    from eventkit import NewTask

    options: dict[str, Any] = {
        "delay": delay,
        "run_at": run_at,
        "priority": priority,
        "expires": expires,
        "max_attempts": max_attempts,
        "headers": headers(header),
    }
    if (payload is None) == (file is None):
        raise Refused("pass either PAYLOAD or --file FILE (- for stdin)")
    with opened(url) as kit:
        handle = kit.queue(queue)
        if file is None:
            made = handle.enqueue(json_value(payload or ""), key=key, **options)
            text = f"task {made.id}" if made.created else f"task {made.id} already has this key"
            console.answer(text, made, json)
            return
        if key is not None:
            raise Refused("--key does not work with --file: all tasks would have the same key")
        bare = not priority and all(value is None for name, value in options.items() if name != "priority")
        began = time.monotonic()
        number = feed(
            file,
            f"enqueueing to {queue}",
            handle.enqueue_many
            if bare
            else lambda values: handle.enqueue_many([NewTask(v, **options) for v in values]),
        )
        seconds = time.monotonic() - began
        done(number, "tasks enqueued", seconds, json)


@message_app.command()
def poll(
    queue: Queue,
    limit: Limit = 1,
    lease: Annotated[float | None, _time("--lease", "How long the claim is valid.")] = None,
    wait: Annotated[float | None, _time("--wait", "How long to wait for a task.")] = None,
    worker: Annotated[str | None, typer.Option("--worker", metavar="NAME", help="The name of the worker.")] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Claim tasks, and print them with their tokens.

    ack, nack and extend-lease need the token.
    """
    from eventkit.checks import default_worker

    with opened(url) as kit:
        claimed = kit.queue(queue).claim(worker or default_worker(), limit, lease=lease, wait=wait or 0)
        if json:
            console.document(claimed)
            return
        columns = ("id", "token", "attempt", "lease_expires_at", "payload")
        listed = [{**console.plain(task), "payload": console.payload(task.payload)} for task in claimed]
        console.listing(listed, columns, False, f"no ready tasks in queue {queue}")


@message_app.command()
def ack(
    queue: Queue,
    id: Id,
    token: Token,
    result: Annotated[str | None, typer.Option("--result", metavar="JSON", help="Result of the task.")] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Finish a task."""
    with opened(url) as kit:
        handle, task = kit.queue(queue), held(queue, id, token)
        extra = {} if result is None else {"result": json_value(result, "result")}
        _outcome(handle.ack(task, **extra), id, f"task {id} is done", json)


@message_app.command()
def nack(
    queue: Queue,
    id: Id,
    token: Token,
    delay: Annotated[float | None, _time("--delay", "Delay before the next attempt.")] = None,
    error: Annotated[str | None, typer.Option("--error", metavar="TEXT", help="Error message.")] = None,
    dead: Annotated[bool, typer.Option("--dead", help="Make it a dead letter instead.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Return a task for another attempt.

    By default the queue's retry policy sets the delay.
    """
    with opened(url) as kit:
        handle, task = kit.queue(queue), held(queue, id, token)
        if dead:
            _outcome(handle.fail(task, error or "failed manually"), id, f"task {id} is dead", json)
        else:
            _outcome(handle.retry(task, delay=delay, error=error), id, f"task {id} will be retried", json)


@message_app.command("extend-lease")
def extend_lease(
    queue: Queue,
    id: Id,
    token: Token,
    time: Annotated[float, typer.Argument(metavar="TIME", parser=duration, help="New lease, from now.")],
    url: Url = None,
    json: Json = False,
) -> None:
    """Extend the lease of a task."""
    with opened(url) as kit:
        answer = kit.queue(queue).extend(held(queue, id, token), time)
        _outcome(answer, id, f"the lease of task {id} was extended by {console.span(time)}", json)


@message_app.command()
def get(queue: Queue, id: Id, url: Url = None, json: Json = False) -> None:
    """Show a task in any state."""
    with opened(url) as kit:
        console.details(found(kit.queue(queue).get(id), queue, id), json)


@message_app.command()
def peek(queue: Queue, limit: Limit = 10, url: Url = None, json: Json = False) -> None:
    """Show the tasks that poll would return next."""
    with opened(url) as kit:
        tasks(kit.queue(queue).peek(limit), json, f"no ready tasks in queue {queue}")


@message_app.command()
def remove(
    queue: Queue,
    id: Id,
    running: Annotated[bool, typer.Option("--running", help="Also if a worker runs it.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Delete a task that is not running. Its key stays in use."""
    with audited(url, "message.remove", queue=queue, id=id) as kit:
        if not kit.queue(queue).cancel(id, running):
            task = found(kit.queue(queue).get(id), queue, id)
            how = {"leased": "pass --running to take it from its worker", "dead": "see eventkit dlq purge"}
            raise Failed(f"task {id} is {task.state}: {how.get(task.state, 'nothing to remove')}")
        console.answer(f"task {id} removed", {"id": id, "removed": True}, json)


def held(queue: str, id: int, token: int) -> Any:
    """Return a claim by another process, as far as a token proves it."""
    from eventkit.functions import Claimed

    return Claimed(id, queue, token)


def found(task: Any, queue: str, id: int) -> Any:
    """Return *task*, or raise `Failed` if it is None."""
    if task is None:
        raise Failed(f"there is no task {id} in queue {queue!r}: it has finished, or never existed")
    return task


def done(number: int, what: str, seconds: float, json: bool) -> None:
    """Print a number of items and their rate."""
    rate = number / seconds if seconds else 0.0
    console.answer(
        f"{number:,} {what} in {console.span(seconds)} ({rate:,.0f}/s)", {"number": number, "seconds": seconds}, json
    )


def _outcome(answer: bool, id: int, text: str, json: bool) -> None:
    if not answer:
        raise Failed(_LOST.format(id))
    console.answer(text, {"id": id, "ok": True}, json)


dlq_app = typer.Typer(help="Dead letters: tasks that failed for good.", no_args_is_help=True, rich_markup_mode=None)


@dlq_app.command("list")
def list_(
    queue: Annotated[str | None, typer.Argument(metavar="QUEUE", help="Only this queue.", show_default=False)] = None,
    limit: Limit = 20,
    by_error: Annotated[bool, typer.Option("--by-error", help="Count them by error.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """List dead tasks, newest first.

    Without a queue, count them by queue; with --by-error, by error.
    """
    with opened(url) as kit:
        names = [queue] if queue else [name for name, stats in kit.overview().queues.items() if stats.dead]
        if by_error:
            groups = [
                {"queue": name, **console.plain(group), "summary": summary(group.error)}
                for name in names
                for group in kit.queue(name).dead_by_error(limit)
            ]
            columns = ("queue", "number", "reason", "summary", "last_at", "last_id")
            console.listing(groups, columns, json, "there are no dead letters")
        elif queue:
            letters = [
                {**console.plain(task), "died_at": task.died_at, "summary": summary(task.error)}
                for task in kit.queue(queue).dead(limit)
            ]
            letter_columns = ("id", "reason", "attempt", "died_at", "summary")
            console.listing(letters, letter_columns, json, f"queue {queue} has no dead letters")
        else:
            counts = [{"queue": name, "dead": kit.queue(name).stats().dead} for name in names]
            console.listing(counts, ("queue", "dead"), json, "there are no dead letters")


@dlq_app.command("show")
def show_(queue: Queue, id: Id, url: Url = None, json: Json = False) -> None:
    """Show a dead task with its whole error."""
    with opened(url) as kit:
        task = found(kit.queue(queue).get(id), queue, id)
        if task.state != "dead":
            raise Failed(f"task {id} is {task.state}, not dead: see eventkit message get {queue} {id}")
        console.details(task, json)


@dlq_app.command()
def purge(queue: Queue, older_than: OlderThan = None, yes: Yes = False, url: Url = None, json: Json = False) -> None:
    """Delete dead tasks, all or those older than a time."""
    with audited(url, "dlq.purge", queue=queue, older_than=older_than) as kit:
        which = "all" if older_than is None else f"older than {console.span(older_than)}"
        console.confirm(f"Delete the dead letters of queue {queue} ({which})?", yes)
        number = kit.queue(queue).purge_dead(older_than)
        console.answer(f"{number:,} dead letters deleted", {"queue": queue, "deleted": number}, json)


@dlq_app.command()
def requeue(
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


def summary(error: str | None) -> str | None:
    """Return the most telling line of an error: the last of a traceback."""
    return error.strip().splitlines()[-1] if error and error.strip() else error
