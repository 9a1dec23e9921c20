"""Several processes that share a contestant's work, a connection each."""

from time import perf_counter
from typing import Any

from ..processes import Remote
from ..rounds import Contestant


class Team:
    """A group of `Remote` objects with the interface of one; work is divided, and ends with the last part."""

    def __init__(self, factory: type[Contestant], size: int, url: str) -> None:
        self._members = [Remote(factory, url) for _ in range(size)]

    def ready(self) -> None:
        """Wait until all are ready."""
        for member in self._members:
            member.ready()

    def call(self, method: str, *arguments: Any) -> Any:
        """Call *method* in all processes, and return the result; for ``time``, how long the whole team took."""
        if method != "time":
            return self._members[0].call(method, *arguments)
        work, count, *rest = arguments
        start = perf_counter()
        for member in self._members:
            member.begin("time", work, count // len(self._members), *rest)
        for member in self._members:
            member.result()
        return perf_counter() - start

    def close(self) -> None:
        """End all processes."""
        for member in self._members:
            member.close()

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
