"""Several processes that do a contestant's work at once, a connection each."""

from time import perf_counter
from typing import Any

from ..processes import Remote
from ..rounds import Contestant


class Team:
    """To a contest the same as one `Remote`; the work is shared out and lasts until the last one has done its part."""

    def __init__(self, factory: type[Contestant], size: int, url: str) -> None:
        self._members = [Remote(factory, url) for _ in range(size)]

    def ready(self) -> None:
        """Return when all are."""
        for member in self._members:
            member.ready()

    def call(self, method: str, *arguments: Any) -> Any:
        """What *method* returns; for ``time`` how long the whole team took."""
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
        """End all."""
        for member in self._members:
            member.close()

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
