"""Jobs of one session that take turns: each is whole in a slice, for Spark's own beginning is part of it."""

from collections.abc import Callable, Mapping
from typing import Any

from ..rounds import Contestant, Result, contest
from ..settings import Settings


class Job(Contestant):
    """Somebody who does one thing, in this process."""

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run

    def call(self, method: str, *arguments: Any) -> Any:
        """What the method returns."""
        return getattr(self, method)(*arguments)

    def run(self, count: int) -> None:
        """Do it."""
        self._run()


def compare(jobs: Mapping[str, Callable[[], object]], count: int, settings: Settings) -> Result:
    """The rates of jobs that have *count* rows each, after a turn that does not count."""
    contestants = {name: Job(run) for name, run in jobs.items()}
    return contest(contestants, "run", count, rounds=min(5, settings.rounds), slices=1)
