"""N1, N5: who hears what, and what it costs to listen."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

import eventkit
from eventkit import Closed, EventKit

from .clauses import proves, requires
from .threads import eventually, in_thread, rest, take


def _payloads(notifications: Any, count: int) -> list[Any]:
    """The payloads of the next *count* notifications."""
    return [notification.payload for notification in take(notifications, count)]


@proves("N1")
def test_listening_begins_with_the_call(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """What was committed before is not heard, what is committed after is, though it is read much later."""
    alerts, others = kit.channel("alerts"), connect(url)
    early = alerts.listen()
    alerts.notify("before")
    late = alerts.listen(start="now")
    for n in range(3):
        others.channel("alerts").notify(n)
    several = kit.listen("alerts")
    alerts.notify("last")
    assert _payloads(early, 5) == ["before", 0, 1, 2, "last"]
    assert _payloads(late, 4) == [0, 1, 2, "last"]
    assert _payloads(several, 1) == ["last"]
    for notifications in (early, late, several):
        notifications.close()


@proves("N1")
def test_the_first_notification_of_all_is_heard(kit: EventKit) -> None:
    """Also by one that began when there was none yet, and when all before were pruned."""
    alerts = kit.channel("alerts")
    with alerts.listen() as notifications:
        alerts.notify("first")
        assert _payloads(notifications, 1) == ["first"]
    alerts.prune(max_keep=0)
    with alerts.listen() as notifications:
        alerts.notify("second")
        assert _payloads(notifications, 1) == ["second"]


@proves("N1", "G1")
def test_an_async_listener_attaches_when_awaited_or_at_its_first_step(url: str) -> None:
    """Awaited, it hears what is sent before it is iterated; not awaited, it does not."""

    async def listen() -> None:
        async with eventkit.connect_async(url) as kit:
            alerts = kit.channel("alerts")
            awaited, several = await alerts.listen(), await kit.listen("alerts")
            unawaited = alerts.listen()
            await alerts.notify(0)
            assert [(await anext(notifications)).payload for notifications in (awaited, several)] == [0, 0]
            first = asyncio.ensure_future(anext(unawaited))
            sent = 0
            while not first.done():
                sent += 1
                await alerts.notify(sent)
                await asyncio.sleep(0.01)
            assert 1 <= (await first).payload <= sent
            for notifications in (awaited, several, unawaited):
                await notifications.aclose()

    asyncio.run(listen())


@proves("N1")
@requires("concurrent_writers")
def test_what_was_visible_before_is_not_heard(kit: EventKit) -> None:
    """Though its id lies above one that is committed later, which is heard."""
    alerts = kit.channel("alerts")
    with kit.transaction() as tx:
        early = alerts.notify("commits after", tx=tx)
        assert alerts.notify("committed before") > early
        notifications = alerts.listen()
    alerts.notify("last")
    with notifications:
        assert _payloads(notifications, 2) == ["commits after", "last"]


@proves("N1")
def test_what_was_sent_before_and_commits_after_is_heard(kit: EventKit) -> None:
    """The commit decides, not the call."""
    alerts = kit.channel("alerts")
    with kit.transaction() as tx:
        alerts.notify("sent before", tx=tx)
        notifications = in_thread(alerts.listen).result(30)
    with notifications:
        assert _payloads(notifications, 1) == ["sent before"]


@proves("N1")
def test_listening_may_start_at_the_beginning_or_after_an_id(kit: EventKit) -> None:
    """And nowhere else."""
    alerts = kit.channel("alerts")
    ids = [alerts.notify(n) for n in range(4)]
    with alerts.listen(start="earliest") as notifications:
        assert _payloads(notifications, 4) == [0, 1, 2, 3]
    with alerts.listen(start=ids[1]) as notifications:
        assert _payloads(notifications, 2) == [2, 3]
    with kit.listen("alerts", "others", start=ids[2]) as notifications:
        assert _payloads(notifications, 1) == [3]
    for start in ("sometime", -1):
        with pytest.raises(ValueError, match="start"):
            alerts.listen(start=start)


@proves("N1")
def test_every_listener_hears_everything(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """Of this kit and of others; each at its own pace."""
    kits = [kit, kit, connect(url)]
    listeners = [one.channel("alerts").listen() for one in kits]
    hearing = [in_thread(_payloads, listener, 20) for listener in listeners[1:]]
    for n in range(20):
        kit.channel("alerts").notify(n)
    assert [heard.result(30) for heard in hearing] == [list(range(20))] * 2
    assert _payloads(listeners[0], 20) == list(range(20))
    for listener in listeners:
        listener.close()


@proves("N1", "S5", "G1")
def test_a_listener_ends_when_it_or_its_kit_is_closed(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """Normally, whether it waits or not."""
    alerts = kit.channel("alerts")
    with alerts.listen() as notifications:
        alerts.notify(1)
        alerts.notify(2)
        assert _payloads(notifications, 1) == [1]
    assert rest(notifications) == []
    another = connect(url)
    reading = another.channel("alerts").listen(start="earliest")
    assert _payloads(reading, 1) == [1]
    waiting: list[Future[list[Any]]] = [in_thread(list, another.channel("alerts").listen()) for _ in range(3)]
    sleeping: Future[list[Any]] = in_thread(list, another.listen("alerts", "others"))
    time.sleep(0.1)
    another.close()
    assert [future.result(30) for future in (*waiting, sleeping)] == [[]] * 4
    assert rest(reading) == []
    with pytest.raises(Closed):
        another.channel("alerts").listen()
    assert alerts.notify(3) > 0


def _open_descriptors() -> int:
    """How many files and sockets this process has open, where the system tells; else 0."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


@proves("N5")
def test_a_hundred_idle_listeners_cost_one_watcher(kit: EventKit) -> None:
    """Beyond the callers' own threads there are as many as for one listener, and hardly more connections."""
    alerts = kit.channel("alerts")
    heard: list[Any] = []

    def hear(notifications: Any) -> None:
        for notification in notifications:
            heard.append(notification.payload)

    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name != "conformance"}

    def listen(count: int) -> None:
        before = len(heard)
        listening.extend(in_thread(hear, alerts.listen()) for _ in range(count))
        alerts.notify("hello")
        eventually(lambda: len(heard) == before + len(listening))
        time.sleep(0.2)

    listening: list[Any] = []
    listen(1)
    threads_for_one, descriptors_for_one = threads(), _open_descriptors()
    listen(99)
    assert threads() <= threads_for_one
    assert _open_descriptors() - descriptors_for_one < 50
    alerts.notify("goodbye")
    eventually(lambda: heard.count("goodbye") == 100)
    kit.close()
    for future in listening:
        future.result(30)
