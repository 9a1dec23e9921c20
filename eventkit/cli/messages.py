"""``eventkit message``: single tasks of a queue, and files of them."""

import time
from datetime import datetime
from typing import Annotated, Any

import typer

from . import show
from .lines import feed
from .opening import opened
from .options import File, Headers, Id, Json, Limit, Payload, Queue, Token, Url
from .queues import tasks
from .refusals import Failed, Refused
from .telling import told
from .values import duration, headers, json_value, moment

app = typer.Typer(help="Tasks of a queue: add, claim, finish, look.", no_args_is_help=True, rich_markup_mode=None)

_LOST = "the lease of task {} has run out, or the token is another one's: poll it again"


def _time(name: str, help: str) -> Any:
    return typer.Option(name, parser=duration, metavar="TIME", help=help)


@app.command()
def enqueue(
    queue: Queue,
    payload: Payload = None,
    file: File = None,
    delay: Annotated[float | None, _time("--delay", "How long it waits first.")] = None,
    run_at: Annotated[
        datetime | None, typer.Option("--run-at", parser=moment, metavar="MOMENT", help="When it is due.")
    ] = None,
    priority: Annotated[int, typer.Option("--priority", metavar="N", help="Higher ones come first.")] = 0,
    expires: Annotated[float | None, _time("--expires", "After how long it is not handed out any more.")] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", metavar="N", help="Runs of it in all.")] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only one task of that key.")] = None,
    header: Headers = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Add a task, or one for each line of a file.

    A file goes in by batches of 2,000 lines, each of which is one transaction. A line that is no
    JSON ends it, with its number; those before it are in.
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
        raise Refused("say what to enqueue: one PAYLOAD, or --file FILE (- for stdin)")
    with opened(url) as kit:
        handle = kit.queue(queue)
        if file is None:
            made = handle.enqueue(json_value(payload or ""), key=key, **options)
            text = f"task {made.id}" if made.created else f"task {made.id} has that key already"
            show.answer(text, made, json)
            return
        if key is not None:
            raise Refused("--key is for a single task: a file's would all have the same")
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


@app.command()
def poll(
    queue: Queue,
    limit: Limit = 1,
    lease: Annotated[float | None, _time("--lease", "How long they are yours.")] = None,
    wait: Annotated[float | None, _time("--wait", "How long to wait for the first.")] = None,
    worker: Annotated[str | None, typer.Option("--worker", metavar="NAME", help="Who has them.")] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Claim tasks, and print them with their tokens.

    ack, nack and extend-lease ask for the token.
    """
    from eventkit.arguments import default_worker

    with opened(url) as kit:
        claimed = kit.queue(queue).claim(worker or default_worker(), limit, lease=lease, wait=wait or 0)
        if json:
            show.document(claimed)
            return
        columns = ("id", "token", "attempt", "lease_expires_at", "payload")
        listed = [{**show.plain(task), "payload": show.payload(task.payload)} for task in claimed]
        show.listing(listed, columns, False, f"nothing is ready in queue {queue}")


@app.command()
def ack(
    queue: Queue,
    id: Id,
    token: Token,
    result: Annotated[str | None, typer.Option("--result", metavar="JSON", help="What it came to.")] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Finish a task."""
    with opened(url) as kit:
        handle, task = kit.queue(queue), held(queue, id, token)
        extra = {} if result is None else {"result": json_value(result, "result")}
        _outcome(handle.ack(task, **extra), id, f"task {id} is done", json)


@app.command()
def nack(
    queue: Queue,
    id: Id,
    token: Token,
    delay: Annotated[float | None, _time("--delay", "How long until it is tried again.")] = None,
    error: Annotated[str | None, typer.Option("--error", metavar="TEXT", help="What went wrong.")] = None,
    dead: Annotated[bool, typer.Option("--dead", help="For good: it is a dead letter now.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Give a task back for another attempt.

    When, is the queue's policy, unless --delay says so.
    """
    with opened(url) as kit:
        handle, task = kit.queue(queue), held(queue, id, token)
        if dead:
            _outcome(handle.fail(task, error or "given up by hand"), id, f"task {id} is dead", json)
        else:
            _outcome(handle.retry(task, delay=delay, error=error), id, f"task {id} will be tried again", json)


@app.command("extend-lease")
def extend_lease(
    queue: Queue,
    id: Id,
    token: Token,
    time: Annotated[float, typer.Argument(metavar="TIME", parser=duration, help="How long from now.")],
    url: Url = None,
    json: Json = False,
) -> None:
    """Keep a task for longer."""
    with opened(url) as kit:
        answer = kit.queue(queue).extend(held(queue, id, token), time)
        _outcome(answer, id, f"task {id} is yours for {show.span(time)}", json)


@app.command()
def get(queue: Queue, id: Id, url: Url = None, json: Json = False) -> None:
    """All that is known of a task, in whatever state."""
    with opened(url) as kit:
        show.details(found(kit.queue(queue).get(id), queue, id), json)


@app.command()
def peek(queue: Queue, limit: Limit = 10, url: Url = None, json: Json = False) -> None:
    """What poll would give next."""
    with opened(url) as kit:
        tasks(kit.queue(queue).peek(limit), json, f"nothing is ready in queue {queue}")


@app.command()
def remove(
    queue: Queue,
    id: Id,
    running: Annotated[bool, typer.Option("--running", help="Even if a worker has it.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Delete a task that waits; its key stays taken."""
    with told(url, "message.remove", queue=queue, id=id) as kit:
        if not kit.queue(queue).cancel(id, running):
            task = found(kit.queue(queue).get(id), queue, id)
            how = {"leased": "say --running to take it from its worker", "dead": "see eventkit dlq purge"}
            raise Failed(f"task {id} is {task.state}: {how.get(task.state, 'it needs no removing')}")
        show.answer(f"task {id} is gone", {"id": id, "removed": True}, json)


def held(queue: str, id: int, token: int) -> Any:
    """A task as somebody else has claimed it: what of it is known here says by what right."""
    from eventkit.functions import Claimed

    return Claimed(id, queue, token)


def found(task: Any, queue: str, id: int) -> Any:
    """*task*, or an error that there is none."""
    if task is None:
        raise Failed(f"there is no task {id} in queue {queue!r}: it was done, or never there")
    return task


def done(number: int, what: str, seconds: float, json: bool) -> None:
    """Say how many, and how fast."""
    rate = number / seconds if seconds else 0.0
    show.answer(
        f"{number:,} {what} in {show.span(seconds)} ({rate:,.0f}/s)", {"number": number, "seconds": seconds}, json
    )


def _outcome(answer: bool, id: int, text: str, json: bool) -> None:
    if not answer:
        raise Failed(_LOST.format(id))
    show.answer(text, {"id": id, "ok": True}, json)
