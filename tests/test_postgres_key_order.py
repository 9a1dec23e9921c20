"""One task of a key at a time, for every interleaving of claims, ends and producers.

Several sessions carry out their plans statement by statement, in a random order, and wait within the functions of
groups.  A statement that waits for another session is left alone until it has returned.
"""

import random
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

import psycopg
import pytest
from eventkit_postgres.statements import Statements, fetch, statements

import eventkit
from eventkit.codec import Codec
from eventkit.operations import Operation, Plan, Rows
from eventkit.operations.claim import Ack, Claim, fresh_token
from eventkit.operations.coordination import AddMessage
from eventkit.operations.finish import Fail, Release, Retry
from eventkit.operations.queue import Cancel
from eventkit.values import Task

QUEUE = "outbox:keys"
LIVE = "state IN ('scheduled', 'ready', 'leased')"


def dawdle(driver: psycopg.Connection[Any], schema: str) -> None:
    """Make the functions of groups wait for a random time after each of their statements."""
    for name in ("claimed_in_groups", "release_group"):
        [(definition,)] = driver.execute(
            "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = %s::regnamespace AND proname = %s",
            (schema, f"eventkit_{name}"),
        ).fetchall()
        head, begin, body = definition.partition("\nBEGIN\n")
        place = r"^BEGIN$|;$(?!\s*(?:GET DIAGNOSTICS|IF FOUND))"  # Sleeping changes what these two read.
        slow = re.sub(place, r"\g<0> PERFORM pg_sleep(random() * 0.004);", f"{begin}{body}", flags=re.MULTILINE)
        driver.execute((head + slow).encode())


class Session:
    """A session that runs one operation after another, one statement at a time."""

    def __init__(self, url: str, known: Statements) -> None:
        self.driver = psycopg.connect(url, autocommit=True)
        self._known = known
        self._thread = ThreadPoolExecutor(1)
        self._plan: Plan[Any] | None = None
        self._under_way: Future[Any] | None = None
        self._step: Operation[Any] | None = None
        self._commit = True
        self._then: Callable[[Any], None] = lambda answer: None

    @property
    def idle(self) -> bool:
        """Return whether the session has nothing to continue."""
        return self._plan is None

    def begin(self, operation: Operation[Any], then: Callable[[Any], None], commit: bool = True) -> None:
        """Begin *operation* with the next step; *then* gets the answer when it is committed."""
        self._plan, self._then, self._commit = operation.plan(), then, commit
        self._under_way = self._thread.submit(self.driver.execute, "BEGIN ISOLATION LEVEL READ COMMITTED")
        self._step = None

    def go_on(self) -> None:
        """Take the next step, unless the last one has not returned."""
        assert self._under_way is not None
        assert self._plan is not None
        wait([self._under_way], 0.01)
        if not self._under_way.done():
            return
        result = self._under_way.result()
        try:
            self._step = next(self._plan) if self._step is None else self._plan.send(result)
        except StopIteration as end:
            self._under_way = self._thread.submit(self._end, end.value)
            wait([self._under_way], 0.01)
            self._plan = _ended()
            self._step = None
            return
        self._under_way = self._thread.submit(self._fetch, self._step)

    def settle(self) -> None:
        """Finish: the end of the transaction has returned."""
        assert self._under_way is not None
        answer = self._under_way.result(10)
        self._plan = None
        if self._commit:
            self._then(answer)

    @property
    def ending(self) -> bool:
        """Return whether only the end of the transaction is left to wait for."""
        return self._plan is not None and self._plan.gi_code is _ended.__code__

    def close(self) -> None:
        """Close the connection."""
        self._thread.shutdown()
        self.driver.close()

    def _fetch(self, step: Operation[Any]) -> Rows:
        return fetch(self.driver, self._known, step)

    def _end(self, answer: Any) -> Any:
        self.driver.execute("COMMIT" if self._commit else "ROLLBACK")
        return answer


def _ended() -> Plan[Any]:
    yield from ()
    return None


class Ordered:
    """The sessions, their tasks, and the checks."""

    def __init__(self, url: str, schema: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.keys = self.chance.choice(("ab", "abcdefgh"))
        known = statements(schema)
        self.sessions = [Session(url, known) for _ in range(6)]
        self.witness = psycopg.connect(url, autocommit=True)
        self.task = f'"{schema}".eventkit_task'
        self.held: list[Task[Any]] = []
        self.claims = 0

    def ask(self, condition: str) -> list[Any]:
        """Return ids and keys of the tasks that satisfy *condition*."""
        return self.witness.execute(f"SELECT id, group_key FROM {self.task} WHERE {condition} ORDER BY id").fetchall()  # type: ignore[arg-type]

    def begin_something(self, session: Session) -> None:
        """Add or claim tasks, or end one of those that are held."""
        chance = self.chance
        way = chance.random()
        if way < 0.35:
            key = chance.choice(self.keys)
            session.begin(AddMessage(QUEUE, "1", None, key, ""), lambda _: None, chance.random() < 0.8)
        elif way < 0.7 or not self.held:
            earlier = self.ask(LIVE)
            lease = chance.choice((3, 60_000))
            claim = Claim(QUEUE, "worker", chance.randint(1, 3), lease, fresh_token(), Codec())
            session.begin(claim, partial(self.claimed, earlier=earlier), chance.random() < 0.9)
        else:
            task = self.held.pop(chance.randrange(len(self.held)))
            ends: list[Operation[Any]] = [Ack(task.id, task.token)] * 3
            ends += [Retry(task.id, task.token, delay, "again") for delay in (0, 3)]
            ends += [Fail(task.id, task.token, "broken"), Release(task.id, task.token), Cancel(QUEUE, task.id, True)]
            commit = chance.random() < 0.9
            session.begin(chance.choice(ends), lambda _: None, commit)
            if not commit:
                self.held.append(task)

    def claimed(self, tasks: list[Task[Any]], earlier: list[Any]) -> None:
        """Check that no task of *earlier*, which precede the claim, is still there and before one of *tasks*."""
        self.claims += len(tasks)
        self.held += tasks
        still = {id for id, _ in self.ask(LIVE)}
        for task in tasks:
            before = [id for id, key in earlier if key == task.group and id < task.id and id in still]
            assert not before, f"{task.id} has overtaken {before}"

    def check(self) -> None:
        """Check that no key has two tasks under way."""
        leased = [key for _, key in self.ask("state = 'leased'")]
        assert len(leased) == len(set(leased)), leased

    def run(self, steps: int) -> None:
        """Take *count* steps, and let all sessions end."""
        for n in range(steps):
            session = self.chance.choice(self.sessions)
            if session.idle:
                self.begin_something(session)
            self.step(session)
            if n % 5 == 0:
                self.check()
        deadline = time.monotonic() + 10
        while not all(session.idle for session in self.sessions):
            for session in self.sessions:
                if not session.idle:
                    self.step(session)
            assert time.monotonic() < deadline, "they wait for each other"

    def step(self, session: Session) -> None:
        """Let *session* take one step."""
        if session.ending:
            session.settle()
        else:
            session.go_on()
            if session.ending:
                session.settle()

    def drain(self) -> None:
        """Check that all remaining tasks can be claimed and acked now without a long wait."""
        session = self.sessions[0]
        idle_since = time.monotonic()
        # A mark may hide a task for a second where a statement was delayed before it left its own.
        while self.ask(LIVE) and time.monotonic() < idle_since + 1.5:
            done = self.claims
            for task in self.held:
                self._at_once(session, Ack(task.id, task.token))
            self.held.clear()
            claim = Claim(QUEUE, "worker", 10, None, fresh_token(), Codec())
            self._at_once(session, claim, partial(self.claimed, earlier=self.ask(LIVE)))
            if self.claims > done:
                idle_since = time.monotonic()
        left = self.witness.execute(
            f"SELECT id, group_key, state, run_at, wake_at, now() FROM {self.task} WHERE {LIVE}"
        )  # type: ignore[arg-type]
        assert left.fetchall() == [], "tasks remain"

    def _at_once(self, session: Session, operation: Operation[Any], then: Any = lambda _: None) -> None:
        session.begin(operation, then)
        while not session.idle:
            self.step(session)

    def close(self) -> None:
        """Close the connections."""
        for session in self.sessions:
            session.close()
        self.witness.close()


@pytest.fixture
def place(postgres_url: str) -> Iterator[tuple[str, str]]:
    """Return the database, and a fresh schema in it."""
    with eventkit.connect(postgres_url) as kit:
        kit.queue(QUEUE).configure(max_attempts=2, ordered=True)
        url, _, schema = postgres_url.rpartition("schema=")
        with psycopg.connect(url.rstrip("?&"), autocommit=True) as driver:
            dawdle(driver, schema)
        yield url.rstrip("?&"), schema


def race(place: tuple[str, str], seeds: range, steps: int) -> None:
    """Run with a random order, once for each seed."""
    claims = 0
    for seed in seeds:
        ordered = Ordered(*place, seed)
        try:
            ordered.run(steps)
            ordered.drain()
            claims += ordered.claims
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            ordered.close()
    assert claims > len(seeds)


def test_one_task_of_a_key_at_a_time(place: tuple[str, str]) -> None:
    """They come in the order of their ids, and none is left out."""
    race(place, range(10), 150)


@pytest.mark.slow
def test_one_task_of_a_key_at_a_time_for_long(place: tuple[str, str]) -> None:
    """More orders are tried."""
    race(place, range(100, 250), 300)


def test_the_end_of_a_task_waits_for_a_claim_of_its_key(place: tuple[str, str]) -> None:
    """It then releases the next task, which that claim has held back."""
    url, claim = "?schema=".join(place), Claim(QUEUE, "w", 1, None, fresh_token(), Codec())
    with ThreadPoolExecutor(1) as pool, eventkit.connect(url) as kit:
        execute: Callable[..., Any] = kit._connection.execute  # type: ignore[attr-defined]
        execute(AddMessage(QUEUE, "1", None, "a", "first"))
        [first] = execute(claim)
        execute(AddMessage(QUEUE, "2", None, "a", "second"))
        with kit.transaction() as tx:
            assert execute(claim, tx) == []
            ended = pool.submit(execute, Ack(first.id, first.token))
            assert wait([ended], 0.2).not_done
        assert (ended.result(), len(execute(claim))) == (True, 1)
