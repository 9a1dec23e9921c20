"""Objects in processes of their own.

Contestants never run in the measuring process: peers bring another SQLite library, state must be
fresh, and their threads would slow each other down.
"""

import contextlib
import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Self

_spawn = multiprocessing.get_context("spawn")
_PATIENCE = 300.0


class Remote:
    """The object that *factory* creates in a new process; its methods are called by name."""

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

    def close(self) -> None:
        """Close the object and end its process."""
        with contextlib.suppress(OSError):  # It may have failed and ended.
            self._pipe.send(None)
        self._process.join(10)
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _serve(pipe: Connection, factory: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        target = factory(*arguments)
        pipe.send((True, None))
        while (message := pipe.recv()) is not None:
            method, arguments = message
            pipe.send((True, getattr(target, method)(*arguments)))
        if hasattr(target, "close"):
            target.close()
    except Exception:
        pipe.send((False, traceback.format_exc()))
