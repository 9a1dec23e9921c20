"""``eventkit worker``, ``scheduler``, ``serve`` and ``canary``, and the import of ``MODULE:APP``."""

import asyncio
import importlib
import logging
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack

import eventkit

from ..errors import NotMigrated, Unavailable
from ..metrics import Registry
from ..protocols import AsyncEventKit
from . import settings
from .output import Failed, Refused, Result, cell, encoded, listing, start_logging
from .settings import Json, Url, argument, command, flag, group, opened, option, period

if TYPE_CHECKING:
    from eventkit.app import Application

commands = group()

LogJson = Annotated[bool, flag("Log as JSON, one object per line.", "--json")]


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
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise Refused(f"there is no module {error.name!r}: run the command in your project's folder") from None
        library = os.path.dirname(os.path.dirname(__file__)) + os.sep
        frames = traceback.extract_tb(error.__traceback__)
        place = next((frame for frame in reversed(frames) if not frame.filename.startswith(library)), frames[-1])
        where = f"{place.filename}, line {place.lineno}"
        if isinstance(error, SyntaxError):
            where = f"{error.filename}, line {error.lineno}"
        raise Refused(f"cannot import {name}: {type(error).__name__}: {error} ({where})") from error


class WorkerOptions(TypedDict, total=False):
    """The settings of a worker."""

    queue: Annotated[list[str] | None, option("QUEUE[=WEIGHT]", "Only this queue; repeatable.", "--queue", "-q")]
    concurrency: Annotated[int | None, option("N", "Maximum number of running tasks (20).")]
    prefetch: Annotated[int | None, option("N", "Tasks claimed in advance (0).")]
    max_claim: Annotated[int | None, option("N", "Maximum number of tasks in one claim (1000).")]
    until_empty: Annotated[
        bool | None,
        option(None, "Exit once no task is ready, due or running.", "--until-empty", show_default=False),
    ]
    processes: Annotated[int | None, option("N", "Child processes for tasks that need one.")]
    lease: Annotated[float | None, period("How long a claim is valid until it is extended.")]
    shutdown_timeout: Annotated[float | None, period("Time for running tasks to finish (30s).")]
    db_retry_initial_ms: Annotated[int | None, option("N", "First pause when the database is unavailable (500).")]
    db_retry_max_ms: Annotated[int | None, option("N", "Longest such pause (30000).")]
    db_retry_max_attempts: Annotated[int | None, option("N", "Attempts before it gives up (0: never).")]
    notify_poll_interval_ms: Annotated[int | None, option("N", "Poll interval without notifications (5000).")]
    name: Annotated[str | None, option("NAME", "Name of the worker in the database.")]
    readiness_file: Annotated[str | None, option("FILE", "Exists while it is ready.")]


for setting, annotation in WorkerOptions.__annotations__.items():
    annotation.__metadata__[0].envvar = f"EVENTKIT_{setting.upper()}"
    annotation.__metadata__[0].show_envvar = False


@command(commands)
def worker(
    app: Annotated[str, argument("MODULE:APP", "For example shop.tasks:app.")],
    url: Url = None,
    json: LogJson = False,
    **given: Unpack[WorkerOptions],
) -> None:
    """Run the tasks of an application.

    At a signal the worker finishes running tasks and releases waiting ones; a second signal stops it
    at once. Options can also be set in the environment (EVENTKIT_CONCURRENCY) or under
    [tool.eventkit.worker] (concurrency).
    """
    _interrupt_on(signal.SIGTERM, signal.SIGINT)
    file = settings.from_file()
    address = url or file.get("url")
    chosen: dict[str, Any] = {**file.get("worker", {}), **given}
    queues = [_weighted(text) for text in given.get("queue") or ()]
    if chosen.pop("queue", None):
        chosen["queues"] = queues
    if address is not None:
        chosen["url"] = address
    start_logging(json, sys.stdout if json else sys.stderr)
    code = 0
    with suppress(KeyboardInterrupt):  # A signal arrived before the worker ran.
        declared = load(app)
        if declared.url is None and declared.bound is None:
            settings.url(url)
        _check([name for name, _ in queues if name not in declared.queues], address or declared.url)
        code = declared.worker(**chosen).run()
    if code:  # Functions that still run would keep the process.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@command(commands)
def scheduler(
    url: Url = None,
    json: LogJson = False,
    dry_run: Annotated[bool, flag("Print the fires that are due now, change nothing, and end.", "--dry-run")] = False,
) -> None:
    """Fire due schedules, until a signal.

    Any number of processes may run it: each fire enqueues one task.
    """
    if dry_run:
        _due(url).show(json)
        return
    _interrupt_on(signal.SIGTERM, signal.SIGINT)
    start_logging(json, sys.stdout if json else sys.stderr)
    with suppress(KeyboardInterrupt), opened(url) as kit:
        logging.getLogger("eventkit.loops").info("scheduler started; next fire at %s", kit.schedules.soonest())
        kit.run_scheduler()


def _due(url: str | None) -> Result:
    """Return the fires that a tick would make, from one that is rolled back."""
    fires: list[Any] = []
    with opened(url) as kit:
        with suppress(_Undo), kit.transaction() as tx:
            fires = kit.schedules.tick(tx=tx)
            raise _Undo
        rows = [{"schedule": fire.schedule, "queue": fire.queue, "at": fire.moment} for fire in fires]
        soonest = kit.schedules.soonest()
    later = "none fires later" if soonest is None else f"the next fire is at {cell(soonest)}"
    return listing(rows, ("schedule", "queue", "at"), f"no schedule is due; {later}")


class _Undo(Exception):
    """Raised to roll back a transaction."""


def _interrupt_on(*signals: int) -> None:
    """Raise KeyboardInterrupt on these signals, even if the parent process ignored them."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    for number in signals:
        signal.signal(number, interrupt)


def _check(queues: Sequence[str], address: str | None) -> None:
    """Raise `Failed` for a queue that neither the app declares nor the database knows."""
    known: Any = ()
    try:
        if queues:
            with opened(address) as kit:
                known = kit.overview().queues
    except NotMigrated:
        pass  # The worker creates the tables; there is no queue yet.
    except Unavailable:
        return  # The worker waits for its database.
    for name in queues:
        if name not in known:
            raise Failed(f"queue {name!r} has no task in the app, and is not in the database: see eventkit queue list")


def _weighted(text: str) -> tuple[str, float]:
    """Parse a queue with a weight, by default 1."""
    name, equals, weight = text.rpartition("=")
    try:
        return (name, float(weight)) if equals else (text, 1.0)
    except ValueError:
        raise Refused(f"{weight!r} is not a weight: pass, for example, --queue {name}=2") from None


@command(commands)
def serve(
    address: str,
    host: Annotated[str, option("ADDRESS", "Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option("PORT", "Port; 0 picks a free one.", min=0, max=65535)] = 8888,
    worker: Annotated[str | None, option("MODULE:APP", "Also run the tasks of an application.")] = None,
    scheduler: Annotated[bool, flag("Also fire schedules.", "--scheduler")] = False,
    webhooks: Annotated[list[str] | None, option("QUEUE", "Also call the webhooks of this queue; repeatable.")] = None,
    webhook_allow: Annotated[list[str] | None, option("NETWORK", "Private network that they may call.")] = None,
    canary: Annotated[bool, flag("Send canary tasks and events, and measure their latency.", "--canary")] = False,
    read_only: Annotated[bool, flag("Make the dashboard read-only.", "--read-only")] = False,
    cors_origin: Annotated[list[str] | None, option("ORIGIN", "Origin whose pages may call the API; * is any.")] = None,
    log_format: Annotated[Literal["text", "json"], option(None, "Format of log lines.")] = "text",
) -> None:
    """Serve the database over HTTP.

    It stops at a signal, after it has answered all requests. Without keys it accepts only local
    connections. Secrets are in the environment, several separated by commas:
    EVENTKIT_WEBHOOK_SECRETS sign webhooks, EVENTKIT_BODY_SECRETS verify the bodies of requests.
    Further settings are under [tool.eventkit.server].
    """
    try:
        from eventkit.http import serve as run
        from eventkit.http import settings_of
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("jinja2", "litestar", "uvicorn", "uvloop", "httptools"):
            raise
        raise Failed("the service is not installed: pip install 'eventkit-db[server]'") from None
    beside: list[Any] = []
    if scheduler:
        beside.append(_schedules)
    if worker is not None:
        beside.append(_tasks(load(worker), address))
    if webhooks:
        from eventkit.webhooks.call import Webhooks

        app = eventkit.App(address)
        Webhooks(app, secret=_secrets("EVENTKIT_WEBHOOK_SECRETS"), allow=webhook_allow or ())
        beside.append(_tasks(app, address, queues=webhooks))
    if canary:
        beside.append(_canary)
    start_logging(log_format == "json", sys.stderr)
    if log_format == "text":  # Programs that read JSON can filter requests.
        logging.getLogger("eventkit.http.access").setLevel(logging.WARNING)
    given = ({"read_only": True} if read_only else {}) | ({"cors_origins": cors_origin} if cors_origin else {})
    chosen = settings_of(settings.from_file().get("server", {}) | given)
    body_secrets = _secrets("EVENTKIT_BODY_SECRETS")
    run(address, host=host, port=port, settings=chosen, body_secrets=body_secrets, beside=beside, create=False)


async def _schedules(kit: AsyncEventKit, stop: asyncio.Event, registries: list[Registry]) -> None:
    await kit.run_scheduler()


async def _canary(kit: AsyncEventKit, stop: asyncio.Event, registries: list[Registry]) -> None:
    from eventkit.canary import Canary

    canary = Canary(kit)
    registries.append(canary.metrics)
    running = asyncio.ensure_future(canary.run())
    await stop.wait()
    running.cancel()


def _secrets(variable: str) -> list[str]:
    return [secret for secret in os.environ.get(variable, "").split(",") if secret]


def _tasks(app: Any, address: str, **given: Any) -> Any:
    async def work(kit: AsyncEventKit, stop: asyncio.Event, registries: list[Registry]) -> None:
        one = app.worker(**{**settings.from_file().get("worker", {}), **given, "url": address})
        registries.append(one.metrics)
        serving = asyncio.ensure_future(one.serve())
        ending = asyncio.ensure_future(stop.wait())
        await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
        one.stop()
        ending.cancel()
        await serving

    return work


@command(commands)
def canary(
    address: str,
    every: Annotated[float | None, period("Repeat at this interval, until a signal.")] = None,
    timeout: Annotated[float, period("Longer latencies are failures (10s).")] = 10.0,
    json: Json = False,
) -> None:
    """Send a task and an event through the database, and print their latencies.

    Exit code 1 if either did not arrive.
    """
    _interrupt_on(signal.SIGTERM)  # asyncio interrupts on SIGINT.
    if not asyncio.run(_arrive(address, every, timeout, json)):
        raise Failed("a canary task or event did not arrive: run eventkit doctor")


async def _arrive(address: str, every: float | None, timeout: float, json: bool) -> bool:
    """Return whether all of the last round arrived."""
    from eventkit.canary import Canary

    async with eventkit.connect_async(address, create=False) as kit:
        canary = Canary(kit, timeout=timeout)
        while True:
            took = await canary.measure()
            if json:
                print(encoded({f"{path}_seconds": seconds for path, seconds in took.items()}), flush=True)
            else:
                found = (f"{path} {'failed' if one is None else f'{one * 1000:.1f} ms'}" for path, one in took.items())
                print("   ".join(found), flush=True)
            if every is None:
                return None not in took.values()
            await asyncio.sleep(every)
