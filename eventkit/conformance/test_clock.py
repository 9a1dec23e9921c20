"""The database's clock decides (G7)."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import eventkit
from eventkit import EventKit

from .clauses import proves
from .processes import spawn

_PAUSE = timedelta(seconds=0.3)
_ABOUT = timedelta(seconds=30)


@proves("G7")
def test_moments_in_a_long_transaction_are_those_of_the_calls(kit: EventKit) -> None:
    """Late in a transaction it is late: creation, delays, leases and retries count from the call."""
    stream, queue = kit.stream("t"), kit.queue("q")
    queue.configure(keep_done=1000)
    with kit.transaction() as tx:
        stream.publish("early", tx=tx)
        for payload in ("lease", "extend", "retry", "ack"):
            queue.enqueue(payload, tx=tx)
        time.sleep(_PAUSE.total_seconds())
        stream.publish("late", tx=tx)
        stream.publish_many(["late"], tx=tx)
        queue.enqueue("plain", tx=tx)
        queue.enqueue("delay", delay=100, expires=200, tx=tx)
        lease, extend, retry, ack = queue.claim("w", 4, lease=100, tx=tx)
        queue.extend(extend, 50, tx=tx)
        queue.retry(retry, delay=100, tx=tx)
        queue.ack(ack, tx=tx)
        kit.channel("c").notify("late", tx=tx)
        stream.save_offset("c", 1, tx=tx)

    early, *later = [event.created_at for event in stream.read()]
    tasks: dict[str, Any] = {info.payload: info for info in queue.list()}
    with kit.channel("c").listen(start="earliest") as notifications:
        later.append(next(notifications).created_at)
    [consumer] = stream.consumers()
    later += [
        consumer.updated_at,
        tasks["plain"].run_at,
        tasks["plain"].enqueued_at,
        tasks["delay"].run_at - timedelta(seconds=100),
        tasks["delay"].expires_at - timedelta(seconds=200),
        lease.lease_expires_at - timedelta(seconds=100),
        tasks["lease"].claimed_at,
        tasks["extend"].lease_expires_at - timedelta(seconds=50),
        tasks["retry"].run_at - timedelta(seconds=100),
        tasks["ack"].finished_at,
    ]
    for number, moment in enumerate(later):
        # A clock of milliseconds, and one that is being set right, may differ a little.
        assert early + _PAUSE * 0.9 <= moment < early + _ABOUT, f"moment {number}"


@proves("G7", "Q4", "Q17")
def test_a_workers_wrong_clock_does_not_matter(kit: EventKit, url: str, flavour: str) -> None:
    """A process whose clock is a day off writes the same moments, waits as long, and keeps its leases."""
    kit.stream("t").publish("here")
    with spawn(_work, url, flavour, "behind", -86_400) as behind, spawn(_work, url, flavour, "ahead", 86_400) as ahead:
        pass
    assert (behind.result(), ahead.result()) == ("waited", "waited")
    here, *there = kit.stream("t").read()
    now = here.created_at
    assert all(abs(event.created_at - now) < _ABOUT for event in there)
    for name in ("behind", "ahead"):
        infos: dict[str, Any] = {info.payload: info for info in kit.queue(name).list()}
        for moment in (infos["delay"].run_at, infos["expires"].expires_at, infos["leased"].lease_expires_at):
            assert abs(moment - now - timedelta(seconds=1000)) < _ABOUT
        assert infos["slow"].state == "done"
        assert infos["slow"].attempt == 1


def _work(url: str, flavour: str, name: str, shift: int) -> str:
    real = time.time
    time.time = lambda: real() + shift

    async def settled(result: Any) -> Any:
        return await result if hasattr(result, "__await__") else result

    async def main(kit: Any) -> Any:
        queue = kit.queue(name)
        await settled(queue.configure(keep_done=1000))
        await settled(kit.stream("t").publish("there"))
        await settled(queue.enqueue("delay", delay=1000))
        await settled(queue.enqueue("leased", priority=2))
        await settled(queue.enqueue("slow", priority=1))
        await settled(queue.enqueue("expires", expires=1000))
        await settled(queue.claim("w", lease=1000))
        [task] = await settled(queue.claim("w", lease=0.6))
        if flavour == "sync":
            with queue.handling(task):
                time.sleep(1)
        else:
            async with queue.handling(task):
                await asyncio.sleep(1)
        await settled(kit.queue(name + " waited").enqueue("waited", delay=0.3))
        [task] = await settled(kit.queue(name + " waited").claim("w", wait=30))
        return task.payload

    async def asynchronous() -> Any:
        async with eventkit.connect_async(url) as kit:
            return await main(kit)

    if flavour == "async":
        return str(asyncio.run(asynchronous()))
    with eventkit.connect(url) as kit:
        return str(asyncio.run(main(kit)))
