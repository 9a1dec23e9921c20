"""A consumer group whose members join, leave, pause and are killed at random: S11, S12, S13, S14."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import databases
import pytest
from databases import on_both

from eventkit import EventKit, NewEvent
from eventkit.conformance import proves

url, kit = databases.url, databases.kit

PROGRAM = Path(__file__).parent / "support" / "group_member.py"
EVENTS = "EVENTKIT_GROUP_EVENTS"
"""The environment variable with the number of events."""


def start(url: str, seed: int) -> "subprocess.Popen[bytes]":
    """Start a member."""
    return subprocess.Popen([sys.executable, PROGRAM, url, str(seed), "1.5"])


def effects(kit: EventKit, statement: str) -> list[Any]:
    """Return the rows of a statement on the effects."""
    with kit.transaction() as tx:
        return list(tx.execute(statement).fetchall())


def run(kit: EventKit, url: str, events: int, keys: int, members: int, kills: int, seconds: float) -> None:
    """Publish the events and let members handle them; each is written down once, in order for its key."""
    chance = random.Random(events)
    stream = kit.stream("orders")
    with kit.transaction() as tx:
        kind = "bigserial" if url.startswith("postgres") else "INTEGER"
        tx.execute("DROP TABLE IF EXISTS effect")
        tx.execute(f"CREATE TABLE effect (id {kind} PRIMARY KEY, key text, n bigint, event bigint)")
    numbers = dict.fromkeys(range(keys), 0)
    running = [start(url, seed) for seed in range(members)]
    deadline, seed, killed = time.monotonic() + seconds, members, 0
    sent = before = 0
    try:
        while not (killed and stream.drain_group("workers", timeout=0.2)):
            while sent < events:
                batch = []
                for _ in range(min(2000, events - sent)):
                    key = chance.randrange(keys)
                    numbers[key] += 1
                    batch.append(NewEvent(numbers[key], key=f"key {key}"))
                stream.publish_many(batch)
                sent += len(batch)
            assert time.monotonic() < deadline, stream.groups()
            [(now,)] = effects(kit, "SELECT max(id) FROM effect")
            if (now or 0) - before < events // kills:
                continue
            before, victim = now, chance.randrange(members)
            running[victim].kill()
            running[victim].wait()
            seed, killed = seed + 1, killed + 1
            running[victim] = start(url, seed)
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert killed
    [(count, distinct)] = effects(kit, "SELECT count(*), count(DISTINCT event) FROM effect")
    assert (count, distinct) == (events, events)
    inversions = effects(
        kit,
        "SELECT key, n FROM ("
        "SELECT key, n, row_number() OVER (PARTITION BY key ORDER BY id) AS place FROM effect"
        ") AS e WHERE n <> place",
    )
    assert inversions == []
    assert stream.groups()[0].parked == 0


@proves("S11", "S12", "S13", "S14")
@on_both
def test_members_come_and_go(kit: EventKit, url: str) -> None:
    """600 events with members that are killed: none is lost or out of order, and each has its effect once."""
    run(kit, url, 600, 50, 2, 4, 60)


@pytest.mark.slow
@proves("S11", "S12", "S13", "S14")
@on_both
def test_members_come_and_go_for_long(kit: EventKit, url: str) -> None:
    """A million events of 10,000 keys, unless the environment says otherwise."""
    run(kit, url, int(os.environ.get(EVENTS, 1_000_000)), 10_000, 4, 300, 3_000)
