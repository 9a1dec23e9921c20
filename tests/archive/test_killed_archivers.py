"""Each event is in the archive once in the end, for a kill at any step of an archiver."""

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from archive import dying
from archive.archives import archived, assert_nothing_else, listed, manifest, publish, published

from eventkit import archive
from eventkit.archive import archiver
from eventkit.conformance.clauses import proves

KILLED, DONE = -9, 0
NEVER = 1_000_000
"""A step that no run reaches."""


def databases(*some: Any, every: list[tuple[Any, ...]]) -> pytest.MarkDecorator:
    """Give a test some steps on SQLite, and every step on Postgres: each is a process that has to start."""
    names = ("url", "what", "share") if len(some) == 2 else ("url", "share")
    cases = [pytest.param("postgres", *one, marks=pytest.mark.slow) for one in every]
    return pytest.mark.parametrize(names, [("sqlite", *some), *cases], indirect=["url"])


Die = Callable[[str, int], int]
"""Does the work until it dies at a step, in a process of its own, and returns how that has ended."""


@pytest.fixture(scope="module")
def process() -> Iterator[Any]:
    """Return the process that starts the others."""
    with (
        subprocess.Popen(
            [sys.executable, dying.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
        closing(process.stdin),
    ):  # type: ignore[type-var]
        yield process


@pytest.fixture
def die(process: Any, url: str, location: Path) -> Die:
    """Return a function that works on the database and the folder until it dies."""

    def die(what: str, step: int) -> int:
        process.stdin.write(f"{url}\t{location}\t{what}\t{step}\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    return die


def steps_to(die: Die, what: str, before: Callable[[], object], share: int) -> Iterator[int]:
    """Yield every *share*-th step from the first to the last, each followed by a killed process.

    The next processes continue their work, or, for every step in turn, one that is not killed: the work would grow
    by more than a step each time.
    """
    for step in count(1, share):
        before()
        ended = die(what, step)
        assert ended in (KILLED, DONE)
        yield step
        if ended == DONE:
            return
        if share == 1:
            assert die(what, NEVER) == DONE


@proves("D11")
@databases(13, every=[(1,)])
def test_a_killed_archiver_loses_and_doubles_nothing(kit: Any, url: str, location: Path, die: Die, share: int) -> None:
    """It is killed at each step of taking the lease, writing files, and adding them to the manifest."""
    assert list(steps_to(die, "archive", lambda: publish(kit, 12), share))[-1] > 30
    archive.archive(url, "orders")
    assert archived(kit, location) == published(kit)
    assert_nothing_else(kit, location)


@proves("D12")
@databases(13, every=[(1,)])
def test_a_killed_compaction_loses_and_doubles_nothing(
    kit: Any, url: str, location: Path, die: Die, share: int
) -> None:
    """It is killed at each step of writing the large file, replacing the small ones, and removing those."""

    def add() -> None:
        for _ in range(3):
            publish(kit, 4)
            archive.archive(url, "orders", to=location)

    assert list(steps_to(die, "compact", add, share))[-1] > 20
    assert archived(kit, location) == published(kit)
    archive.archive(url, "orders")
    assert_nothing_else(kit, location)


@proves("D20")
@databases("list", 2, every=[("list", 1), ("compact", 1)])
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_table_has_everything_once_after_a_kill(
    kit: Any, url: str, location: Path, die: Die, format: Any, what: str, share: int
) -> None:
    """Between the commits of the manifest and the table it is unchanged, and the next run updates it."""

    def add() -> None:
        publish(kit, 25)

    publish(kit, 3)
    archive.archive(url, "orders", to=location, format=format)
    behind = 0
    for _ in steps_to(die, what, add, share):
        found, counted = listed(location, format), archived(kit, location)
        assert found == counted[: len(found)]
        behind += len(found) < len(counted)
    assert behind
    add()
    assert die(what, 3) == KILLED
    archive.archive(url, "orders")
    assert listed(location, format) == archived(kit, location) == published(kit)


@proves("D13")
@databases(17, every=[(1,)])
def test_a_killed_prune_drops_only_what_is_archived(kit: Any, url: str, location: Path, die: Die, share: int) -> None:
    """At no step is an event missing from both the database and the archive."""
    every: set[int] = set()
    for step in steps_to(die, "prune", lambda: every.update(publish(kit, 12)), share):
        begun = step > (1 if share == 1 else 20)
        counted = {row[0] for row in archived(kit, location)} if begun else set()
        assert every == counted | {row[0] for row in published(kit)}, step
    assert published(kit) == []
    assert {row[0] for row in archived(kit, location)} == every


@proves("D14")
@databases(41, every=[(1,)])
def test_a_killed_replay_goes_on_where_it_was(kit: Any, url: str, location: Path, die: Die, share: int) -> None:
    """The same call again writes the rest, and nothing twice."""
    publish(kit, 40)
    archive.archive(url, "orders", to=location)
    list(steps_to(die, "replay", lambda: None, share))
    again = [row[1:4] for row in published(kit, "again")]
    whole = [row[1:4] for row in published(kit)]
    assert again == whole * (len(again) // len(whole))
    assert again


@pytest.mark.slow
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_fifty_killed_archivers(kit: Any, url: str, location: Path, die: Die) -> None:
    """They die in turn at random steps of archiving, compacting and pruning, while events are published."""
    chosen = random.Random(7)
    every: set[int] = set()
    kills = 0
    while kills < 50:
        what = chosen.choice(["archive", "compact", "prune"])
        for _ in range(5):
            every.update(publish(kit, chosen.randrange(1, 40)))
            kills += die(what, chosen.randrange(1, 90)) == KILLED
    archive.archive(url, "orders")
    found = [row[0] for row in archived(kit, location)]
    assert sorted(every) == found
    assert_nothing_else(kit, location)
    assert manifest(kit).covered == max(every)
    assert archiver.TARGET > 0
