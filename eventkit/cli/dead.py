"""``eventkit dlq``: dead letters, the tasks that nobody will try again unless somebody says so."""

from typing import Annotated

import typer

from . import show
from .messages import found
from .opening import opened
from .options import Id, Json, Limit, OlderThan, Queue, Url, Yes
from .refusals import Failed
from .telling import told

app = typer.Typer(help="Dead letters: what failed for good.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(
    queue: Annotated[str | None, typer.Argument(metavar="QUEUE", help="One queue's.", show_default=False)] = None,
    limit: Limit = 20,
    by_error: Annotated[bool, typer.Option("--by-error", help="How many there are of each error.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Dead tasks, newest first.

    Without a queue, how many each has; with --by-error, how many of each error.
    """
    with opened(url) as kit:
        names = [queue] if queue else [name for name, stats in kit.overview().queues.items() if stats.dead]
        if by_error:
            groups = [
                {"queue": name, **show.plain(group), "summary": summary(group.error)}
                for name in names
                for group in kit.queue(name).dead_by_error(limit)
            ]
            columns = ("queue", "number", "reason", "summary", "last_at", "last_id")
            show.listing(groups, columns, json, "there are no dead letters")
        elif queue:
            letters = [
                {**show.plain(task), "died_at": task.died_at, "summary": summary(task.error)}
                for task in kit.queue(queue).dead(limit)
            ]
            letter_columns = ("id", "reason", "attempt", "died_at", "summary")
            show.listing(letters, letter_columns, json, f"queue {queue} has no dead letters")
        else:
            counts = [{"queue": name, "dead": kit.queue(name).stats().dead} for name in names]
            show.listing(counts, ("queue", "dead"), json, "there are no dead letters")


@app.command("show")
def show_(queue: Queue, id: Id, url: Url = None, json: Json = False) -> None:
    """A dead task with its whole error."""
    with opened(url) as kit:
        task = found(kit.queue(queue).get(id), queue, id)
        if task.state != "dead":
            raise Failed(f"task {id} is {task.state}, not dead: see eventkit message get {queue} {id}")
        show.details(task, json)


@app.command()
def purge(queue: Queue, older_than: OlderThan = None, yes: Yes = False, url: Url = None, json: Json = False) -> None:
    """Delete dead tasks, all or the older ones."""
    with told(url, "dlq.purge", queue=queue, older_than=older_than) as kit:
        which = "all" if older_than is None else f"older than {show.span(older_than)}"
        show.confirm(f"Delete the dead letters of queue {queue} ({which})?", yes)
        number = kit.queue(queue).purge_dead(older_than)
        show.answer(f"{number:,} dead letters deleted", {"queue": queue, "deleted": number}, json)


@app.command()
def requeue(
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


def summary(error: str | None) -> str | None:
    """The line of an error that says most: of a traceback, the last."""
    return error.strip().splitlines()[-1] if error and error.strip() else error
