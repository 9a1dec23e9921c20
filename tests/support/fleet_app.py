"""The tasks that the workers of a `fleet` run; each run writes to a file when it begins and when it ends."""

import asyncio
import os
import signal
import time
from typing import Any

import eventkit
from eventkit import TaskContext
from eventkit.app import AsyncTaskContext

SAID, WORKER = os.environ.get("FLEET_SAID", os.devnull), os.environ.get("FLEET_WORKER", "")

app = eventkit.App()

often: Any = {"max_attempts": 101, "backoff": [0.1]}


def say(what: str, ctx: AsyncTaskContext | TaskContext, number: int) -> None:
    """Write in one call, so that a line is complete or missing."""
    file = os.open(SAID, os.O_WRONLY | os.O_APPEND)
    os.write(file, f"{what} {ctx.task.id} {ctx.task.attempt} {number} {WORKER}\n".encode())
    os.close(file)


@app.task(**often)
async def nap(number: int, seconds: float, ctx: AsyncTaskContext) -> None:
    """Sleep."""
    say("begun", ctx, number)
    await asyncio.sleep(seconds)
    say("ended", ctx, number)


@app.task(**often)
def block(number: int, seconds: float, ctx: TaskContext) -> None:
    """Sleep in a thread."""
    say("begun", ctx, number)
    time.sleep(seconds)
    say("ended", ctx, number)


@app.task(**often, queue="apart", isolation="process")
def compute(number: int, seconds: float, ctx: TaskContext) -> None:
    """Compute in a process of its own."""
    say("begun", ctx, number)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    say("ended", ctx, number)


@app.task(**often)
async def hold(number: int, seconds: float, ctx: AsyncTaskContext) -> None:
    """Sleep with a transaction open."""
    say("begun", ctx, number)
    async with ctx.kit.transaction():
        await asyncio.sleep(seconds)
    say("ended", ctx, number)


@app.task(max_attempts=3)
async def poison(number: int, ctx: AsyncTaskContext) -> None:
    """Kill the worker at each attempt."""
    say("begun", ctx, number)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(on_crash="fail", max_attempts=3)
async def poison_once(number: int, ctx: AsyncTaskContext) -> None:
    """Kill the worker at the first attempt only."""
    say("begun", ctx, number)
    os.kill(os.getpid(), signal.SIGKILL)
