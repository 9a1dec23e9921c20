"""Objects in processes of their own.

Contestants never run in the measuring process: peers bring another SQLite library, state must be
fresh, and their threads would slow each other down.
"""

import contextlib
import inspect
import multiprocessing
import os
import platform
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

_spawn = multiprocessing.get_context("spawn")
_PATIENCE = 300.0


class Remote:
    """The object that *factory* creates in a new process; its methods are called by name.

    The object's ``run`` returns the result of a method that is a coroutine.
    """

    def __init__(self, factory: Callable[..., Any], *arguments: Any) -> None:
        self._pipe, theirs = _spawn.Pipe()
        self._process = _spawn.Process(target=_serve, args=(theirs, factory, arguments), daemon=True)
        self._process.start()
        theirs.close()
        self._made = False

    def ready(self) -> None:
        """Wait until the object is created, or raise its error.  Any call waits for it."""
        if not self._made:
            self._made = True
            self.result()

    def call(self, method: str, *arguments: Any) -> Any:
        """Call the method, and return its result or raise its error."""
        self.begin(method, *arguments)
        return self.result()

    def begin(self, method: str, *arguments: Any) -> None:
        """Start the method; `result` waits for it."""
        self.ready()
        self._pipe.send((method, arguments))

    def result(self) -> Any:
        """Return the result of the started method."""
        if not self._pipe.poll(_PATIENCE):
            raise TimeoutError(f"{self._process.name} has not answered for {_PATIENCE:.0f} s")
        good, answer = self._pipe.recv()
        if not good:
            raise RuntimeError(answer)
        return answer

    def end(self) -> None:
        """Let the process close the object and end."""
        with contextlib.suppress(OSError):  # It may have failed and ended.
            self._pipe.send(None)

    def close(self) -> None:
        """Close the object and end its process."""
        self.end()
        self._process.join(10)
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Processes:
    """Objects in several processes with the interface of one `Remote`; work is divided, and ends with the last part."""

    def __init__(self, number: int, factory: Callable[..., Any], *arguments: Any) -> None:
        self._remotes = [Remote(factory, *arguments) for _ in range(number)]

    def ready(self) -> None:
        """Wait until all are ready."""
        for remote in self._remotes:
            remote.ready()

    def call(self, method: str, *arguments: Any) -> Any:
        """Call *method* in the first process; for ``time``, in all, and return how long they took together."""
        if method != "time":
            return self._remotes[0].call(method, *arguments)
        work, count, *size = arguments
        start = time.perf_counter()
        self.call_all("time", work, count // len(self._remotes), *size)
        return time.perf_counter() - start

    def call_all(self, method: str, *arguments: Any) -> list[Any]:
        """Call *method* in all processes at the same time, and return the results."""
        for remote in self._remotes:
            remote.begin(method, *arguments)
        return [remote.result() for remote in self._remotes]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for remote in self._remotes:
            remote.end()
        for remote in self._remotes:
            remote.close()


@contextlib.contextmanager
def started(
    factories: Mapping[str, tuple[Callable[..., Any], ...]], peers: Collection[str] = (), number: int = 0
) -> Iterator[tuple[dict[str, Any], str]]:
    """Provide the objects of *factories*, with *number* processes each, and a note on the *peers* that do not start."""
    parties: dict[str, Remote | Processes] = {}
    missing = []
    with contextlib.ExitStack() as stack:
        for name, made in factories.items():
            parties[name] = stack.enter_context(Processes(number, *made) if number else Remote(*made))
        for name in list(parties):
            try:
                parties[name].ready()
            except RuntimeError as error:
                if name not in peers:
                    raise
                del parties[name]
                missing.append(f"{name} takes no part: {_why_not(name, error)}.")
        yield parties, " ".join(missing)


def _why_not(name: str, error: Exception) -> str:
    """Return the reason why a peer could not be started, in a few words."""
    reason = str(error).strip().splitlines()[-1].partition(" (required by")[0]
    if name == "honker" and reason.startswith("ModuleNotFoundError"):
        return (
            f"not installed; its Linux wheels need glibc 2.38, and this system has {platform.libc_ver()[1] or 'none'}"
        )
    return reason


class Process:
    """A process whose costs are measured."""

    own_threads = 1
    """The threads that the process starts, apart from those of the library."""

    def resident(self) -> float:
        """Return the resident memory in megabytes."""
        return status(os.getpid(), "VmRSS") / 1024

    def cost(self, seconds: float) -> tuple[float, int]:
        """Return the share of a core that the process uses for *seconds*, and its threads beside its own."""
        before = time.process_time(), time.monotonic()
        time.sleep(seconds)
        share = (time.process_time() - before[0]) / (time.monotonic() - before[1])
        return share, status(os.getpid(), "Threads") - self.own_threads


def status(process: int, field: str) -> int:
    """Return a number of kilobytes or of threads, including those of C; 0 for a process that has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text("utf-8").splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1])
    return 0


def _serve(pipe: Connection, factory: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        target = factory(*arguments)
        pipe.send((True, None))
        while (message := pipe.recv()) is not None:
            method, arguments = message
            answer = getattr(target, method)(*arguments)
            pipe.send((True, target.run(answer) if inspect.isawaitable(answer) else answer))
        if hasattr(target, "close"):
            target.close()
    except Exception:
        pipe.send((False, traceback.format_exc()))
