"""``eventkit worker`` and ``eventkit scheduler``: what runs for as long as the application does."""

import logging
import os
import signal
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from . import logs, settings
from .opening import opened
from .options import Url
from .refusals import Failed, Refused
from .values import duration

Json = Annotated[bool, typer.Option("--json", help="Print the log as JSON, an object a line.")]


def _option(name: str, metavar: str, help: str, *short: str, **more: Any) -> Any:
    variable = "EVENTKIT_" + name.strip("-").replace("-", "_").upper()
    return typer.Option(name, *short, metavar=metavar, help=help, envvar=variable, show_envvar=False, **more)


def worker(
    app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="As in shop.tasks:app.", show_default=False)],
    queue: Annotated[
        list[str] | None,
        _option("--queue", "QUEUE[=WEIGHT]", "Those alone; may be said several times.", "-q"),
    ] = None,
    concurrency: Annotated[int | None, _option("--concurrency", "N", "Tasks that run at once (20).")] = None,
    prefetch: Annotated[int | None, _option("--prefetch", "N", "Tasks claimed ahead of that (0).")] = None,
    processes: Annotated[
        int | None, _option("--processes", "N", "Children for tasks that have a process of their own.")
    ] = None,
    lease: Annotated[
        float | None, _option("--lease", "TIME", "How long a claim holds, unless it is extended.", parser=duration)
    ] = None,
    shutdown_timeout: Annotated[
        float | None,
        _option("--shutdown-timeout", "TIME", "How long running tasks have to finish (30s).", parser=duration),
    ] = None,
    db_retry_initial_ms: Annotated[
        int | None, _option("--db-retry-initial-ms", "N", "The first pause when the database is away (500).")
    ] = None,
    db_retry_max_ms: Annotated[int | None, _option("--db-retry-max-ms", "N", "The longest pause (30000).")] = None,
    db_retry_max_attempts: Annotated[
        int | None, _option("--db-retry-max-attempts", "N", "After how many it gives up (0: never).")
    ] = None,
    notify_poll_interval_ms: Annotated[
        int | None, _option("--notify-poll-interval-ms", "N", "How often it looks although nobody wakes it (5000).")
    ] = None,
    name: Annotated[str | None, _option("--name", "NAME", "What it is called in the database.")] = None,
    readiness_file: Annotated[str | None, _option("--readiness-file", "FILE", "Is there while it works.")] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Run an application's tasks.

    Until a signal: then what runs is finished, and what waits is given back; a second signal stops
    at once. Each option can be in the environment (EVENTKIT_CONCURRENCY) or under
    [tool.eventkit.worker], as concurrency.
    """
    from .application import load

    _be_interrupted()
    weighted, database = _weighted(queue), url or settings.from_file().get("url")
    given = {
        "queues": weighted,
        "concurrency": concurrency,
        "prefetch": prefetch,
        "processes": processes,
        "lease": lease,
        "shutdown_timeout": shutdown_timeout,
        "db_retry_initial_ms": db_retry_initial_ms,
        "db_retry_max_ms": db_retry_max_ms,
        "db_retry_max_attempts": db_retry_max_attempts,
        "notify_poll_interval_ms": notify_poll_interval_ms,
        "name": name,
        "readiness_file": readiness_file,
        "url": database,
    }
    said = {key: value for key, value in given.items() if value is not None}
    logs.begin(json)
    code = 0
    with suppress(KeyboardInterrupt):  # It was told to end before it had begun.
        declared = load(app)
        if declared.url is None and declared.bound is None:
            settings.url(url)
        _check([name for name, _ in weighted or () if name not in declared.queues], database or declared.url)
        code = declared.worker(**{**settings.from_file().get("worker", {}), **said}).run()
    if code:  # Functions go on that would keep the process for as long as they like.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def scheduler(url: Url = None, json: Json = False) -> None:
    """Fire schedules when they are due.

    Until a signal. Any number of processes may: each fire comes to one task.
    """
    _be_interrupted()
    logs.begin(json)
    with suppress(KeyboardInterrupt), opened(url) as kit:
        logging.getLogger("eventkit.scheduler").info("firing schedules; the next is due at %s", kit.schedules.soonest())
        kit.run_scheduler()


def _be_interrupted() -> None:
    """Have the signals that end what runs raise KeyboardInterrupt, also where whoever started it had them ignored."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)


def _check(queues: list[str], url: str | None) -> None:
    """Refuse a queue that the app does not declare and the database does not know."""
    from eventkit.errors import NotMigrated, Unavailable

    known: Any = ()
    try:
        if queues:
            with opened(url) as kit:
                known = kit.overview().queues
    except NotMigrated:
        pass  # The worker makes the tables; there is no queue yet.
    except Unavailable:
        return  # The worker waits for its database, too.
    for name in queues:
        if name not in known:
            raise Failed(
                f"no task is declared for queue {name!r}, and the database has no such queue: see eventkit queue list"
            )


def _weighted(queues: list[str] | None) -> list[tuple[str, float]] | None:
    """Names with their weights, which are 1 where none is given."""
    if not queues:
        return None
    found = []
    for text in queues:
        name, equals, weight = text.rpartition("=")
        try:
            found.append((name, float(weight)) if equals else (text, 1.0))
        except ValueError:
            raise Refused(f"{weight!r} is no weight: write --queue {name}=2") from None
    return found
