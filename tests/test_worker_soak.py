"""Minutes of half load under workers that are killed and a database that crashes: J5, J6, J8."""

import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fleet_app
import pytest
from clusters import Cluster
from fleet import SLOTS, accepted, drained, fleet

import eventkit
from eventkit import EventKit, Unavailable
from eventkit.conformance import proves

SECONDS = float(os.environ.get("EVENTKIT_SOAK_SECONDS", "600"))
"""The duration; sixty seconds suffice for a check."""

WORKERS, LONGEST = 3, 0.1
RATE = WORKERS * SLOTS / (LONGEST / 2) / 2
"""Tasks a second that keep half of the slots busy."""


def endure(url: str, folder: Path, fault: Callable[[EventKit], None]) -> None:
    """Enqueue at half load, kill workers all the time, and let *fault* strike the database once."""
    folder.mkdir()
    with eventkit.connect(url) as kit, fleet(url, folder, WORKERS) as workers:
        for queue in ("default", "apart"):
            kit.queue(queue).configure(keep_done=86_400)
        began = time.monotonic()
        number = kills = 0
        early = 0
        faulted = False
        kill_at = began + 5
        while (now := time.monotonic()) < began + SECONDS:
            number += enqueued(kit, number, round((now - began) * RATE) - number)
            elder, *others = workers.members
            if now >= kill_at:
                # The first worker is spared, to measure its memory.
                workers.replace(random.choice(others), gently=random.random() < 0.25)
                kills += 1
                kill_at = time.monotonic() + random.uniform(2, 8)
            if not early and now >= began + SECONDS / 4:
                early = elder.resident
            if not faulted and now >= began + SECONDS / 2:
                fault(kit)
                faulted = True
            time.sleep(0.05)
        drained(kit, "default", "apart")
        late = elder.resident
        workers.stop()
        reasons = workers.check(kit, number, lost_claims=2 * WORKERS)
    print(f"{url}: {number} tasks, {kills} workers replaced, {dict(reasons)}, memory {early} to {late}")
    assert late < early * 1.2 + 10_000_000
    assert reasons.total() > 0, "nothing was ever done twice"


def enqueued(kit: EventKit, first: int, count: int) -> int:
    """Enqueue tasks with the next numbers; return how many were accepted."""
    numbers = range(first, first + min(count, 1000))
    ahead = [(number, random.uniform(0, LONGEST)) for number in numbers]
    apart = [fleet_app.compute.new(number=n, seconds=s) for n, s in ahead if n % 100 == 0]
    blocking = [fleet_app.block.new(number=n, seconds=s) for n, s in ahead if n % 100 and n % 5 == 0]
    async_ones = [fleet_app.nap.new(number=n, seconds=s) for n, s in ahead if n % 5]
    try:
        with kit.transaction() as tx:
            kit.queue("default").enqueue_many(blocking + async_ones, tx=tx)
            kit.queue("apart").enqueue_many(apart, tx=tx)
    except Unavailable:
        return 0  # The tasks may be stored: then each number is done twice, by two tasks.
    return len(numbers)


@pytest.mark.slow
@proves("J5", "J6", "J8")
def test_workers_endure(tmp_path: Path) -> None:
    """Each task is done, each attempt runs once, memory stays stable, and no process is left at the end."""

    def crash(kit: EventKit) -> None:
        cluster.restart("immediate")
        accepted(kit.queue("default").size)

    def lock(kit: EventKit) -> None:
        with kit.transaction() as tx:
            kit.stream("other").publish("a long transaction", tx=tx)
            time.sleep(8)

    with Cluster() as cluster, ThreadPoolExecutor() as threads:
        soaks = [
            threads.submit(endure, f"sqlite:///{tmp_path}/soak.db", tmp_path / "sqlite", lock),
            threads.submit(endure, cluster.url, tmp_path / "postgres", crash),
        ]
        for soak in soaks:
            soak.result()
