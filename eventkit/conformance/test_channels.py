"""N1 to N4: notifications."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eventkit import EventKit, Notification, Undecodable
from eventkit.testing import advance

from .clauses import proves
from .processes import spawn
from .rollback import rolled_back
from .streaming import END, go, send_in_transactions, until_end
from .threads import in_thread, take


@dataclass
class _Point:
    x: int


def _payloads(notifications: Any, count: int) -> list[Any]:
    """The payloads of the next *count* notifications."""
    return [notification.payload for notification in take(notifications, count)]


@proves("N1", "G11")
def test_a_notification_arrives_as_it_was_sent(kit: EventKit) -> None:
    """With its id, channel, payload, headers and moment."""
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


@proves("N1")
def test_ids_grow(kit: EventKit) -> None:
    """And do not come back when everything was pruned."""
    alerts, others = kit.channel("alerts"), kit.channel("others")
    ids = [channel.notify(n) for n in range(3) for channel in (alerts, others)]
    alerts.prune(max_keep=0)
    others.prune(max_keep=0)
    ids.append(alerts.notify(3))
    assert all(type(id) is int and id > 0 for id in ids)
    assert ids == sorted(set(ids))


@proves("N2")
def test_equal_payloads_arrive_each(kit: EventKit) -> None:
    """Those of one transaction too."""
    alerts = kit.channel("alerts")
    with alerts.listen() as notifications:
        with kit.transaction() as tx:
            ids = [alerts.notify("again", tx=tx) for _ in range(2)]
        ids.append(alerts.notify("again"))
        received = take(notifications, 3)
    assert [notification.payload for notification in received] == ["again"] * 3
    assert [notification.id for notification in received] == ids == sorted(set(ids))


@proves("N2")
@pytest.mark.parametrize("size", [9_000, 500_000])
def test_big_notifications_arrive(kit: EventKit, size: int) -> None:
    """There is no size from which on it is different, up to the limit on payloads."""
    alerts = kit.channel("alerts")
    payload = "x" * size
    with alerts.listen() as notifications:
        alerts.notify(payload)
        assert _payloads(notifications, 1) == [payload]


@proves("N2")
def test_more_than_can_be_read_at_once_arrives_in_order(kit: EventKit) -> None:
    """Thousands in one transaction."""
    alerts = kit.channel("alerts")
    with alerts.listen() as notifications:
        with kit.transaction() as tx:
            ids = [alerts.notify(n, tx=tx) for n in range(2500)]
        received = take(notifications, 2500)
    assert [notification.payload for notification in received] == list(range(2500))
    assert [notification.id for notification in received] == ids


@proves("N3")
def test_a_rolled_back_notification_is_never_seen(kit: EventKit) -> None:
    """Neither by those who listen nor by those who start at the beginning."""
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
    """In the order of their ids; channels that were not named are left out."""
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
def test_racing_senders_are_heard_in_order(kit: EventKit, url: str, flavour: str) -> None:
    """What arrives is what was committed by several processes, once, in the order of the ids."""
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
    """The payloads of the channel that are still there."""
    kit.channel(name).notify(END)
    with kit.channel(name).listen(start="earliest") as notifications:
        return [notification.payload for notification in until_end(notifications)]


@proves("N4")
@pytest.mark.parametrize(
    ("retention", "left"),
    [
        ({"older_than": 75}, range(4, 10)),
        ({"older_than": 1000}, range(10)),
        ({"max_keep": 4}, range(6, 10)),
        ({"max_keep": 10}, range(10)),
        ({"max_keep": 11}, range(10)),
        ({"max_keep": 0}, range(0)),
        ({"older_than": 75, "max_keep": 8}, range(4, 10)),
        ({"older_than": 75, "max_keep": 2}, range(8, 10)),
        ({"older_than": 1000, "max_keep": 100}, range(10)),
    ],
    ids=str,
)
def test_prune_drops_old_notifications_and_too_many(kit: EventKit, retention: dict[str, int], left: range) -> None:
    """Both together drop what either drops; the answer is the number dropped; other channels stay."""
    alerts, others = kit.channel("alerts"), kit.channel("others")
    for n in range(4):
        alerts.notify(n)
        others.notify(n)
    advance(kit, 100)
    for n in range(4, 10):
        others.notify(n)
        alerts.notify(n)
    assert alerts.prune(**retention) == 10 - len(left)
    assert alerts.prune(**retention) == 0
    assert _left(kit, "alerts") == list(left)
    assert _left(kit, "others") == list(range(10))


@proves("N4")
def test_prune_of_a_channel_wants_to_be_told_what(kit: EventKit) -> None:
    """Nothing said, or nonsense, is an error."""
    alerts = kit.channel("alerts")
    alerts.notify(1)
    for arguments in ({}, {"max_keep": -1}, {"older_than": -1}):
        with pytest.raises(ValueError):  # noqa: PT011 - any of several arguments
            alerts.prune(**arguments)
    assert _left(kit, "alerts") == [1]


@proves("N4")
def test_a_slow_listener_goes_on_with_what_is_left(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """Without an error, however much was pruned in front of it."""
    alerts = connect(url).channel("alerts")
    with kit.channel("alerts").listen() as notifications:
        alerts.notify("first")
        assert _payloads(notifications, 1) == ["first"]
        for n in range(10):
            alerts.notify(n)
        assert alerts.prune(max_keep=2) == 9
        assert _payloads(notifications, 2) == [8, 9]
        alerts.prune(max_keep=0)
        coming = in_thread(_payloads, notifications, 1)
        alerts.notify("last")
        assert coming.result(30) == ["last"]


@proves("G9", "N1")
def test_a_notification_that_does_not_decode_is_delivered_and_passed(kit: EventKit) -> None:
    """Its payload is an `Undecodable`; those around it are as ever."""
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
