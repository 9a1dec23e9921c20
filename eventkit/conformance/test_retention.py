"""Retention: rows that are kept, for how long, and the settings for it."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

import eventkit
from eventkit import EventKit, Truncated
from eventkit.testing import advance
from eventkit.values import ChannelSettings, Enqueued, InboxSettings, Maintained, QueueSettings, StreamSettings

from .clauses import both_flavours, proves
from .processes import spawn
from .threads import in_thread, line_up, take

DAY = 86_400
_CROWD = 2_345
"""More rows than two transactions of housekeeping take."""


def _events(kit: EventKit, topic: str) -> list[Any]:
    """Return the payloads of the remaining events."""
    return [event.payload for event in kit.stream(topic).read(limit=10_000)]


def _age(kit: EventKit, publish: Callable[[list[int]], Any]) -> None:
    """Publish 0 to 3, which are 100 seconds old in the end, 4 to 6, which are 50, and 7 to 9."""
    publish([0, 1, 2, 3])
    advance(kit, 50)
    publish([4, 5, 6])
    advance(kit, 50)
    publish([7, 8, 9])


_POLICIES: list[dict[str, Any]] = [
    {"keep": 75},
    {"keep": 25},
    {"keep": 1000},
    {"keep_count": 4},
    {"keep_count": 10},
    {"keep_count": 0},
    {"keep": 75, "keep_count": 8},
    {"keep": 75, "keep_count": 2},
    {"keep": 1000, "keep_count": 100},
    {"keep": None, "keep_count": None},
    {},
]


@proves("H4", "S8")
@pytest.mark.parametrize("policy", _POLICIES, ids=str)
def test_what_maintaining_prunes_is_what_prune_would(kit: EventKit, policy: dict[str, Any]) -> None:
    """The same events are deleted, and readers get the same error; other topics are unchanged."""
    cases = [*product((None, 2, 8), (True, False))]
    """The place of the slowest consumer, and whether what it has not read is kept."""
    offsets: dict[str, list[int]] = {
        f"{use} {case}": [] for case in range(len(cases)) for use in ("kept", "pruned", "others")
    }

    def publish(payloads: list[int]) -> None:
        for topic, known in offsets.items():
            known += kit.stream(topic).publish_many(payloads)

    _age(kit, publish)
    criteria = {"older_than": policy.get("keep"), "keep_count": policy.get("keep_count")}
    for case, (consumer, keep_unconsumed) in enumerate(cases):
        kept, pruned, others = (f"{use} {case}" for use in ("kept", "pruned", "others"))
        kit.stream(kept).configure(**policy, keep_unconsumed=keep_unconsumed)
        for topic in (kept, pruned, others):
            if consumer is not None:
                kit.stream(topic).save_offset("consumer", offsets[topic][consumer])
        number = 0
        if any(value is not None for value in criteria.values()):
            number = kit.stream(pruned).prune(**criteria, keep_unconsumed=keep_unconsumed)
        assert kit.maintain().events == number
        assert kit.maintain().events == 0
        assert _events(kit, kept) == _events(kit, pruned) == list(range(number, 10))
        assert _events(kit, others) == list(range(10))
        for place in range(10):
            assert _gap(kit, offsets[kept], kept, place) == _gap(kit, offsets[pruned], pruned, place)


def _gap(kit: EventKit, known: list[int], topic: str, place: int) -> tuple[int, int] | None:
    """Return the indexes of the first and last event missed by a reader after that one."""
    try:
        kit.stream(topic).read(known[place])
    except Truncated as error:
        return sum(offset < error.first for offset in known), known.index(error.last)
    return None


@proves("H4", "S4")
def test_a_slow_consumer_holds_up_what_it_has_to_read(kit: EventKit) -> None:
    """Events stay while it is behind, and also when it seeks back."""
    stream = kit.stream("orders")
    stream.configure(keep_count=1)
    offsets = stream.publish_many(range(6))
    stream.save_offset("slow", offsets[1])
    assert kit.maintain().events == 2
    stream.save_offset("slow", offsets[3])
    stream.seek("slow", offsets[2])
    assert kit.maintain().events == 1
    assert _events(kit, "orders") == [3, 4, 5]
    stream.configure(keep_unconsumed=False)
    assert kit.maintain().events == 2


@proves("H4", "N4")
@both_flavours
def test_notifications_are_kept_for_a_day(kit: EventKit) -> None:
    """The default applies where no setting does; None keeps them for ever."""
    kit.channel("short").configure(keep=60)
    kit.channel("long").configure(keep=2 * DAY)
    kit.channel("few").configure(keep_count=2)
    kit.channel("for ever").configure(keep=None)
    names = ("plain", "short", "long", "few", "for ever")
    for _ in range(3):
        for name in names:
            kit.channel(name).notify(name)
    assert kit.maintain().notifications == 1
    advance(kit, 61)
    assert kit.maintain().notifications == 3
    advance(kit, DAY - 62)
    assert kit.maintain().notifications == 0
    advance(kit, 2)
    kit.channel("plain").notify("new")
    assert kit.maintain().notifications == 3 + 2
    advance(kit, 3 * DAY)
    assert kit.maintain().notifications == 1 + 3
    with kit.listen(*names, start="earliest") as heard:
        assert [notification.payload for notification in take(heard, 3)] == 3 * ["for ever"]


@proves("H4", "N4")
def test_a_slow_listener_goes_on_after_maintenance(kit: EventKit) -> None:
    alerts = kit.channel("alerts")
    alerts.configure(keep=60)
    with alerts.listen() as heard:
        alerts.notify("old")
        advance(kit, 61)
        alerts.notify("new")
        assert kit.maintain().notifications == 1
        assert take(heard, 1)[0].payload == "new"


def _once(kit: EventKit, consumer: str, message: str) -> bool:
    with kit.transaction() as tx:
        return kit.inbox(consumer).once(message, tx=tx)


@proves("H4", "O2")
def test_an_inbox_forgets_after_its_configured_time(kit: EventKit) -> None:
    """By default it remembers for ever, because a forgotten message is new again."""
    kit.inbox("billing").configure(keep=60)
    for consumer in ("billing", "shipping"):
        assert _once(kit, consumer, "old")
    advance(kit, 61)
    for consumer in ("billing", "shipping"):
        assert _once(kit, consumer, "new")
    assert kit.maintain().inbox == 1
    assert [_once(kit, "billing", message) for message in ("old", "new")] == [True, False]
    assert not _once(kit, "shipping", "old")


@proves("H4", "Q11", "Q7")
def test_dead_tasks_are_kept_for_as_long_as_the_queue_says(kit: EventKit) -> None:
    """The default is for ever.  A key stays reserved for the rest of its time."""
    first: dict[str, int] = {}
    for name in ("jobs", "others"):
        queue = kit.queue(name)
        first[name] = queue.enqueue(1, key="first").id
        queue.fail(queue.claim("worker")[0], "broken")
        advance(kit, 50)
        queue.enqueue(2)
        queue.fail(queue.claim("worker")[0], "broken")
    jobs = kit.queue("jobs")
    assert kit.maintain().dead == 0
    jobs.configure(keep_dead=60)
    assert kit.maintain().dead == 1
    assert [task.payload for task in jobs.dead()] == [2]
    assert jobs.stats().dead == 1
    assert len(kit.queue("others").dead()) == 2
    assert jobs.enqueue("again", key="first") == Enqueued(first["jobs"], False)
    jobs.configure(keep_dead=None)
    advance(kit, DAY)
    assert kit.maintain().dead == 0
    assert jobs.enqueue("again", key="first").created


@proves("H4", "Q16")
def test_what_a_queue_keeps_no_more_goes(kit: EventKit) -> None:
    """An ack would have deleted the task under the new setting."""
    queue = kit.queue("jobs")
    queue.configure(keep_done=1000)
    queue.enqueue_many([1, 2])
    queue.ack_many(queue.claim("worker", 2))
    advance(kit, 1)
    assert kit.maintain().done == 0
    queue.configure(keep_done=None)
    assert kit.maintain().done == 2
    assert queue.stats().done == 0


def _crowd(kit: EventKit) -> Maintained:
    """Leave more rows of every kind than two transactions take; return the counts that maintenance reports."""
    jobs: Any = kit.queue("jobs")
    jobs.configure(keep_dead=60, keep_done=60, max_attempts=1)
    jobs.enqueue_many([None] * _CROWD)
    jobs.claim("worker", _CROWD, lease=0.001)
    for topic in ("orders", "bills"):
        kit.stream(topic).configure(keep=60, keep_count=10)
        kit.stream(topic).publish_many(range(_CROWD))
    kit.channel("alerts").configure(keep=60)
    with kit.transaction() as tx:
        for _ in range(_CROWD):
            kit.channel("alerts").notify(None, tx=tx)
        for number in range(_CROWD):
            kit.inbox("billing").once(str(number), tx=tx)
    kit.inbox("billing").configure(keep=60)
    advance(kit, 1)
    assert jobs.sweep() == _CROWD
    advance(kit, 61)
    kit.stream("orders").publish("new")
    return Maintained(
        moved=0,
        done=0,
        dead=_CROWD,
        results=0,
        limits=0,
        keys=0,
        events=2 * _CROWD,
        notifications=_CROWD,
        inbox=_CROWD,
        staged=0,
        written=0,
    )


@proves("H4", "H1", "O2")
def test_a_crowd_goes_while_others_write(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """Maintenance takes several transactions, so that publishers proceed between them; their events stay."""
    expected = _crowd(kit)
    publisher = connect(url).stream("meanwhile")
    published = turns = 0
    for attempt in range(5):  # The scheduling of the machine decides the interleaving, too.
        before = published
        done = in_thread(kit.maintain)
        while not done.done():
            publisher.publish(published)
            published += 1
        turns = published - before
        assert attempt or done.result() == expected
        if turns > 3:
            break
        _crowd(kit)
    assert turns > 3
    assert _events(kit, "orders") == ["new"]
    assert _events(kit, "bills") == []
    assert _events(kit, "meanwhile") == list(range(published))
    assert kit.maintain() == Maintained(**dict.fromkeys(Maintained.__struct_fields__, 0))


def _maintain(url: str) -> Maintained:
    with eventkit.connect(url) as kit:
        line_up(kit, 2)
        return kit.maintain()


@proves("H4", "H1", "O2")
def test_two_processes_that_maintain_together_do_no_harm(kit: EventKit, url: str) -> None:
    """Each row is deleted once and counted once."""
    expected = _crowd(kit)
    with spawn(_maintain, url) as first, spawn(_maintain, url) as second:
        pass
    answers = [first.result(), second.result()]
    for name in Maintained.__struct_fields__:
        assert sum(getattr(answer, name) for answer in answers) == getattr(expected, name), name
    assert _events(kit, "orders") == ["new"]
    assert kit.queue("jobs").dead() == []


@proves("H4", "O2")
def test_settings_are_seen_and_left_alone(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """Every kit sees them at once; omitted settings are unchanged; each name has its own."""
    other = connect(url)
    stream, channel, inbox, queue = kit.stream("it"), kit.channel("it"), kit.inbox("it"), kit.queue("it")
    assert stream.settings() == StreamSettings(keep=None, keep_count=None, keep_unconsumed=True)
    assert channel.settings() == ChannelSettings(keep=DAY, keep_count=None)
    assert inbox.settings() == InboxSettings(keep=None)
    assert queue.settings() == QueueSettings()
    stream.configure(keep=1.5)
    stream.configure(keep_count=7)
    stream.configure(keep_unconsumed=False)
    channel.configure(keep_count=7)
    assert other.channel("it").settings() == ChannelSettings(keep=DAY, keep_count=7)
    channel.configure(keep=None)
    inbox.configure(keep=30)
    queue.configure(keep_dead=60, retry="fixed", lease=0.5)
    queue.configure(max_size=5)
    for handle in (stream, channel, inbox, queue):
        handle.configure()
    assert other.stream("it").settings() == StreamSettings(keep=1.5, keep_count=7, keep_unconsumed=False)
    assert other.channel("it").settings() == ChannelSettings(keep=None, keep_count=7)
    assert other.inbox("it").settings() == InboxSettings(keep=30)
    assert other.queue("it").settings() == QueueSettings(keep_dead=60, retry=eventkit.Fixed(), lease=0.5, max_size=5)
    stream.configure(keep=None, keep_count=None, keep_unconsumed=None)
    channel.configure(keep=DAY, keep_count=None)
    inbox.configure(keep=None)
    queue.configure(keep_dead=None, retry=None, lease=None, max_size=None)
    assert other.stream("it").settings() == StreamSettings()
    assert other.channel("it").settings() == ChannelSettings()
    assert other.inbox("it").settings() == InboxSettings()
    assert other.queue("it").settings() == QueueSettings()
    assert other.stream("others").settings() == StreamSettings()


@proves("H4", "O2")
def test_nonsense_is_refused_and_nothing_stored(kit: EventKit) -> None:
    nonsense: list[tuple[Any, dict[str, Any]]] = [
        (kit.stream("it"), {"keep": -1}),
        (kit.stream("it"), {"keep": 5, "keep_count": -1}),
        (kit.stream("it"), {"keep_count": 1.5}),
        (kit.stream("it"), {"keep": 5, "keep_unconsumed": "yes"}),
        (kit.channel("it"), {"keep": "long"}),
        (kit.channel("it"), {"keep": 5, "keep_count": True}),
        (kit.inbox("it"), {"keep": -1}),
        (kit.queue("it"), {"keep_dead": -1}),
    ]
    for handle, settings in nonsense:
        before = handle.settings()
        with pytest.raises((ValueError, TypeError)):
            handle.configure(**settings)
        assert handle.settings() == before


@proves("H4", "S8")
def test_what_is_configured_is_not_what_was_pruned(kit: EventKit) -> None:
    """Readers get an error for deleted events, before and after, and for no others."""
    stream = kit.stream("orders")
    stream.configure(keep_count=1)
    assert stream.read(5) == []
    offsets = stream.publish_many(range(4))
    stream.prune(keep_count=2)
    stream.configure(keep_count=5)
    with pytest.raises(Truncated) as caught:
        stream.read(offsets[0])
    assert caught.value.last == offsets[1]
    assert kit.maintain().events == 0
