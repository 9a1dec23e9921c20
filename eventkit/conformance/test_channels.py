"""Channels: notifying and listening."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import eventkit
from eventkit import Closed, EventKit, Notification
from eventkit.codec import Undecodable
from eventkit.testing import advance
from eventkit.values import ChannelInfo

from .clauses import one_flavour, proves, requires
from .processes import spawn
from .streaming import END, go, send_in_transactions, until_end
from .threads import eventually, in_thread, rest, rolled_back, take


@dataclass
class _Point:
    x: int


def _payloads(notifications: Any, count: int) -> list[Any]:
    """Return the payloads of the next *count* notifications."""
    return [notification.payload for notification in take(notifications, count)]


@proves("N1", "G11")
def test_a_notification_arrives_as_it_was_sent(kit: EventKit) -> None:
    """It has its id, channel, payload, headers and time."""
    alerts = kit.channel("alerts")
    with alerts.listen() as notifications:
        id = alerts.notify({"level": 3}, headers={"h": "1"})
        alerts.notify(None)
        notification, bare = take(notifications, 2)
    assert isinstance(notification, Notification)
    assert (notification.id, notification.channel) == (id, "alerts")
    assert (notification.payload, notification.headers) == ({"level": 3}, {"h": "1"})
    assert notification.created_at.utcoffset() == timedelta(0)
    assert abs(notification.created_at - datetime.now(UTC)) < timedelta(minutes=1)
    assert (bare.payload, bare.headers) == (None, {})


@proves("N2")
def test_equal_payloads_arrive_each(kit: EventKit) -> None:
    """Equal payloads of one transaction arrive each, too."""
    alerts = kit.channel("alerts")
    with alerts.listen() as notifications:
        with kit.transaction() as tx:
            ids = [alerts.notify("again", tx=tx) for _ in range(2)]
        ids.append(alerts.notify("again"))
        received = take(notifications, 3)
    assert [notification.payload for notification in received] == ["again"] * 3
    assert [notification.id for notification in received] == ids == sorted(set(ids))


@proves("N2")
@one_flavour
def test_more_than_can_be_read_at_once_arrives_in_order(kit: EventKit) -> None:
    """Thousands of notifications from one transaction arrive in order."""
    alerts = kit.channel("alerts")
    with alerts.listen() as notifications:
        with kit.transaction() as tx:
            ids = [alerts.notify(n, tx=tx) for n in range(2500)]
        received = take(notifications, 2500)
    assert [notification.payload for notification in received] == list(range(2500))
    assert [notification.id for notification in received] == ids


@proves("N3")
def test_a_rolled_back_notification_is_never_seen(kit: EventKit) -> None:
    """Neither a current listener nor one that starts at the beginning sees it."""
    alerts = kit.channel("alerts")
    with alerts.listen() as notifications:
        with rolled_back(kit) as tx:
            alerts.notify("undone", tx=tx)
        alerts.notify("done")
        assert _payloads(notifications, 1) == ["done"]
    with alerts.listen(start="earliest") as notifications:
        assert _payloads(notifications, 1) == ["done"]


@proves("N3", "N2")
def test_several_channels_are_one_sequence(kit: EventKit) -> None:
    """Notifications arrive in the order of their ids; channels that were not named are left out."""
    a, b, c = (kit.channel(name) for name in "abc")
    a.notify("before")
    with kit.listen("a", "b") as notifications:
        sent = [channel.notify(n) for n in range(3) for channel in (a, c, b)]
        received = take(notifications, 6)
    assert [notification.channel for notification in received] == ["a", "b"] * 3
    assert [notification.payload for notification in received] == [0, 0, 1, 1, 2, 2]
    assert [notification.id for notification in received] == [id for n, id in enumerate(sent) if n % 3 != 1]
    with kit.listen("b", "a", start="earliest") as notifications:
        assert _payloads(notifications, 3) == ["before", 0, 0]
    with pytest.raises(ValueError, match="channel"):
        kit.listen()


@proves("N2", "S2")
def test_notifications_of_racing_senders_arrive_in_order(kit: EventKit, url: str, flavour: str) -> None:
    """A listener gets the committed notifications of several processes once each, in the order of their ids."""
    raced = kit.channel("raced")
    live = raced.listen()
    listening = in_thread(until_end, live)
    processes = [spawn(send_in_transactions, url, flavour, "channel", writer, 60) for writer in range(3)]
    go(kit)
    committed = [process.result() for process in processes]
    raced.notify(END)
    received = listening.result(60)
    live.close()
    assert [notification.id for notification in received] == sorted({notification.id for notification in received})
    for writer, sent in enumerate(committed):
        assert [n.payload for n in received if n.payload[0] == writer] == sent
    with raced.listen(start="earliest") as notifications:
        assert until_end(notifications) == received


def _left(kit: Any, name: str) -> list[Any]:
    """Return the payloads of the channel that are still stored."""
    kit.channel(name).notify(END)
    with kit.channel(name).listen(start="earliest") as notifications:
        return [notification.payload for notification in until_end(notifications)]


RETENTIONS: list[tuple[dict[str, Any], range]] = [
    ({"older_than": 75}, range(4, 10)),
    ({"older_than": 1000}, range(10)),
    ({"keep_count": 4}, range(6, 10)),
    ({"keep_count": 10}, range(10)),
    ({"keep_count": 11}, range(10)),
    ({"keep_count": 0}, range(0)),
    ({"older_than": 75, "keep_count": 8}, range(4, 10)),
    ({"older_than": 75, "keep_count": 2}, range(8, 10)),
    ({"older_than": 1000, "keep_count": 100}, range(10)),
]
"""Retentions, and what each leaves of ten numbers: the first four are 100 seconds old, the others less than 75."""


@proves("N4")
@one_flavour
def test_prune_drops_old_notifications_and_too_many(kit: EventKit) -> None:
    """Two limits together drop what either drops; the answer is the number dropped; other channels are unchanged."""
    names = [f"channel {number}" for number in range(len(RETENTIONS))]
    for numbers, seconds in ((range(4), 100), (range(4, 10), 0)):
        for name in (*names, "others"):
            for n in numbers:
                kit.channel(name).notify(n)
        advance(kit, seconds)
    for name, (retention, left) in zip(names, RETENTIONS, strict=True):
        assert kit.channel(name).prune(**retention) == 10 - len(left), retention
        assert kit.channel(name).prune(**retention) == 0, retention
        assert _left(kit, name) == list(left), retention
    assert _left(kit, "others") == list(range(10))


@proves("N6")
@one_flavour
def test_channels_are_listed_with_their_heads(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """A channel is listed with its last committed notification, while it has any or has settings."""
    alerts, deploys = kit.channel("alerts"), kit.channel("deploys")
    assert (kit.channels(), alerts.head()) == ([], 0)
    ids = [alerts.notify(n) for n in range(3)]
    last = deploys.notify("v2")
    kit.channel("quiet").configure(keep=60)
    with rolled_back(kit) as tx:
        alerts.notify("undone", tx=tx)
        assert connect(url).channel("alerts").head() == ids[-1]
    assert (alerts.head(), deploys.head()) == (ids[-1], last)
    assert kit.channels() == [
        ChannelInfo("alerts", ids[-1], 3),
        ChannelInfo("deploys", last, 1),
        ChannelInfo("quiet", 0, 0),
    ]
    with alerts.listen(start=alerts.head()) as notifications:
        alerts.notify("next")
        assert _payloads(notifications, 1) == ["next"]
    assert kit.prune_channels(keep_count=1) == 3
    assert [channel.notifications for channel in kit.channels()] == [1, 1, 0]
    assert _left(kit, "alerts") == ["next"]
    with pytest.raises(ValueError, match="keep_count"):
        kit.prune_channels()


@proves("N6", "N2")
@one_flavour
@requires("concurrent_writers")
def test_a_head_is_below_an_open_transaction(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    alerts = kit.channel("alerts")
    first = alerts.notify("first")
    with kit.transaction() as tx:
        alerts.notify("open", tx=tx)
        last = connect(url).channel("alerts").notify("later")
        assert (alerts.head(), kit.channels()[0].head) == (first, first)
    assert (alerts.head(), kit.channels()[0].head) == (last, last)


@proves("N4")
def test_prune_of_a_channel_requires_a_limit(kit: EventKit) -> None:
    """Missing or invalid limits are an error."""
    alerts = kit.channel("alerts")
    alerts.notify(1)
    for arguments in ({}, {"keep_count": -1}, {"older_than": -1}):
        with pytest.raises(ValueError):  # noqa: PT011 - any of several arguments
            alerts.prune(**arguments)
    assert _left(kit, "alerts") == [1]


@proves("N4")
def test_a_slow_listener_goes_on_with_what_is_left(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """The listener gets no error, however many notifications were pruned before it read them."""
    alerts = connect(url).channel("alerts")
    with kit.channel("alerts").listen() as notifications:
        alerts.notify("first")
        assert _payloads(notifications, 1) == ["first"]
        for n in range(10):
            alerts.notify(n)
        assert alerts.prune(keep_count=2) == 9
        assert _payloads(notifications, 2) == [8, 9]
        alerts.prune(keep_count=0)
        coming = in_thread(_payloads, notifications, 1)
        alerts.notify("last")
        assert coming.result(30) == ["last"]


@proves("G9", "N1")
def test_a_notification_that_does_not_decode_is_delivered_and_passed(kit: EventKit) -> None:
    """Its payload is an `Undecodable`; the notifications around it arrive as usual."""
    typed, raw = kit.channel("points", type=_Point), kit.channel("points")
    with typed.listen() as notifications:
        typed.notify(_Point(1))
        raw.notify("no point", headers={"h": "1"})
        typed.notify(_Point(3))
        first, second, third = take(notifications, 3)
    assert (first.payload, third.payload) == (_Point(1), _Point(3))
    assert isinstance(second.payload, Undecodable)
    assert (second.payload.text, second.headers) == ('"no point"', {"h": "1"})
    assert second.payload.error


@proves("N1")
def test_listening_begins_with_the_call(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """A listener gets only notifications that were committed after the call, however late it reads."""
    alerts, others = kit.channel("alerts"), connect(url)
    early = alerts.listen()
    alerts.notify("before")
    late = alerts.listen(start="latest")
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
def test_a_listener_receives_the_first_notification_of_all(kit: EventKit) -> None:
    """A listener that began before the first notification, or after all were pruned, hears the next one."""
    alerts = kit.channel("alerts")
    with alerts.listen() as notifications:
        alerts.notify("first")
        assert _payloads(notifications, 1) == ["first"]
    alerts.prune(keep_count=0)
    with alerts.listen() as notifications:
        alerts.notify("second")
        assert _payloads(notifications, 1) == ["second"]


@proves("N1", "G1")
def test_an_async_listener_attaches_when_awaited_or_at_its_first_step(url: str) -> None:
    """An awaited listener hears what is sent before it is iterated; one that was not awaited does not."""

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
def test_a_listener_does_not_receive_what_was_visible_before(kit: EventKit) -> None:
    """It is not heard even if its id is higher than one that is committed later, which is heard."""
    alerts = kit.channel("alerts")
    with kit.transaction() as tx:
        early = alerts.notify("commits after", tx=tx)
        assert alerts.notify("committed before") > early
        notifications = alerts.listen()
    alerts.notify("last")
    with notifications:
        assert _payloads(notifications, 2) == ["commits after", "last"]


@proves("N1")
def test_a_listener_receives_what_was_sent_before_and_commits_after(kit: EventKit) -> None:
    """The commit decides, not the time of the call."""
    alerts = kit.channel("alerts")
    with kit.transaction() as tx:
        alerts.notify("sent before", tx=tx)
        notifications = in_thread(alerts.listen).result(30)
    with notifications:
        assert _payloads(notifications, 1) == ["sent before"]


@proves("N1")
def test_listening_may_start_at_the_beginning_or_after_an_id(kit: EventKit) -> None:
    """Any other start is refused."""
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
            alerts.listen(start=start)  # type: ignore[arg-type]


@proves("N1", "S5", "G1")
def test_a_listener_ends_when_it_or_its_kit_is_closed(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """It ends normally, whether it waits or not."""
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
    """Return how many files and sockets this process has open, or 0 where the system does not report it."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


@proves("N5")
def test_a_hundred_idle_listeners_cost_one_watcher(kit: EventKit) -> None:
    """They need as many threads as one listener, apart from the callers' own, and hardly more connections."""
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
