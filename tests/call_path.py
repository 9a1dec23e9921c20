"""Print the files that a call passes through before its SQL, and how many Python calls it makes.

``python tests/call_path.py [URL …]``; without a URL, a SQLite file of its own.
"""

import asyncio
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import eventkit

ROOT = Path(eventkit.__file__).parent.parent
OURS = tuple(str(ROOT / place) + "/" for place in ("eventkit", "backends"))
LIMITS = {"publish": 6, "work → handler → ack": 8, "one task in the worker": 10, "HTTP enqueue": 9}


class Recording:
    """The files of one call, in the order in which it enters them, up to its last SQL statement."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.calls = 0
        self.entered: list[str] = []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Record a call of Python or of a driver."""
        if event == "call":
            name = frame.f_code.co_filename
            if name.startswith(OURS):
                self.calls += 1
                if name not in self.entered:
                    self.entered.append(name)
            elif "/psycopg/" in name:
                self.files = list(self.entered)
        elif event == "c_call" and type(getattr(argument, "__self__", None)).__module__ == "apsw":
            self.files = list(self.entered)


@contextmanager
def recorded() -> Iterator[Recording]:
    """Record what all threads do meanwhile."""
    path = Recording()
    threading.setprofile_all_threads(path) if sys.version_info >= (3, 12) else threading.setprofile(path)
    sys.setprofile(path)
    try:
        yield path
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        # Python 3.11 does not profile the existing thread of an asyncio connection.
        path.files = path.files or path.entered


def publish(url: str) -> Recording:
    """Publish one event."""
    with eventkit.connect(url) as kit:
        stream = kit.stream("path")
        stream.publish({"n": 1})
        with recorded() as path:
            stream.publish({"n": 2})
    return path


def work(url: str) -> Recording:
    """Take a task from a loop, handle it and ack it."""
    with eventkit.connect(url) as kit:
        queue = kit.queue("path")
        queue.enqueue_many([1, 2, 3])
        tasks = iter(queue.work(batch=1))
        for _ in range(2):
            with queue.handling(next(tasks)):
                pass
        with recorded() as path, queue.handling(next(tasks)):
            pass
        tasks.close()
    return path


def worker(url: str) -> Recording:
    """Run one task of an app in its worker, from the end of the one before, while others wait."""
    app = eventkit.AsyncApp(url)
    ran = 0
    measured: list[Recording] = []
    recording = ExitStack()

    @app.task(queue="path")
    async def note() -> None:
        nonlocal ran
        ran += 1
        if ran == 3:
            measured.append(recording.enter_context(recorded()))
        elif ran == 4:
            recording.close()
            running.stop()

    running = app.worker(concurrency=1)

    async def run() -> None:
        serving = asyncio.create_task(running.serve())
        await asyncio.sleep(0.5)  # For the first maintenance.
        await note.enqueue_many([{}] * 4)
        await serving

    asyncio.run(run())
    return measured[0]


def serve(url: str) -> Recording:
    """Enqueue a task over HTTP."""
    import httpx

    from eventkit.http import app

    async def measured() -> Recording:
        async with eventkit.connect_async(url) as kit:
            transport = httpx.ASGITransport(app(kit))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                await kit.queue("path").configure(max_attempts=3)
                await client.post("/queues/path/tasks", json={"payload": 1})
                with recorded() as path:
                    answer = await client.post("/queues/path/tasks", json={"payload": 2})
                answer.raise_for_status()
                return path

    return asyncio.run(measured())


SCENARIOS: dict[str, Callable[[str], Recording]] = dict(zip(LIMITS, (publish, work, worker, serve), strict=True))


def main() -> None:
    """Print a table for each database."""
    with tempfile.TemporaryDirectory() as folder:
        for url in sys.argv[1:] or [f"sqlite:///{folder}/path.db"]:
            print(url.partition(":")[0])
            for name, scenario in SCENARIOS.items():
                path = scenario(url)
                print(f"  {name}: {len(path.files)} files (at most {LIMITS[name]}), {path.calls} calls")
                for file in path.files:
                    print(f"    {file.removeprefix(str(ROOT) + '/')}")


if __name__ == "__main__":
    main()
