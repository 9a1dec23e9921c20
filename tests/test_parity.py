"""Random work on SQLite and on Postgres at once: every answer is the same, apart from ids and times.

The machines are those of the suite, so that every answer is also the model's.  Calls come one after the other,
because the databases may differ when several write at once.

Two kits look like one: every call is made on both.  The contract leaves some values to a database: ids and offsets are
numbers of its own, in the same order; moments are of its own clock; the token of a claim is random.  Answers are those
of the first kit, and arguments are translated for the second one.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

import eventkit
from eventkit import EventKit
from eventkit.conformance.queue_calls import TICK, Ground
from eventkit.conformance.queue_machine import QueueMachine
from eventkit.conformance.stream_machine import StreamMachine
from eventkit.operations import Operation
from eventkit.testing import advance
from eventkit.values import Enqueued, Event, Notification, Task

_CLOSE = 40.0
"""Seconds by which two moments may differ that are the same: some, of the hundred that make up a tick."""

_TAKES_A_NUMBER: dict[str, tuple[str, int | str]] = {
    "read": ("offsets", 0),
    "save_offset": ("offsets", 1),
    "seek": ("offsets", 1),
    "subscribe": ("offsets", "start"),
    "cancel": ("ids", 0),
    "get": ("ids", 0),
    "requeue": ("ids", 0),
}
_GIVES_NUMBERS = {
    "publish": "offsets",
    "publish_many": "offsets",
    "head": "offsets",
    "offset": "offsets",
    "notify": "notifications",
    "ack_many": "ids",
}
_OF_TWO_SIDES = ("publish", "claim", "notify", "execute", "__enter__", "__next__")
"""Attributes that mark an object with further calls, instead of a value."""


class Numbers:
    """The numbers that both sides gave to the same things; 0 is before the first."""

    def __init__(self, ours: list[int] | None = None, theirs: list[int] | None = None) -> None:
        self._ours = ours or [0]
        self._theirs = theirs or [0]

    def copy(self) -> Numbers:
        """Return a copy of the numbers, to restore when a transaction is rolled back."""
        return Numbers(self._ours.copy(), self._theirs.copy())

    def meet(self, ours: int, theirs: int) -> None:
        """Check that the two are of the same thing, as before, or fall into the same gap."""
        place = bisect_left(self._ours, ours)
        if self._ours[place : place + 1] == [ours]:
            assert self._theirs[place] == theirs, f"{ours} is {self._theirs[place]}, not {theirs}"
        else:
            assert place == bisect_left(self._theirs, theirs), f"{ours} and {theirs} are in different places"
            assert self._theirs[place : place + 1] != [theirs], f"{theirs} was something else than {ours} before"
            self._ours.insert(place, ours)
            self._theirs.insert(place, theirs)

    def translated(self, ours: int) -> int:
        """Return the second side's number; one that was never given is as far behind the last one that was."""
        place = bisect_right(self._ours, ours) - 1
        theirs = self._theirs[place] + ours - self._ours[place]
        self.meet(ours, theirs)
        return theirs

    def same_place(self, ours: int, theirs: int) -> bool:
        """Return whether as many numbers lie before both."""
        return bisect_right(self._ours, ours) == bisect_right(self._theirs, theirs)


class Acquaintance:
    """The names that the two sides give to the same things."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset all numbers."""
        self.numbers = {"offsets": Numbers(), "ids": Numbers(), "notifications": Numbers()}
        self._tasks: dict[tuple[int, int], Task[Any]] = {}

    def copy(self) -> dict[str, Numbers]:
        """Return a copy of the numbers."""
        return {kind: numbers.copy() for kind, numbers in self.numbers.items()}

    def translated(self, value: Any) -> Any:
        """Return an argument, or a list of them, for the other side."""
        match value:
            case Twin():
                return value.theirs
            case Task():
                return self._tasks[value.id, value.token]
            case list():
                return [self.translated(item) for item in value]
        return value

    def arguments(
        self, name: str, given: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a call for the other side."""
        places: dict[Any, Any] = dict(enumerate(given)) | keywords
        kind, where = _TAKES_A_NUMBER.get(name, ("", ""))
        for place, value in places.items():
            if kind and place == where and isinstance(value, int | list):
                number = self.numbers[kind].translated
                places[place] = number(value) if isinstance(value, int) else [number(one) for one in value]
            else:
                places[place] = self.translated(value)
        return [places[place] for place in range(len(given))], {keyword: places[keyword] for keyword in keywords}

    def compare(self, name: str, ours: Any, theirs: Any) -> None:
        """Check that the answers of a call, or parts of them, are the same."""
        assert type(ours) is type(theirs), f"{name}: {ours!r} and {theirs!r}"
        if name == "offset_at":
            assert self.numbers["offsets"].same_place(ours, theirs), f"{name}: {ours} and {theirs}"
        elif isinstance(ours, int) and name in _GIVES_NUMBERS:
            self.numbers[_GIVES_NUMBERS[name]].meet(ours, theirs)
        elif isinstance(ours, Enqueued):
            self.numbers["ids"].meet(ours.id, theirs.id)
            assert ours.created is theirs.created
        elif isinstance(ours, datetime):
            assert abs(ours - theirs) < timedelta(seconds=_CLOSE), f"{name}: {ours} and {theirs}"
        elif isinstance(ours, list):
            assert len(ours) == len(theirs), f"{name}: {ours!r} and {theirs!r}"
            for our, their in zip(ours, theirs, strict=True):
                self.compare(name, our, their)
        elif isinstance(ours, msgspec.Struct):
            self._compare_fields(ours, theirs)
        else:
            assert ours == theirs, f"{name}: {ours!r} and {theirs!r}"

    def _compare_fields(self, ours: Any, theirs: Any) -> None:
        if isinstance(ours, Task):
            self._tasks[ours.id, ours.token] = theirs
        if isinstance(ours, Event) and ours.stream == "eventkit.tasks":
            self._compare_steps(ours.payload, theirs.payload)
            theirs = msgspec.structs.replace(theirs, key=ours.key, payload=ours.payload)
        for field in ours.__struct_fields__:
            our, their = getattr(ours, field), getattr(theirs, field)
            if field in ("id", "offset"):
                numbers = "notifications" if isinstance(ours, Notification) else "ids" if field == "id" else "offsets"
                self.numbers[numbers].meet(our, their)
            elif our is not None and their is not None and (field.endswith("_ms") or field == "oldest_ready_age"):
                apart = abs(our - their) / (1000 if field.endswith("_ms") else 1)
                assert apart < _CLOSE, f"{field} of {ours!r} and {theirs!r}"
            elif field != "token":
                assert our == their, f"{field} of {ours!r} and {theirs!r}"

    def _compare_steps(self, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
        """Compare the events of a step of a task, whose id is in the event's key as well."""
        assert ours.keys() == theirs.keys()
        for field, our in ours.items():
            if field == "id":
                self.numbers["ids"].meet(our, theirs[field])
            elif field.endswith(("_ms", "_at")) and our is not None:
                assert abs(our - theirs[field]) / 1000 < _CLOSE, f"{field} of {ours} and {theirs}"
            else:
                assert our == theirs[field], f"{field} of {ours} and {theirs}"

    def compare_errors(self, ours: BaseException | None, theirs: BaseException | None) -> None:
        """Check that both calls succeeded, or both failed in the same way."""
        assert type(ours) is type(theirs), f"{ours!r} and {theirs!r}"
        if isinstance(ours, eventkit.Truncated) and isinstance(theirs, eventkit.Truncated):
            assert self.numbers["offsets"].translated(ours.first - 1) == theirs.first - 1
            self.numbers["offsets"].meet(ours.last, theirs.last)
        else:
            assert str(ours) == str(theirs)


class Twin:
    """Two objects of the same kind on which the same calls are made."""

    def __init__(self, ours: Any, theirs: Any, known: Acquaintance) -> None:
        self.ours = ours
        self.theirs = theirs
        self._known = known
        self._rolled_back_to: dict[str, Numbers] | None = None

    def __getattr__(self, name: str) -> Any:
        ours, theirs = getattr(self.ours, name), getattr(self.theirs, name)
        if not callable(ours):
            return self._answer(name, ours, theirs)

        def call(*given: Any, **keywords: Any) -> Any:
            there, there_named = self._known.arguments(name, given, keywords)
            if isinstance(keywords.get("tx"), Twin):
                keywords["tx"] = keywords["tx"].ours
            answer = self._both(name, lambda: ours(*given, **keywords), lambda: theirs(*there, **there_named))
            if name == "transaction":
                answer._rolled_back_to = self._known.copy()
            return answer

        return call

    def execute(self, statement: str | Operation[Any]) -> None:
        """Execute a savepoint, or an operation that tests use by itself."""
        if statement == f"SAVEPOINT {SAVEPOINT}":
            self._rolled_back_to = self._known.copy()
        elif statement == f"ROLLBACK TO SAVEPOINT {SAVEPOINT}" and self._rolled_back_to is not None:
            self._known.numbers = self._rolled_back_to
        self.ours.execute(statement)
        self.theirs.execute(statement)

    def __iter__(self) -> Twin:
        return self

    def __next__(self) -> Any:
        return self._both("", lambda: next(self.ours), lambda: next(self.theirs))

    def __enter__(self) -> Any:
        ours, theirs = self.ours.__enter__(), self.theirs.__enter__()
        if isinstance(ours, Task):  # the one that handling() was given, whose lease may have lapsed long ago
            assert theirs is self._known.translated(ours)
            return ours
        return self if ours is self.ours else self._answer("", ours, theirs)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool | None:
        if error is not None and self._rolled_back_to is not None:
            self._known.numbers = self._rolled_back_to
        done = self._both(
            "", lambda: self.ours.__exit__(kind, error, trace), lambda: self.theirs.__exit__(kind, error, trace)
        )
        return bool(done)

    def _both(self, name: str, ours: Callable[[], Any], theirs: Callable[[], Any]) -> Any:
        """Return the answers of both, or raise the error that both raise."""
        our, our_error = _outcome(ours)
        their, their_error = _outcome(theirs)
        self._known.compare_errors(our_error, their_error)
        if our_error is not None:
            raise our_error
        return self._answer(name, our, their)

    def _answer(self, name: str, ours: Any, theirs: Any) -> Any:
        if any(hasattr(ours, method) for method in _OF_TWO_SIDES) and not isinstance(ours, list):
            return Twin(ours, theirs, self._known)
        self._known.compare(name, ours, theirs)
        return ours


SAVEPOINT = "model"
"""The savepoint that the machines of the suite make."""


def _outcome(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return call(), None
    except Exception as error:
        return None, error


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


@pytest.mark.parametrize("machine", [QueueMachine, StreamOfBoth])
@pytest.mark.parametrize("runs", [25, pytest.param(100, marks=pytest.mark.slow)])
def test_a_machine_gets_the_same_answers(walk: Walk, machine: type[Any], runs: int) -> None:
    """Random calls in random order have the same answers; the long run also finds the shortest failing one."""
    walk(machine, runs, 30 if runs == 25 else 50, shrink=runs == 100)


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
