"""`Watch`: what there is in the database, looked at from time to time, for metrics and for the dashboard.

However many pages are open and however often metrics are read, the database is asked once in two seconds at most.  What
was seen lately is remembered, in this process, for the lines that a page draws.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic, time
from typing import Any, NamedTuple

from ..errors import Unavailable
from ..looks import WorkerInfo
from ..operations.browse import CountDeaths, Deaths
from ..operations.overview import ReadOverview
from ..operations.worker import ListWorkers
from ..stats import Overview

FRESH = 2.0
"""Seconds for which what was seen is good enough."""

EVERY = 5.0
"""Seconds between two looks where nobody asks for one."""

KEPT = 120
"""How many looks are remembered: ten minutes."""

NAMES = 200
"""Of how many queues and topics they are."""

_SETTLING = 5_000
"""Milliseconds after which a death is sure to be committed, and is counted."""


class Sample(NamedTuple):
    """What was seen, and when: as seconds since 1970, and as the number of the look."""

    number: int
    moment: float
    overview: Overview
    workers: list[WorkerInfo]


class Point(NamedTuple):
    """What is remembered of a look: of each queue what is ready and what is dead, of each topic the greatest lag."""

    moment: float
    ready: dict[str, int]
    dead: dict[str, int]
    lag: dict[str, int]
    totals: dict[str, int]


class Watch:
    """Looks by *execute*, and has *show* told what was seen."""

    def __init__(
        self,
        execute: Callable[[Any], Awaitable[Any]],
        show: Callable[[Overview, list[WorkerInfo], list[Deaths]], None],
    ) -> None:
        self._execute = execute
        self._show = show
        self._lock = asyncio.Lock()
        self._sample: Sample | None = None
        self._looked = 0.0
        self._counted: int | None = None
        self.points: deque[Point] = deque(maxlen=KEPT)

    async def look(self) -> Sample:
        """What there is, as it was within the last two seconds."""
        if self._sample is None or monotonic() - self._looked > FRESH:
            async with self._lock:
                if self._sample is None or monotonic() - self._looked > FRESH:
                    self._sample = await self._seen()
                    self._looked = monotonic()
        return self._sample

    def forget(self) -> None:
        """Have the next look be into the database, however short a time ago the last one was."""
        self._looked = float("-inf")

    async def run(self) -> None:
        """Look every five seconds, so that there is something to remember when somebody comes to see it."""
        while True:
            with suppress(Unavailable):  # Whoever asks is told; here there is nobody to tell.
                await self.look()
            await asyncio.sleep(EVERY)

    async def _seen(self) -> Sample:
        overview, workers = await self._execute(ReadOverview()), await self._execute(ListWorkers())
        self._counted, deaths = await self._execute(CountDeaths(self._counted, _SETTLING))
        self._show(overview, workers, deaths)
        number = 0 if self._sample is None else self._sample.number + 1
        sample = Sample(number, time(), overview, workers)
        if not self.points or sample.moment - self.points[-1].moment >= EVERY - 1:
            self.points.append(_point(sample))
        return sample


def _point(sample: Sample) -> Point:
    queues = list(sample.overview.queues.items())
    topics = list(sample.overview.topics.items())
    totals = {
        state: sum(getattr(queue, state) for _, queue in queues) for state in ("ready", "leased", "scheduled", "dead")
    }
    lag = {name: max((consumer.lag for consumer in topic.consumers), default=0) for name, topic in topics}
    totals["lag"] = max(lag.values(), default=0)
    totals["running"] = sum(worker.running or 0 for worker in sample.workers if worker.alive)
    return Point(
        sample.moment,
        {name: queue.ready for name, queue in queues[:NAMES]},
        {name: queue.dead for name, queue in queues[:NAMES]},
        dict(list(lag.items())[:NAMES]),
        totals,
    )
