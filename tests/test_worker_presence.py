"""The list of working workers, for every kit on the database."""

import asyncio

import databases
import working
from databases import on_both
from working import until

from eventkit import App, EventKit
from eventkit.conformance import proves
from eventkit.operations.coordination import Beat
from eventkit.testing import advance

url, kit = databases.url, databases.kit


@proves("H5")
@on_both
def test_a_worker_is_known_while_it_works(kit: EventKit, url: str) -> None:
    """It is listed with its queues, slots and runs, until it has ended."""
    app, release = App(url), asyncio.Event()

    @app.task(queue="jobs")
    async def job() -> None:
        await release.wait()

    with working.working(app, concurrency=7, name="one", queues=["jobs", "others"]) as worker:
        [found] = until(kit.workers)
        assert (found.name, found.queues, found.slots, found.alive) == ("one", ["jobs", "others"], 7, True)
        assert (found.running, found.leased) == (0, 0)
        kit.queue("jobs").enqueue({"task": "job"})
        until(lambda: kit.workers()[0].leased == 1)
        assert worker._loop is not None
        worker._loop.call_soon_threadsafe(release.set)
        until(lambda: kit.queue("jobs").size() == 0)
    assert kit.workers() == []


@proves("H5")
@on_both
def test_a_worker_without_a_heartbeat_is_not_alive(kit: EventKit) -> None:
    """It is listed for an hour, and the next worker then removes it."""
    execute = kit._connection.execute  # type: ignore[attr-defined]
    execute(Beat("killed", ["jobs"], 5, 2))
    advance(kit, 29)
    assert [(one.name, one.alive) for one in kit.workers()] == [("killed", True)]
    advance(kit, 2)
    assert [(one.name, one.alive, one.slots) for one in kit.workers()] == [("killed", False, 5)]
    execute(Beat("other", ["jobs"], 1, 0))
    assert [one.name for one in kit.workers()] == ["killed", "other"]
    advance(kit, 3600)
    execute(Beat("other", ["jobs"], 1, 1))
    assert [(one.name, one.running, one.alive) for one in kit.workers()] == [("other", 1, True)]
