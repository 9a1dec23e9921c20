"""Random work on SQLite and on Postgres at once: every answer is the same, apart from ids and times.

The machines are those of the suite, so that every answer is also the model's.  Calls come one after the other,
because the databases may differ when several write at once.
"""

import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test
from twins import Acquaintance, Twin

import eventkit
from eventkit import EventKit
from eventkit.conformance.queue_calls import TICK, Ground
from eventkit.conformance.queue_machine import QueueMachine
from eventkit.conformance.stream_machine import StreamMachine
from eventkit.testing import advance

_BEYOND = 1_000_000_000
"""More events than there will be.  The offset after the newest is the next event's on SQLite; on Postgres a
rolled-back transaction may have drawn it, so it stays unused.
"""


class StreamOfBoth(StreamMachine):
    """Streams, read at positions and moments that mean the same on both."""

    def position(self, where: int) -> int:
        """Return an offset: of an event that exists or existed, or far beyond."""
        offset = super().position(where)
        return offset if offset <= self.model.newest else offset + _BEYOND

    def moment(self, where: int) -> datetime:
        """Return a moment between two ticks: within one, each database has its own order of moments and publishers."""
        tick = where % (self.model.now + 2)
        return self.anchor + timedelta(seconds=TICK * (tick - 0.5 - self.model.now))

    @rule(count=st.integers(0, 3), commit=st.booleans(), keep_count=st.sampled_from([None, 0, 2]))
    def notify(self, count: int, commit: bool, keep_count: int | None) -> None:
        """Send notifications to a listener, some in a transaction; the suite has no machine for them."""
        channel = self.ground.kit.channel(self.topics[0])
        with channel.listen() as heard:
            with self.ground.transaction(commit) as tx:
                for number in range(count):
                    channel.notify(number, headers={"trace": "1"}, tx=tx)
            channel.notify("last")
            expected = [*range(count if commit else 0), "last"]
            assert [next(heard).payload for _ in expected] == expected
        if keep_count is not None:
            channel.prune(keep_count=keep_count)


Walk = Callable[..., None]


@pytest.fixture
def walk(postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Walk]:
    """Make some runs of so many steps with a machine, on both databases."""
    caplog.set_level("ERROR", "eventkit")  # Half of the calls are made with lost leases, which are logged as warnings.
    known = Acquaintance()
    kits: list[Any] = []

    def connect(_: str) -> Any:
        kits.append(Twin(eventkit.connect(f"sqlite:///{tmp_path}/shop.db"), eventkit.connect(postgres_url), known))
        return kits[-1]

    def walk(machine: type[Any], runs: int, steps: int, *, shrink: bool = False) -> None:
        ground = Ground(connect, "")

        def begin() -> Any:
            known.forget()  # Reset it, or all later examples would fail too.
            return machine(ground)

        beginning: Any = seed(crc32(f"{machine.__name__} {runs}".encode()))(begin)
        run_state_machine_as_test(
            beginning,
            settings=settings(
                max_examples=runs,
                stateful_step_count=steps,
                phases=[Phase.generate, *([Phase.shrink] if shrink else [])],
                database=None,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            ),
        )

    yield walk
    for kit in kits:
        kit.close()


def test_a_queue_answers_the_same(walk: Walk) -> None:
    """Random calls on a queue in random order have the same answers."""
    walk(QueueMachine, 25, 30)


def test_a_stream_answers_the_same(walk: Walk) -> None:
    """Random calls on a stream in random order have the same answers."""
    walk(StreamOfBoth, 30, 30)


def test_locks_limits_and_results_answer_the_same(postgres_url: str, tmp_path: Path) -> None:
    """Random calls in random order have the same answers, while hours pass."""
    with eventkit.connect(f"sqlite:///{tmp_path}/shop.db") as one, eventkit.connect(postgres_url) as two:
        for number in range(20):
            answers = [_ask_of_rooms(kit, random.Random(number), f"{number} ") for kit in (one, two)]
            assert answers[0] == answers[1], number


def _ask_of_rooms(kit: EventKit, chance: random.Random, name: str) -> list[Any]:
    """Return the answers to some random calls on names that are new for each *name*."""
    locks = [kit.lock(name + chance.choice("ab"), ttl=chance.choice((1000, 5000))) for _ in range(4)]
    century = 100 * 365 * 86_400
    calls: list[Callable[[], Any]] = [
        lambda: (lock := chance.choice(locks)).acquire() and lock.fence,
        lambda: (lock := chance.choice(locks)).renew() and lock.fence,
        lambda: (lock := chance.choice(locks)).release() and lock.fence,
        lambda: kit.limit(name, count=chance.choice((3, 5)), per=century).acquire(),
        lambda: kit.limit(name, rate=chance.choice((0.001, 0.002)), burst=chance.choice((2, 3.5))).acquire(),
        lambda: kit.results.save(name + chance.choice("ab"), chance.random(), ttl=chance.choice((2000, 7000))),
        lambda: kit.results.get(name + chance.choice("ab"), "nothing"),
        kit.results.sweep,
        lambda: advance(kit, chance.choice((500, 1500, 5500)) + 100),
    ]
    answers = [chance.choice(calls)() for _ in range(60)]
    advance(kit, 100_000)
    kit.results.sweep()
    return answers


@pytest.mark.slow
def test_a_queue_answers_the_same_for_long(walk: Walk) -> None:
    """Five thousand steps of a queue have the same answers."""
    walk(QueueMachine, 100, 50, shrink=True)


@pytest.mark.slow
def test_a_stream_answers_the_same_for_long(walk: Walk) -> None:
    """Five thousand steps of a stream have the same answers."""
    walk(StreamOfBoth, 100, 50, shrink=True)
