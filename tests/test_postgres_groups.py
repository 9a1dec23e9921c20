"""Taking over a partition of a consumer group on Postgres, in every order of the statements: S12, S14."""

import itertools
import time
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from eventkit_postgres.address import parse
from eventkit_postgres.statements import fetch, statements

import eventkit
from eventkit import EventKit, LeaseLost
from eventkit.conformance import proves
from eventkit.operations import Operation, Rows
from eventkit.operations.consumer_group import BalanceGroup, JoinGroup, SaveMember
from eventkit.operations.position import ReadPosition

TTL = 10_000
SAVE_STEPS, TAKE_STEPS = 2, 6
"""The statements of a save and of a takeover, with their commits."""
BLOCKED_S = 0.03
"""Seconds after which a statement is taken to wait for the other transaction."""


class Stepped:
    """A transaction that executes one statement of an operation at a time, and commits in the last step."""

    def __init__(self, url: str, operation: Operation[Any]) -> None:
        self._address = parse(url)
        self._driver = psycopg.connect(self._address.conninfo)
        self._plan: Generator[Operation[Any], Rows, Any] = operation.plan()
        self._thread = ThreadPoolExecutor(1)
        self._running: Future[None] = self._thread.submit(lambda: None)
        self._step: Operation[Any] | None = next(self._plan)
        self.answer: Any = None
        self.done = False

    def step(self) -> None:
        """Begin the next statement when the one before it has returned, and wait for it unless it is blocked."""
        self._running = self._thread.submit(self._next)
        deadline = time.monotonic() + BLOCKED_S
        while not self._running.done() and time.monotonic() < deadline:
            time.sleep(0.0005)

    def _next(self) -> None:
        if self.done:
            return
        if self._step is None:
            self._driver.commit()
            self.done = True
            return
        rows = fetch(self._driver, statements(self._address.schema), self._step)
        try:
            self._step = self._plan.send(rows)
        except StopIteration as stopped:
            self.answer, self._step = stopped.value, None
        except LeaseLost as lost:
            self.answer, self.done = lost, True
            self._driver.rollback()

    def close(self) -> None:
        """End the transaction."""
        self._thread.shutdown()
        self._driver.close()


@pytest.fixture
def kit(emptied_url: str) -> Iterator[EventKit]:
    """Return a kit on an emptied schema."""
    with eventkit.connect(emptied_url) as kit:
        yield kit


@proves("S12", "S14")
def test_a_save_and_a_takeover_in_every_order(kit: EventKit, emptied_url: str) -> None:
    """Either the save commits, and the new member begins after it, or it fails, and the new member has the event."""
    stream = kit.stream("orders")
    outcomes = set()
    for round, saves in enumerate(itertools.combinations(range(SAVE_STEPS + TAKE_STEPS), SAVE_STEPS)):
        group, [offset] = f"group {round}", stream.publish_many([None])
        position = kit._connection.execute(ReadPosition("orders", offset))  # type: ignore[attr-defined]
        execute = kit._connection.execute  # type: ignore[attr-defined]
        for token in (1, 2):
            execute(JoinGroup("orders", group, "holder", token, TTL, False, 1, None, offset - 1))
            if token == 1:
                assert execute(BalanceGroup("orders", group, 1, frozenset())).held == {1: (offset - 1, False)}
                _lapse(emptied_url)
        saving = Stepped(emptied_url, SaveMember("orders", group, 1, position, [(1, offset)], [], [], []))
        taking = Stepped(emptied_url, BalanceGroup("orders", group, 2, frozenset()))
        try:
            for place in range(SAVE_STEPS + TAKE_STEPS):
                (saving if place in saves else taking).step()
            deadline = time.monotonic() + 30
            while not (saving.done and taking.done):
                assert time.monotonic() < deadline, saves
                saving.step()
                taking.step()
            held = taking.answer.held or execute(BalanceGroup("orders", group, 2, frozenset())).held
            saved = not isinstance(saving.answer, LeaseLost)
            assert held == {1: (offset if saved else offset - 1, False)}, saves
            outcomes.add(saved)
        finally:
            saving.close()
            taking.close()
    assert outcomes == {True, False}


def _lapse(url: str) -> None:
    address = parse(url)
    with psycopg.connect(address.conninfo, autocommit=True) as driver:
        driver.execute(
            f"UPDATE \"{address.schema}\".eventkit_consumer_lease SET until = now() - interval '1 s'".encode()
        )
