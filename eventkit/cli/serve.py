"""``eventkit serve`` and ``eventkit canary``."""

import asyncio
import logging
import os
import signal
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventkit.logs import JSONLines, TextLines

from . import console, settings
from .console import Failed, Refused
from .settings import Json, Url, duration
from .worker import load

if TYPE_CHECKING:
    import asyncio

    from eventkit import AsyncEventKit
    from eventkit.metrics import Registry


class LogFormat(StrEnum):
    """The format of log lines."""

    text = "text"
    json = "json"


def serve(
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port; 0 picks a free one.")
    ] = 8888,
    worker: Annotated[
        str | None, typer.Option("--worker", metavar="MODULE:APP", help="Also run the tasks of an application.")
    ] = None,
    scheduler: Annotated[bool, typer.Option("--scheduler", help="Also fire schedules.")] = False,
    webhooks: Annotated[
        list[str] | None,
        typer.Option("--webhooks", metavar="QUEUE", help="Also run webhook jobs of this queue; repeatable."),
    ] = None,
    webhook_allow: Annotated[
        list[str] | None,
        typer.Option("--webhook-allow", metavar="NETWORK", help="Private network that they may call."),
    ] = None,
    canary: Annotated[bool, typer.Option("--canary", help="Send canary messages and measure their latency.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Make the dashboard read-only.")] = False,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option("--cors-origin", metavar="ORIGIN", help="Origin whose pages may call the API; * is any."),
    ] = None,
    log_format: Annotated[LogFormat, typer.Option("--log-format", help="Format of log lines.")] = LogFormat.text,
    url: Url = None,
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
    """Log to stderr; JSON includes requests, as programs can filter them."""
    handler = logging.StreamHandler()
    if format is LogFormat.json:
        handler.setFormatter(JSONLines())
    else:
        handler.setFormatter(TextLines())
        logging.getLogger("eventkit.http.access").setLevel(logging.WARNING)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


async def _schedules(kit: "AsyncEventKit", stop: "asyncio.Event", registries: "list[Registry]") -> None:
    await kit.run_scheduler()


async def _canary(kit: "AsyncEventKit", stop: "asyncio.Event", registries: "list[Registry]") -> None:
    import asyncio

    from eventkit.canary import Canary

    canary = Canary(kit)
    registries.append(canary.metrics)
    running = asyncio.ensure_future(canary.run())
    await stop.wait()
    running.cancel()


def _calls(queues: list[str], allow: list[str], url: str) -> Any:
    from eventkit import App
    from eventkit.webhooks.call import Webhooks

    app = App(url)
    Webhooks(app, secret=_secrets("EVENTKIT_WEBHOOK_SECRETS"), allow=allow)
    return _tasks(app, url, queues=queues)


def _secrets(variable: str) -> list[str]:
    return [secret for secret in os.environ.get(variable, "").split(",") if secret]


def _tasks(app: Any, url: str, **given: Any) -> Any:
    async def work(kit: "AsyncEventKit", stop: "asyncio.Event", registries: "list[Registry]") -> None:
        import asyncio

        one = app.worker(**{**settings.from_file().get("worker", {}), **given, "url": url})
        registries.append(one.metrics)
        serving = asyncio.ensure_future(one.serve())
        ending = asyncio.ensure_future(stop.wait())
        await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
        one.stop()
        ending.cancel()
        await serving

    return work


def canary(
    every: Annotated[
        float | None,
        typer.Option("--every", metavar="TIME", help="Repeat at this interval, until a signal.", parser=duration),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="TIME", help="Longer latencies are failures (10s).", parser=duration)
    ] = 10.0,
    url: Url = None,
    json: Json = False,
) -> None:
    """Send a task and an event through the database, and print their latencies.

    Exit code 1 if either did not arrive.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    if not asyncio.run(_run_canary(settings.url(url), every, timeout, json)):
        raise Failed("a canary message did not arrive: run eventkit doctor")


async def _run_canary(url: str, every: float | None, timeout: float, json: bool) -> bool:
    """Return whether all messages of the last round arrived."""
    import eventkit
    from eventkit.canary import Canary

    async with eventkit.connect_async(url, create=False) as kit:
        canary = Canary(kit, timeout=timeout)
        while True:
            took = await canary.sing()
            _print(took, json)
            if every is None:
                return None not in took.values()
            await asyncio.sleep(every)


def _print(took: dict[str, float | None], json: bool) -> None:
    if json:
        console.line({f"{path}_seconds": seconds for path, seconds in took.items()})
    else:
        parts = [
            f"{path} {'failed' if seconds is None else f'{seconds * 1000:.1f} ms'}" for path, seconds in took.items()
        ]
        print("   ".join(parts), flush=True)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
