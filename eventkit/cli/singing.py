"""``eventkit canary``: whether messages come through."""

import asyncio
import signal
from typing import Annotated

import typer

from . import settings, show
from .options import Json, Url
from .refusals import Failed
from .values import duration


def canary(
    every: Annotated[
        float | None,
        typer.Option("--every", metavar="TIME", help="Again and again, until a signal.", parser=duration),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="TIME", help="What takes longer has failed (10s).", parser=duration)
    ] = 10.0,
    url: Url = None,
    json: Json = False,
) -> None:
    """Send a task and an event through the database, and say how long they took.

    The exit code is 1 if either has not come.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    if not asyncio.run(_sing(settings.url(url), every, timeout, json)):
        raise Failed("a message has not come through: eventkit doctor looks for the reason")


async def _sing(url: str, every: float | None, timeout: float, json: bool) -> bool:
    """Whether the last round was well."""
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
        show.line({f"{path}_seconds": seconds for path, seconds in took.items()})
    else:
        parts = [
            f"{path} {'failed' if seconds is None else f'{seconds * 1000:.1f} ms'}" for path, seconds in took.items()
        ]
        print("   ".join(parts), flush=True)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
