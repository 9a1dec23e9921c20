"""Consumer groups: how the events a second grow with the members, what one member costs, and takeovers."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import eventkit
from eventkit import NewEvent

from .contestants import WithKit
from .databases import Database, Settings
from .processes import Remote, started
from .report import Table, at_least, at_most, thousands

_HANDLER_S = 0.002
_KEYS = 20_000
_REPLAYED = 100_000
_LEASE_S = 2.0
_SHARES = {2: 1.9, 8: 7.0}
"""The members, and the least number of times that they are faster than one."""


class Worker:
    """A member of a group, whose handler sleeps."""

    def __init__(self, url: str, group: str) -> None:
        self._kit = eventkit.connect(url)
        self._member: Any = self._kit.stream("work").join(group, lease=_LEASE_S)

    def pid(self) -> int:
        """Return the number of the process."""
        return os.getpid()

    def first(self) -> None:
        """Handle one event, and hold its partitions until there are others."""
        self._member.next()

    def work(self, until: float) -> int:
        """Handle events until that time; return how many."""
        handled = 0
        while time.time() < until:
            self._member.next()
            time.sleep(_HANDLER_S)
            handled += 1
        return handled

    def take_over(self) -> float:
        """Return when an event came that another member had in progress."""
        while True:
            event = self._member.next()
            if event.payload == "taken over":
                return time.time()

    def close(self) -> None:
        """Leave the group."""
        self._member.close()
        self._kit.close()


class Reader(WithKit):
    """A member of a group, or a plain subscriber, that reads everything."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._stream = self.kit.stream("replay")
        self._turns = 0

    def fill(self, count: int) -> None:
        """Publish events with keys."""
        for start in range(0, count, 10_000):
            self._stream.publish_many([NewEvent(n, key=f"key {n % _KEYS}") for n in range(start, start + 10_000)])

    def time(self, work: str, count: int) -> float:
        """Return how long it took to read that many events."""
        self._turns += 1
        name = f"{work} {self._turns}"
        start = time.perf_counter()
        with self._stream.join(name) if work == "join" else self._stream.subscribe(name) as events:
            for place, _ in enumerate(events, 1):
                if place == count:
                    break
        return time.perf_counter() - start


def measure(settings: Settings, database: Database) -> Iterator[Table]:
    """Measure groups of one, two and eight members, one member beside a subscriber, and takeovers."""
    yield _scaling(settings, database)
    yield _alone(settings, database)
    yield _takeovers(settings, database)


def _scaling(settings: Settings, database: Database) -> Table:
    table = Table(
        "Members of a group",
        "members | events /s | times one member | bar | reached",
        note="Each member is a process, whose handler sleeps for 2 ms; positions are saved once a second.",
    )
    url, seconds, single = database.new(), settings.seconds(6.0), 0.0
    with eventkit.connect(url) as kit:
        for start in range(0, settings.count(100_000, 10_000), 10_000):
            events = [NewEvent(n, key=f"key {n % _KEYS}") for n in range(start, start + 10_000)]
            kit.stream("work").publish_many(events)
        for members in (1, *_SHARES):
            rates = [_rate(url, f"{members} {n}", members, seconds) / seconds for n in range(settings.few_rounds)]
            rate = sorted(rates)[len(rates) // 2]
            single = single or rate
            bar = at_least(rate / single, _SHARES.get(members))
            table.add(str(members), thousands(rate), f"{rate / single:.2f}", *bar)
    return table


def _rate(url: str, group: str, members: int, seconds: float) -> int:
    """Return how many events the members of a new group handled in that time, once each had its share."""
    remotes = [Remote(Worker, url, group) for _ in range(members)]
    try:
        for remote in remotes:
            remote.ready()
        handled = 0
        for lasts in (1.5, seconds):
            until = time.time() + lasts
            for remote in remotes:
                remote.begin("work", until)
            handled = sum(remote.result() for remote in remotes)
        return handled
    finally:
        for remote in remotes:
            remote.close()


def _alone(settings: Settings, database: Database) -> Table:
    table = Table(
        "One member beside a plain subscriber",
        "subscriber /s | member /s | of the subscriber | bar | reached",
        note="Both replay events with keys from the beginning, alone.",
    )
    url, count = database.new(), settings.count(_REPLAYED, 10_000)
    with started({"reader": (Reader, url)}) as (parties, _):
        parties["reader"].call("fill", count)
        shares, rates = [], []
        for _ in range(settings.rounds):
            plain = count / parties["reader"].call("time", "subscribe", count)
            member = count / parties["reader"].call("time", "join", count)
            rates.append((plain, member))
            shares.append(member / plain)
        share = sorted(shares)[len(shares) // 2]
        plain, member = sorted(rates)[len(rates) // 2]
        table.add(thousands(plain), thousands(member), f"{share:.2f}", *at_least(share, 0.85))
    return table


def _takeovers(settings: Settings, database: Database) -> Table:
    table = Table(
        "Takeover after SIGKILL",
        "lease | longest time until the event came again | bar | reached",
        note="The event was in progress in a member that was killed; another member waited.",
    )
    longest = 0.0
    for _ in range(settings.few_rounds):
        url = database.new()
        with eventkit.connect(url) as kit, Remote(Worker, url, "group") as standby:
            kit.stream("work").publish("taken over", key="key")
            victim = Remote(Worker, url, "group")
            victim.call("first")
            standby.begin("take_over")
            time.sleep(0.5)
            pid = victim.call("pid")
            os.kill(pid, signal.SIGKILL)
            killed = time.time()
            longest = max(longest, standby.result() - killed)
    table.add(f"{_LEASE_S:.0f} s", f"{longest:.2f} s", *at_most(longest, _LEASE_S + 1))
    return table
