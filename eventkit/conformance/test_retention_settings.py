"""How long things are to be kept, as it is told and stored: H4."""

from collections.abc import Callable
from typing import Any

import pytest

import eventkit
from eventkit import ChannelSettings, EventKit, InboxSettings, QueueSettings, StreamSettings, Truncated

from .clauses import proves

DAY = 86_400


@proves("H4")
def test_settings_are_seen_and_left_alone(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """By every kit at once; what is left out stays as it is; each name has its own."""
    other = connect(url)
    stream, channel, inbox, queue = kit.stream("it"), kit.channel("it"), kit.inbox("it"), kit.queue("it")
    assert stream.settings() == StreamSettings(retain=None, max_keep=None, keep_unconsumed=True)
    assert channel.settings() == ChannelSettings(retain=DAY, max_keep=None)
    assert inbox.settings() == InboxSettings(retain=None)
    assert queue.settings() == QueueSettings()
    stream.configure(retain=1.5)
    stream.configure(max_keep=7)
    stream.configure(keep_unconsumed=False)
    channel.configure(max_keep=7)
    assert other.channel("it").settings() == ChannelSettings(retain=DAY, max_keep=7)
    channel.configure(retain=None)
    inbox.configure(retain=30)
    queue.configure(keep_dead=60, retry="fixed", lease=0.5)
    queue.configure(max_size=5)
    for handle in (stream, channel, inbox, queue):
        handle.configure()
    assert other.stream("it").settings() == StreamSettings(retain=1.5, max_keep=7, keep_unconsumed=False)
    assert other.channel("it").settings() == ChannelSettings(retain=None, max_keep=7)
    assert other.inbox("it").settings() == InboxSettings(retain=30)
    assert other.queue("it").settings() == QueueSettings(keep_dead=60, retry=eventkit.Fixed(), lease=0.5, max_size=5)
    stream.configure(retain=None, max_keep=None, keep_unconsumed=None)
    channel.configure(retain=DAY, max_keep=None)
    inbox.configure(retain=None)
    queue.configure(keep_dead=None, retry=None, lease=None, max_size=None)
    assert other.stream("it").settings() == StreamSettings()
    assert other.channel("it").settings() == ChannelSettings()
    assert other.inbox("it").settings() == InboxSettings()
    assert other.queue("it").settings() == QueueSettings()
    assert other.stream("others").settings() == StreamSettings()


@proves("H4")
def test_nonsense_is_refused_and_nothing_stored(kit: EventKit) -> None:
    nonsense: list[tuple[Any, dict[str, Any]]] = [
        (kit.stream("it"), {"retain": -1}),
        (kit.stream("it"), {"retain": 5, "max_keep": -1}),
        (kit.stream("it"), {"max_keep": 1.5}),
        (kit.stream("it"), {"retain": 5, "keep_unconsumed": "yes"}),
        (kit.channel("it"), {"retain": "long"}),
        (kit.channel("it"), {"retain": 5, "max_keep": True}),
        (kit.inbox("it"), {"retain": -1}),
        (kit.queue("it"), {"keep_dead": -1}),
    ]
    for handle, settings in nonsense:
        before = handle.settings()
        with pytest.raises((ValueError, TypeError)):
            handle.configure(**settings)
        assert handle.settings() == before


@proves("H4", "S8")
def test_what_is_configured_is_not_what_was_pruned(kit: EventKit) -> None:
    """Readers are told of what is gone, before and after, and of nothing else."""
    stream = kit.stream("orders")
    stream.configure(max_keep=1)
    assert stream.read(5) == []
    offsets = stream.publish_many(range(4))
    stream.prune(max_keep=2)
    stream.configure(max_keep=5)
    with pytest.raises(Truncated) as caught:
        stream.read(offsets[0])
    assert caught.value.last == offsets[1]
    assert kit.maintain().events == 0
