"""Jobs of one session that take turns, each complete in a slice, because Spark's startup is part of it."""

from collections.abc import Callable, Mapping
from typing import Any

from ..rounds import Contestant, Result, contest
from ..settings import Settings


class Job(Contestant):
    """A contestant that does one job in this process."""

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run

    def call(self, method: str, *arguments: Any) -> Any:
        """Call the method, and return its result."""
        return getattr(self, method)(*arguments)

    def run(self, count: int) -> None:
        """Run the job."""
        self._run()


def compare(jobs: Mapping[str, Callable[[], object]], count: int, settings: Settings) -> Result:
    """Return the rates of jobs that have *count* rows each, after a warm-up turn."""
    contestants = {name: Job(run) for name, run in jobs.items()}
    return contest(contestants, "run", count, rounds=min(5, settings.rounds), slices=1)
