"""``eventkit serve``: the service, for whoever speaks HTTP."""

import logging
import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventkit.logs import JSONLines, TextLines

from . import settings
from .application import load
from .options import Url
from .refusals import Failed, Refused

if TYPE_CHECKING:
    import asyncio

    from eventkit import AsyncEventKit
    from eventkit.metrics import Registry


class LogFormat(StrEnum):
    """How a line of the log is written."""

    text = "text"
    json = "json"


def serve(
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="0 is any.")] = 8888,
    worker: Annotated[
        str | None, typer.Option("--worker", metavar="MODULE:APP", help="Run the tasks of an application, too.")
    ] = None,
    scheduler: Annotated[bool, typer.Option("--scheduler", help="Fire schedules, too.")] = False,
    webhooks: Annotated[
        list[str] | None,
        typer.Option("--webhooks", metavar="QUEUE", help="Make the calls of its jobs, too; may be said several times."),
    ] = None,
    webhook_allow: Annotated[
        list[str] | None,
        typer.Option("--webhook-allow", metavar="NETWORK", help="What they may call that is not public."),
    ] = None,
    canary: Annotated[bool, typer.Option("--canary", help="Send messages through, and measure them.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Pages only show, and change nothing.")] = False,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option("--cors-origin", metavar="ORIGIN", help="Whose pages may ask from a browser; * is any."),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="How each line of the log is.")
    ] = LogFormat.text,
    url: Url = None,
) -> None:
    """Serve the database over HTTP.

    Until a signal: then whoever waits is answered, and the last answer is sent. Without any key, on
    this machine alone. Secrets are in the environment, with commas between several: webhooks are
    signed with EVENTKIT_WEBHOOK_SECRETS, requests have to be with EVENTKIT_BODY_SECRETS. What can
    be set besides is under [tool.eventkit.server].
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
        beside.append(_tasks(load(worker), settings.url(url)))
    if webhooks:
        beside.append(_calls(webhooks, webhook_allow or [], settings.url(url)))
    if canary:
        beside.append(_canary)
    _log(log_format)
    try:
        given = ({"read_only": True} if read_only else {}) | ({"cors_origins": cors_origin} if cors_origin else {})
        chosen = settings_of(settings.from_file().get("server", {}) | given)
        body_secrets = _secrets("EVENTKIT_BODY_SECRETS")
        run(
            settings.url(url),
            host=host,
            port=port,
            settings=chosen,
            body_secrets=body_secrets,
            beside=beside,
            create=False,
        )
    except ValueError as error:
        raise Refused(str(error)) from None


def _log(format: LogFormat) -> None:
    """Have what is logged on standard error; requests too where it is for programs, who can leave them out."""
    handler = logging.StreamHandler()
    if format is LogFormat.json:
        handler.setFormatter(JSONLines())
    else:
        handler.setFormatter(TextLines())
        logging.getLogger("eventkit.http.access").setLevel(logging.WARNING)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


async def _schedules(kit: "AsyncEventKit", told: "asyncio.Event", registries: "list[Registry]") -> None:
    await kit.run_scheduler()


async def _canary(kit: "AsyncEventKit", told: "asyncio.Event", registries: "list[Registry]") -> None:
    import asyncio

    from eventkit.canary import Canary

    canary = Canary(kit)
    registries.append(canary.metrics)
    singing = asyncio.ensure_future(canary.run())
    await told.wait()
    singing.cancel()


def _calls(queues: list[str], allow: list[str], url: str) -> Any:
    from eventkit import App
    from eventkit.webhooks.calling import Webhooks

    app = App(url)
    Webhooks(app, secret=_secrets("EVENTKIT_WEBHOOK_SECRETS"), allow=allow)
    return _tasks(app, url, queues=queues)


def _secrets(variable: str) -> list[str]:
    return [secret for secret in os.environ.get(variable, "").split(",") if secret]


def _tasks(app: Any, url: str, **given: Any) -> Any:
    async def work(kit: "AsyncEventKit", told: "asyncio.Event", registries: "list[Registry]") -> None:
        import asyncio

        one = app.worker(**{**settings.from_file().get("worker", {}), **given, "url": url})
        registries.append(one.metrics)
        serving = asyncio.ensure_future(one.serve())
        ending = asyncio.ensure_future(told.wait())
        await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
        one.stop()
        ending.cancel()
        await serving

    return work
