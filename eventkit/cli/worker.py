"""``eventkit worker`` and ``eventkit scheduler``, and the import of ``MODULE:APP``."""

import importlib
import logging
import os
import signal
import sys
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import console, settings
from .console import Failed, Refused
from .database import opened
from .settings import Url, duration

if TYPE_CHECKING:
    from eventkit.app import Application


def load(name: str) -> "Application":
    """Import the app of this name, also from the current folder."""
    from eventkit.app import Application

    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise Refused(f"{name!r} is not an app: pass MODULE:APP, for example shop.tasks:app")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: Any = _module(module_name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            apps = [name for name, value in vars(found).items() if isinstance(value, Application)]
            there = f": use {', '.join(apps)}" if apps else ", and no eventkit.App"
            raise Refused(f"{module_name} has no {attribute}{there}")
        found = getattr(found, part)
    if not isinstance(found, Application):
        raise Refused(f"{name} is not an eventkit.App but a {type(found).__name__}")
    return found


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise Refused(f"there is no module {error.name!r}: run the command in your project's folder") from None
        raise Refused(_import_error(name, error)) from error
    except Exception as error:
        raise Refused(_import_error(name, error)) from error


def _import_error(name: str, error: Exception) -> str:
    """Return an error text with the place in the user's module."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{place.filename}, line {place.lineno}"
    if isinstance(error, SyntaxError):
        where = f"{error.filename}, line {error.lineno}"
    return f"cannot import {name}: {type(error).__name__}: {error} ({where})"


Json = Annotated[bool, typer.Option("--json", help="Log as JSON, one object per line.")]


def _option(name: str, metavar: str, help: str, *short: str, **more: Any) -> Any:
    variable = "EVENTKIT_" + name.strip("-").replace("-", "_").upper()
    return typer.Option(name, *short, metavar=metavar, help=help, envvar=variable, show_envvar=False, **more)


def worker(
    app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="For example shop.tasks:app.", show_default=False)],
    queue: Annotated[
        list[str] | None,
        _option("--queue", "QUEUE[=WEIGHT]", "Only this queue; repeatable.", "-q"),
    ] = None,
    concurrency: Annotated[int | None, _option("--concurrency", "N", "Maximum number of running tasks (20).")] = None,
    prefetch: Annotated[int | None, _option("--prefetch", "N", "Tasks claimed in advance (0).")] = None,
    processes: Annotated[int | None, _option("--processes", "N", "Child processes for tasks that need one.")] = None,
    lease: Annotated[
        float | None, _option("--lease", "TIME", "How long a claim is valid until it is extended.", parser=duration)
    ] = None,
    shutdown_timeout: Annotated[
        float | None,
        _option("--shutdown-timeout", "TIME", "Time for running tasks to finish (30s).", parser=duration),
    ] = None,
    db_retry_initial_ms: Annotated[
        int | None, _option("--db-retry-initial-ms", "N", "First pause when the database is unavailable (500).")
    ] = None,
    db_retry_max_ms: Annotated[int | None, _option("--db-retry-max-ms", "N", "Longest such pause (30000).")] = None,
    db_retry_max_attempts: Annotated[
        int | None, _option("--db-retry-max-attempts", "N", "Attempts before it gives up (0: never).")
    ] = None,
    notify_poll_interval_ms: Annotated[
        int | None, _option("--notify-poll-interval-ms", "N", "Poll interval without notifications (5000).")
    ] = None,
    name: Annotated[str | None, _option("--name", "NAME", "Name of the worker in the database.")] = None,
    readiness_file: Annotated[str | None, _option("--readiness-file", "FILE", "Exists while it is ready.")] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Run the tasks of an application.

    At a signal the worker finishes running tasks and releases waiting ones; a second signal stops it
    at once. Options can also be set in the environment (EVENTKIT_CONCURRENCY) or under
    [tool.eventkit.worker] (concurrency).
    """

    _interrupt_on_signals()
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
    options = {key: value for key, value in given.items() if value is not None}
    console.start_logging(json)
    code = 0
    with suppress(KeyboardInterrupt):  # A signal arrived before the worker ran.
        declared = load(app)
        if declared.url is None and declared.bound is None:
            settings.url(url)
        _check([name for name, _ in weighted or () if name not in declared.queues], database or declared.url)
        code = declared.worker(**{**settings.from_file().get("worker", {}), **options}).run()
    if code:  # Functions that still run would keep the process.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def scheduler(url: Url = None, json: Json = False) -> None:
    """Fire due schedules, until a signal.

    Any number of processes may run it: each fire enqueues one task.
    """
    _interrupt_on_signals()
    console.start_logging(json)
    with suppress(KeyboardInterrupt), opened(url) as kit:
        logging.getLogger("eventkit.loops").info("scheduler started; next fire at %s", kit.schedules.soonest())
        kit.run_scheduler()


def _interrupt_on_signals() -> None:
    """Raise KeyboardInterrupt on SIGTERM and SIGINT, even if the parent process ignored them."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)


def _check(queues: list[str], url: str | None) -> None:
    """Raise `Failed` for a queue that neither the app declares nor the database knows."""
    from eventkit.errors import NotMigrated, Unavailable

    known: Any = ()
    try:
        if queues:
            with opened(url) as kit:
                known = kit.overview().queues
    except NotMigrated:
        pass  # The worker creates the tables; there is no queue yet.
    except Unavailable:
        return  # The worker waits for its database.
    for name in queues:
        if name not in known:
            raise Failed(
                f"queue {name!r} has no task in the app, and does not exist in the database: see eventkit queue list"
            )


def _weighted(queues: list[str] | None) -> list[tuple[str, float]] | None:
    """Parse queue names with weights, by default 1."""
    if not queues:
        return None
    found = []
    for text in queues:
        name, equals, weight = text.rpartition("=")
        try:
            found.append((name, float(weight)) if equals else (text, 1.0))
        except ValueError:
            raise Refused(f"{weight!r} is not a weight: pass, for example, --queue {name}=2") from None
    return found
