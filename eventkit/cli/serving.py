"""``eventkit serve``: the service, for whoever speaks HTTP."""

import logging
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import settings
from .application import load
from .options import Url
from .refusals import Failed, Refused

if TYPE_CHECKING:
    import asyncio

    from eventkit import AsyncEventKit


def serve(
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="0 is any.")] = 8888,
    worker: Annotated[
        str | None, typer.Option("--worker", metavar="MODULE:APP", help="Run the tasks of an application, too.")
    ] = None,
    scheduler: Annotated[bool, typer.Option("--scheduler", help="Fire schedules, too.")] = False,
    url: Url = None,
) -> None:
    """Serve the database over HTTP.

    Until a signal: then whoever waits is answered, and the last answer is sent. Without any key, on
    this machine alone.
    """
    try:
        from eventkit.http import serve as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("litestar", "uvicorn", "uvloop", "httptools"):
            raise
        raise Failed("the service is not installed: pip install 'eventkit[server]'") from None
    beside: list[Any] = []
    if scheduler:
        beside.append(_schedules)
    if worker is not None:
        beside.append(_tasks(worker, settings.url(url)))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s  %(message)s")
    try:
        run(settings.url(url), host=host, port=port, beside=beside, create=False)
    except ValueError as error:
        raise Refused(str(error)) from None


async def _schedules(kit: "AsyncEventKit", told: "asyncio.Event") -> None:
    await kit.run_scheduler()


def _tasks(name: str, url: str) -> Any:
    async def work(kit: "AsyncEventKit", told: "asyncio.Event") -> None:
        import asyncio

        one = load(name).worker(**{**settings.from_file().get("worker", {}), "url": url})
        serving = asyncio.ensure_future(one.serve())
        ending = asyncio.ensure_future(told.wait())
        await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
        one.stop()
        ending.cancel()
        await serving

    return work
