"""Workers that are stopped, and workers that are killed: J5, J6."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import databases
import pytest
import working
from databases import on_both
from working import PATIENCE, error_of, gone, program, state, until

import eventkit
from eventkit import AsyncApp, EventKit
from eventkit.conformance import proves
from eventkit.conformance.exits import EXITS, cancel_at_each_await
from eventkit.testing import advance
from eventkit.worker import Worker

url, kit = databases.url, databases.kit


@proves("J5")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_worker_gently(kit: EventKit, url: str, tmp_path: Path, number: int) -> None:
    """Running tasks are finished, claimed ones released with their attempts, and the exit code is 0."""
    queue = kit.queue("default")
    with program(url, tmp_path, concurrency="2", prefetch="2", ready=str(tmp_path / "ready")) as worker:
        until((tmp_path / "ready").exists)
        running = [
            queue.enqueue({"task": task, "args": {"until": str(tmp_path / "enough")}}, priority=1).id
            for task in ("nap", "block")
        ]
        worker.wait_for("nap begins")
        worker.wait_for("block begins")
        waiting = [queue.enqueue({"task": "nap", "args": {"name": "late"}}).id for _ in range(2)]
        until(lambda: all(state(kit, id) == "running" for id in waiting))
        worker.send(number)
        until(lambda: all(state(kit, id) == "ready" for id in waiting))
        assert {"nap ends", "block ends"}.isdisjoint(worker.lines())
        assert [info.attempt for id in waiting if (info := queue.get(id))] == [0, 0]
        (tmp_path / "enough").touch()
        assert worker.end() == 0
        assert worker.lines()[-1] == "the worker has ended"
        assert {"nap ends", "block ends"} <= {*worker.lines()}
        assert "late begins" not in worker.lines()
    assert all(gone(kit, id) for id in running)
    assert not (tmp_path / "ready").exists()


@proves("J5")
def test_what_does_not_end_in_time_is_stopped(kit: EventKit, url: str, tmp_path: Path) -> None:
    """An async task is released with its attempt; a thread cannot be stopped."""
    queue = kit.queue("default")
    with program(url, tmp_path, timeout="0.2") as worker:
        napping = queue.enqueue({"task": "nap", "args": {"seconds": 1000}}).id
        apart = kit.queue("apart").enqueue({"task": "compute", "args": {"number": 1, "seconds": 1000}}).id
        blocking = queue.enqueue({"task": "block", "args": {"seconds": 1000}}).id
        worker.wait_for("nap begins")
        worker.wait_for("block begins")
        until(lambda: any(line.startswith("compute") for line in worker.lines()))
        worker.send()
        assert worker.end() == 0
    assert state(kit, napping) == "ready"
    assert state(kit, apart, "apart") == "ready"
    info = queue.get(napping)
    assert info is not None
    assert info.attempt == 0
    assert state(kit, blocking) == "running"


@proves("J5")
def test_a_second_signal_ends_it_at_once(kit: EventKit, url: str, tmp_path: Path) -> None:
    """The leases lapse."""
    with program(url, tmp_path, timeout="1000") as worker:
        id = kit.queue("default").enqueue({"task": "nap", "args": {"seconds": 1000}}).id
        worker.wait_for("nap begins")
        worker.send()
        until(lambda: "nap ends" not in worker.lines())
        worker.send(signal.SIGINT)
        # Two signals that arrive together may be delivered in either order.
        assert worker.end() in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    assert state(kit, id) == "running"


def first_of_its_own() -> tuple[str, ...]:
    """Return a command that runs its arguments as the first process of a container, or skip the test."""
    for owner in ((), ("--user", "--map-root-user")):
        command = ("unshare", *owner, "--pid", "--fork", "--kill-child")
        if shutil.which("unshare") and subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            return command
    pytest.skip("this user may not have a process be the first one")


@proves("J5")
@pytest.mark.parametrize("gently", [True, False])
def test_the_first_process_of_a_container_ends_like_any_other(
    kit: EventKit, url: str, tmp_path: Path, gently: bool
) -> None:
    """Such a process ignores a signal without a handler."""
    enough = tmp_path / "enough"
    with program(url, tmp_path, first_of_its_own(), timeout="1000") as worker:
        id = kit.queue("default").enqueue({"task": "nap", "args": {"until": str(enough)}}).id
        worker.wait_for("nap begins")
        [pid] = Path(f"/proc/{worker.process.pid}/task/{worker.process.pid}/children").read_text("utf-8").split()
        assert Path(f"/proc/{pid}/status").read_text("utf-8").partition("NSpid:")[2].split()[1] == "1"
        os.kill(int(pid), signal.SIGTERM)
        if gently:
            enough.touch()
        else:
            while worker.process.poll() is None:
                os.kill(int(pid), signal.SIGTERM)
                time.sleep(0.05)
        assert worker.end() == (0 if gently else 128 + signal.SIGTERM)
    assert state(kit, id) == ("gone" if gently else "running")


SIGNALLED_TWICE = """
import logging, os, signal, sys
import eventkit

class Sender(logging.Handler):
    def emit(self, record):
        print(record.getMessage(), flush=True)
        if "has begun" in record.getMessage() or "has ended" in record.getMessage():
            os.kill(os.getpid(), signal.SIGTERM)

logging.basicConfig(level=logging.INFO, handlers=[Sender()])
eventkit.App(sys.argv[1]).worker(queues="default").run()
"""


@proves("J5")
def test_a_second_signal_after_the_end_has_no_effect(url: str) -> None:
    """The worker has already ended with exit code 0."""
    command = [sys.executable, "-c", SIGNALLED_TWICE, url]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=working.PATIENCE)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[-1].endswith("has ended")


@proves("J6")
@on_both
def test_what_a_killed_worker_ran_is_done_once_more(kit: EventKit, url: str, tmp_path: Path) -> None:
    """Another worker runs it when the lease has lapsed, except a task that must not run twice."""
    queue = kit.queue("default")
    enough = str(tmp_path / "enough")
    with program(url, tmp_path) as worker:
        again = queue.enqueue({"task": "nap", "args": {"until": enough}}).id
        never = queue.enqueue({"task": "once", "args": {"seconds": 1000}}).id
        worker.wait_for("nap begins")
        worker.wait_for("once begins")
        worker.send(signal.SIGKILL)
        worker.end()
        (tmp_path / "enough").touch()
        until(lambda: state(kit, again) == state(kit, never) == "running")
        advance(kit, 600)
        with program(url, tmp_path) as other:
            assert error_of(kit, never).startswith("CRASHED")
            until(lambda: gone(kit, again))
            assert other.lines().count("nap begins") == 2
            assert other.lines().count("once begins") == 1
            other.send()
            assert other.end() == 0


@proves("J5")
@EXITS
@on_both
def test_an_ending_is_not_cut_short_by_a_cancellation(url: str, again: bool) -> None:
    """A worker that is cancelled while it stops has stored the outcome of its tasks and closed its kit."""

    async def main() -> None:
        async with eventkit.connect_async(url) as kit:
            queue = kit.queue("default")

            def running() -> int:
                lasting = ("asyncio", "eventkit-watcher")  # threads of the event loop and of a file's kits
                threads = [thread for thread in threading.enumerate() if not thread.name.startswith(lasting)]
                return len(threads) + len(asyncio.all_tasks())

            before = running()

            async def leave(leaving: asyncio.Event) -> None:
                app = AsyncApp(url)

                @app.task
                async def last() -> None:
                    leaving.set()
                    worker.stop()

                worker = Worker(app)
                await queue.enqueue({"task": "last"})
                await worker.serve()

            async def check() -> None:
                async with asyncio.timeout(PATIENCE):
                    while running() > before:
                        await asyncio.sleep(0.001)
                assert await queue.size() == 0

            await cancel_at_each_await(leave, again, check)

    asyncio.run(main())
