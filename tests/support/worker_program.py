"""A program with a worker and its functions, which write each step as a line to a file."""

import asyncio
import os
import signal
import time

import eventkit
from eventkit import Permanent, Snooze, TaskContext

URL, SAID = os.environ.get("WORK_URL"), os.environ.get("WORK_SAID", os.devnull)

app = eventkit.App(URL)


def say(line: str) -> None:
    """Write in one call, so that a line is complete or missing."""
    file = os.open(SAID, os.O_WRONLY | os.O_APPEND)
    os.write(file, f"{line}\n".encode())
    os.close(file)


@app.task
async def nap(seconds: float = 0, name: str = "nap", until: str | None = None) -> None:
    """Sleep and report it; for some seconds, or until a file exists."""
    say(f"{name} begins")
    await asyncio.sleep(seconds)
    while until is not None and not os.path.exists(until):
        await asyncio.sleep(0.01)
    say(f"{name} ends")


@app.task
def block(seconds: float = 0, name: str = "block", until: str | None = None) -> None:
    """Do the same in a thread."""
    say(f"{name} begins")
    time.sleep(seconds)
    while until is not None and not os.path.exists(until):
        time.sleep(0.01)
    say(f"{name} ends")


@app.task(on_crash="fail")
async def once(seconds: float) -> None:
    """Report a run; the task must not start twice."""
    say("once begins")
    await asyncio.sleep(seconds)


def compute(number: int, seconds: float = 0) -> int:
    """Compute in a process of its own; the module has the function, and not its declaration."""
    say(f"compute {os.getpid()}")
    time.sleep(seconds)
    return number * 2


app.task(isolation="process", queue="apart")(compute)


@app.task(isolation="process", queue="apart", timeout=0.5, max_attempts=1)
def spin(name: str = "spin") -> None:
    """Run for ever."""
    say(f"{name} {os.getpid()}")
    while True:
        pass


@app.task(isolation="process", queue="apart", max_attempts=2, backoff=[0])
def die(times: int) -> str:
    """Kill the process at the first attempts."""
    say("died")
    with open(SAID, encoding="utf-8") as file:
        if file.read().count("died") <= times:
            os.kill(os.getpid(), signal.SIGKILL)
    return "lives"


@app.task(isolation="process", queue="apart", on_crash="fail")
def die_once() -> None:
    """Kill the process at the first attempt only."""
    os._exit(7)


@app.task(isolation="process", queue="apart", max_attempts=1)
def raise_there(kind: str) -> object:
    """Fail in one way or the other."""
    if kind == "permanent":
        raise Permanent("for good")
    if kind == "snooze":
        raise Snooze(3600)
    if kind == "local":

        class LocalError(Exception):
            pass

        raise LocalError("of here alone")
    if kind == "result":
        return object()
    raise ValueError(kind)


class Declined(Exception):
    """An exception that cannot be pickled, as its class takes other arguments than its text."""

    def __init__(self, card: str, *, code: str) -> None:
        super().__init__(f"card {card} was declined")
        self.code = code


@app.task(isolation="process", queue="apart", give_up_on=Declined)
def pay_there() -> None:
    """Fail in a way that no other attempt changes."""
    raise Declined("42", code="CARD_DECLINED")


@app.task(isolation="process", queue="apart")
def settle(ctx: TaskContext) -> None:
    """Ack in a transaction with the task's effect."""
    with ctx.transaction() as tx:
        ctx.kit.stream("effects").publish(ctx.task.id, tx=tx)


if __name__ == "__main__":
    settings = {"concurrency": int(os.environ.get("WORK_CONCURRENCY", "10"))}
    settings |= {"prefetch": int(os.environ.get("WORK_PREFETCH", "0"))}
    worker = app.worker(
        **settings,
        shutdown_timeout=float(os.environ.get("WORK_TIMEOUT", "10")),
        readiness_file=os.environ.get("WORK_READY"),
        lease=float(os.environ["WORK_LEASE"]) if "WORK_LEASE" in os.environ else None,
        db_retry_initial_ms=100,
        db_retry_max_ms=500,
    )
    code = worker.run()
    say("the worker has ended")
    raise SystemExit(code)
