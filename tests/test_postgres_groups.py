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
from eventkit import EventKit, LeaseLost, NewEvent
from eventkit.conformance import proves
from eventkit.operations import Operation, Rows
from eventkit.operations.consumer_group import BalanceGroup, JoinGroup, RemoveGroup, SaveMember
from eventkit.operations.position import ReadPosition

TTL = 10_000
SAVE_STEPS, TAKE_STEPS, JOIN_STEPS = 2, 6, 6
"""The statements of a save, of a takeover, and of a join, with their commits."""
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


@proves("S11", "S16")
@pytest.mark.parametrize("exists", [False, True])
def test_a_join_and_a_removal_leave_a_whole_group_or_none(kit: EventKit, emptied_url: str, exists: bool) -> None:
    """Also if one of them runs between two statements of the other; the next member joins in any case."""
    execute = kit._connection.execute  # type: ignore[attr-defined]
    for round, (before, joins_first) in enumerate(itertools.product(range(JOIN_STEPS), [True, False])):
        group = f"group {round}"
        if exists:
            execute(JoinGroup("orders", group, "holder", 1, TTL, False, 1, None, 0))
        both = [
            Stepped(emptied_url, JoinGroup("orders", group, "holder", 2, TTL, False, 1, None, 0)),
            Stepped(emptied_url, RemoveGroup("orders", group)),
        ]
        first, second = both if joins_first else reversed(both)
        try:
            for stepped in [first] * before + [second] * JOIN_STEPS:
                stepped.step()
            deadline = time.monotonic() + 30
            while not (first.done and second.done):
                assert time.monotonic() < deadline, round
                first.step()
                second.step()
        finally:
            first.close()
            second.close()
        assert execute(JoinGroup("orders", group, "holder", 3, TTL, False, 1, None, 0)) == 1
        assert [len(one.partitions) for one in kit.stream("orders").groups()] == [1]
        assert execute(RemoveGroup("orders", group))


def test_keys_are_read_from_the_index_alone(kit: EventKit, emptied_url: str) -> None:
    """Only a key that is longer than its part in the index is read from the table."""
    address = parse(emptied_url)
    kit.stream("orders").publish_many([NewEvent({"n": n}, key=f"key {n}") for n in range(2000)])
    with psycopg.connect(address.conninfo, autocommit=True) as driver:
        driver.execute(f'SET search_path = "{address.schema}"'.encode())
        driver.execute("VACUUM ANALYZE eventkit_event")
        body = driver.execute("SELECT prosrc FROM pg_proc WHERE oid = 'eventkit_keys_after'::regproc").fetchone()
        assert body
        query = body[0].partition("RETURN QUERY")[2].partition(";")[0]
        for place, value in (("$1", "'orders'"), ("$2", "1000"), ("$3", "100"), ("settled", "1000000")):
            query = query.replace(place, value)
        [[[explained]]] = driver.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}".encode()).fetchall()
    plan = explained["Plan"]["Plans"][0]
    assert (plan["Node Type"], plan["Index Name"]) == ("Index Only Scan", "eventkit_event_topic")
    assert (plan["Actual Rows"], plan["Heap Fetches"]) == (100, 0)
    assert [looked["Actual Loops"] for looked in plan["Plans"]] == [0]


def _lapse(url: str) -> None:
    address = parse(url)
    with psycopg.connect(address.conninfo, autocommit=True) as driver:
        driver.execute(
            f"UPDATE \"{address.schema}\".eventkit_consumer_lease SET until = now() - interval '1 s'".encode()
        )
