"""S2 and N2 with concurrent writers: a race of every way to publish and every way to read."""

from collections import Counter
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel
from racing_publisher import NAMES, publish_in_every_way, publish_slowly

import eventkit
from eventkit.conformance.flavours import Blocking, Loop
from eventkit.conformance.processes import spawn
from eventkit.conformance.streaming import END, until_end
from eventkit.conformance.threads import in_thread


def _race(url: str, writers: int, seconds: float, bulk: int) -> Counter[str]:
    """Check that each reader receives what was committed, in order; return how it was published."""
    loop = Loop()
    sync_kit = eventkit.connect(f"{url}&max_size=20")
    async_kit = Blocking(loop.run(eventkit.connect_async(f"{url}&max_size=20")), loop)
    try:
        kits = {"sync": sync_kit, "async": async_kit}
        following: dict[tuple[str, str], Any] = {}
        for flavour, kit in kits.items():
            for name, every in zip(NAMES, (1, 1000), strict=True):
                stream = kit.stream(name)
                following[flavour, name] = in_thread(until_end, stream.subscribe(flavour, batch=7, save_every_n=every))
            following[flavour, "heard"] = in_thread(until_end, kit.listen(*NAMES))
        following["poll", NAMES[0]] = in_thread(_poll, sync_kit.stream(NAMES[0]))
        with psycopg.connect(url.partition("?")[0]) as elsewhere:
            elsewhere.isolation_level = IsolationLevel.REPEATABLE_READ
            elsewhere.execute("CREATE TEMPORARY TABLE unrelated AS SELECT 1")
            slow = spawn(publish_slowly, url, writers, bulk, seconds)
            processes = [spawn(publish_in_every_way, url, writer, seconds) for writer in range(writers)]
            answers = [process.result() for process in processes]
            committed = [(writer, *sent) for writer, (all_sent, _) in enumerate(answers) for sent in all_sent]
            committed += [(writers, *sent) for sent in slow.result()]
        for name in NAMES:
            sync_kit.stream(name).publish(END)
        sync_kit.channel(NAMES[0]).notify(END)

        for name in NAMES:
            stored = sync_kit.stream(name).read(limit=10_000_000)[:-1]
            sent = [(writer, number) for writer, kind, to, number in committed if (kind, to) == ("event", name)]
            assert sorted(tuple(event.payload) for event in stored) == sorted(sent)
            _in_order(stored)
            for (_, followed), received in following.items():
                if followed == name:
                    assert received.result(300) == stored
        heard = [following[flavour, "heard"].result(300) for flavour in kits]
        assert heard[0] == heard[1]
        assert sorted((*message.payload, message.channel) for message in heard[0]) == sorted(
            (writer, number, to) for writer, kind, to, number in committed if kind == "notification"
        )
        _in_order(heard[0])
        return sum((ways for _, ways in answers), Counter())
    finally:
        async_kit.close()
        sync_kit.close()
        loop.close()


def _in_order(messages: list[Any]) -> None:
    """Check that the messages of each writer are in the order of sending."""
    last: dict[tuple[int, str], int] = {}
    for message in messages:
        writer, number = message.payload
        subject = (writer, getattr(message, "channel", ""))
        assert number > last.get(subject, 0)
        last[subject] = number


def _poll(stream: Any) -> list[Any]:
    seen: list[Any] = []
    while not seen or seen[-1].payload != END:
        seen += stream.read(seen[-1].offset if seen else 0, limit=50)
    return seen[:-1]


def test_nothing_is_skipped_in_a_race_of_all_ways_to_publish(postgres_url: str) -> None:
    """The race lasts for a moment."""
    _race(postgres_url, writers=4, seconds=1.5, bulk=1000)


@pytest.mark.slow
def test_nothing_is_skipped_in_a_long_race_of_all_ways_to_publish(postgres_url: str) -> None:
    """Sixteen publishers run for half a minute, beside a transaction that publishes a hundred thousand one by one."""
    ways = _race(postgres_url, writers=16, seconds=35, bulk=100_000)
    assert min(ways[way] for way in ("prepared", "rolled back to a savepoint", "broad", "plain")) > 20
