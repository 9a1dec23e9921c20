"""The order of queues: from which of several queues a worker claims next."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self
from weakref import WeakSet

from . import checks
from .checks import Duration
from .codec import Codec
from .operations.claim import Claim, fresh_token

logger = logging.getLogger("eventkit")

APPS: WeakSet[Any] = WeakSet()
"""The applications of this process, which know the queues of their declared tasks."""


class Rota:
    """Queues that are claimed from by their weights, or one after the other if *strict*.

    A queue with twice the weight has twice as many tasks handed out, while both have any.  Each has a clock of its own,
    which runs slower the more weight it has; the one that is furthest behind is next.  A queue that was empty when its
    turn came is owed nothing later.
    """

    def __init__(self, weights: Mapping[str, float], claim: Callable[[str], Claim], strict: bool = False) -> None:
        self._weights = weights
        self._claim = claim
        self._strict = strict
        self._clocks = dict.fromkeys(weights, 0.0)

    @classmethod
    def of(
        cls,
        weights: Mapping[str, float],
        worker: str | None,
        batch: int,
        lease: Duration | None,
        codec: Codec,
        strict: bool = False,
    ) -> Self:
        """Return plain claims, of up to *batch* tasks each."""
        worker = checks.default_worker() if worker is None else checks.name("worker", worker)
        checks.count("batch", batch, least=1)
        length = None if lease is None else checks.milliseconds("lease", lease)
        for queue in weights:
            if any(app.declares(queue) for app in APPS):
                logger.warning(
                    "work() takes from queue %r, for which an App declares tasks: run eventkit worker for those, and "
                    "put plain payloads into another queue",
                    queue,
                )

        def claim(queue: str) -> Claim:
            return Claim(queue, worker, batch, length, fresh_token(), codec)

        return cls(weights, claim, strict)

    def __iter__(self) -> Iterator[Claim]:
        """Yield the claims to make, until one returns tasks."""
        names = self._weights if self._strict else sorted(self._weights, key=self._clocks.__getitem__)
        return map(self._claim, names)

    def note(self, claim: Claim, found: int) -> None:
        """Record that *claim* has returned so many tasks."""
        queue = claim.queue
        if found:
            self._clocks[queue] += found / self._weights[queue]
        else:
            self._clocks[queue] = max(self._clocks.values())
