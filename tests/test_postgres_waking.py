"""W1 and W2 with concurrent writers: no order of a commit and of falling asleep loses a wake.

The writer is held at each of its steps, the sleeper goes step by step, and there is no fallback poll.
`stepping` has both.
"""

import random
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any, LiteralString, cast
from unittest.mock import MagicMock
from urllib.parse import parse_qs, urlsplit

import eventkit_postgres
import psycopg
import pytest
from awaited_changes import CHANGES, Change
from eventkit_postgres import waking
from eventkit_postgres.address import parse
from eventkit_postgres.waking import Pause, Waiter, Waiters, sleep
from psycopg import IsolationLevel
from psycopg.sql import SQL, Identifier
from stepping import Held, Sleeper, install_halts

from eventkit.conformance.threads import eventually
from eventkit.conformance.urls import with_options
from eventkit.kit import Kit
from eventkit.operations import Operation, Probe, Readiness
from eventkit.operations.channel import NotificationsAhead
from eventkit.operations.claim import TasksAhead
from eventkit.operations.coordination import ResultAhead
from eventkit.operations.schedule import SchedulesAhead
from eventkit.operations.stream import EventsAhead
from eventkit.plans import Stop
from eventkit.protocols import Connection
from eventkit.testing import advance

ISOLATIONS = [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE]

OVERTAKEN = ("publish", "publish_many", "notify")


class Within:
    """A kit's connection whose every call is made in one transaction."""

    max_payload = 1000

    def __init__(self, connection: Any, tx: Any) -> None:
        self._connection = connection
        self._tx = tx

    def execute(self, operation: Operation[Any], tx: None = None) -> Any:
        """Return the answer."""
        return self._connection.execute(operation, self._tx)


class Stage:
    """A database with one writer and any number of sleepers in one process."""

    def __init__(self, url: str) -> None:
        self.connection = eventkit_postgres.connect(with_options(url, fallback_poll=86_400))
        self.kit = Kit(self.connection)
        base, [schema] = url.partition("?")[0], parse_qs(urlsplit(url).query)["schema"]
        with psycopg.connect(base) as driver:
            places = install_halts(driver, schema)
        self.held = Held(base, places)
        self._rounds = 0
        first = self.sleeper(EventsAhead("warm up", 0))
        eventually(lambda: self.connection._listener.hearing)
        first.close()

    def play(self, change: Change, isolation: IsolationLevel, commit: bool, overtaken: bool, seed: int) -> None:
        """Make one change that is committed or rolled back, while one sleeper or several fall asleep."""
        chance = random.Random(seed)
        self._rounds += 1
        name = f"round {self._rounds}"
        given = change.prepare(self.kit, name)
        self.held.prepare(
            lambda tx: change.make(Kit(cast(Connection, Within(self.connection, tx))), name, given), isolation, commit
        )
        sleepers = [self.sleeper(change.probe(name)) for _ in range(chance.choice((1, 1, 2, 3)))]
        haste = 0.5
        try:
            overtaken_at = chance.randrange(1, 8) if overtaken else None
            step = 0
            while not self.held.done:
                able = [sleeper for sleeper in sleepers if not (sleeper.asleep or sleeper.awake)]
                if chance.random() < 0.2:
                    haste = chance.choice((0.05, 0.5, 0.95))
                if able and chance.random() > haste:
                    chance.choice(able).step()
                else:
                    step += 1
                    self.held.step()
                    if step == overtaken_at:
                        change.make(self.kit, name, None)
                assert self.held.done or overtaken or not any(sleeper.awake for sleeper in sleepers)
            if overtaken_at is not None and step < overtaken_at:
                change.make(self.kit, name, None)
            if not commit and not overtaken:
                for sleeper in sleepers:
                    sleeper.fall_asleep()
                change.make(self.kit, name, given)
            for sleeper in sleepers:
                sleeper.wake()
        finally:
            for sleeper in sleepers:
                sleeper.close()

    def pass_through(self, change: Change, before: int, between: int) -> None:
        """Make a change after so many steps of a sleeper, and commit it after so many more."""
        self._rounds += 1
        name = f"round {self._rounds}"
        given = change.prepare(self.kit, name)
        self.held.prepare(
            lambda tx: change.make(Kit(cast(Connection, Within(self.connection, tx))), name, given), ISOLATIONS[0], True
        )
        sleeper = self.sleeper(change.probe(name))
        for _ in range(before):
            sleeper.step()
        while not self.held.returned:
            self.held.step()
        for _ in range(between):
            sleeper.step()
        self.held.step()
        sleeper.wake()
        sleeper.close()

    def close(self) -> None:
        """Close all connections."""
        self.held.close()
        self.kit.close()

    def sleeper(self, probe: Probe) -> Sleeper:
        """Return a sleeper before its first look."""
        return Sleeper(self.connection, self.connection._listener, probe)


@pytest.fixture
def stage(postgres_url: str) -> Iterator[Stage]:
    """Return a stage of the test's own."""
    stage = Stage(postgres_url)
    yield stage
    stage.close()


@pytest.mark.parametrize("rounds", [3, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", CHANGES)
def test_no_order_of_steps_loses_a_wake(stage: Stage, what: str, rounds: int) -> None:
    """Committed, the change wakes all sleepers; rolled back, it leaves them asleep, and the next one wakes them."""
    for isolation in ISOLATIONS:
        for commit in (True, False):
            for seed in range(rounds):
                stage.play(CHANGES[what], isolation, commit, False, seed)


@pytest.mark.parametrize("what", ["publish", "publish to many", "notify", "enqueue", "release", "ack makes room"])
def test_a_change_between_any_two_steps_of_a_sleeper_wakes(stage: Stage, what: str) -> None:
    """The change and its commit come after each combination of the sleeper's steps."""
    for before in range(10):
        for between in range(10):
            stage.pass_through(CHANGES[what], before, between)


@pytest.mark.parametrize("rounds", [3, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", OVERTAKEN)
def test_what_was_overtaken_is_not_waited_for(stage: Stage, what: str, rounds: int) -> None:
    """A later commit is received as soon as the transaction before it is committed or rolled back."""
    for isolation in ISOLATIONS:
        for commit in (True, False):
            for seed in range(rounds):
                stage.play(CHANGES[what], isolation, commit, True, seed)


def test_what_has_settled_is_ready_beside_what_has_not(stage: Stage) -> None:
    """A commit that an open transaction holds up does not hide the one before that transaction."""
    with stage.kit.transaction() as tx:
        for channel, within in (("c", None), ("d", tx), ("d", None)):
            stage.kit.stream("t").publish(1, tx=within)
            stage.kit.channel(channel).notify(1, tx=within)
        assert stage.connection.execute(EventsAhead("t", 0)).ready
        assert stage.connection.execute(NotificationsAhead(("c", "d"), 0)).ready


def test_a_waiter_probes_again_after_another_has_registered(stage: Stage) -> None:
    """Two wait for the same; a commit between the look of one and the registration of the other wakes both."""
    early, late = stage.sleeper(EventsAhead("t", 0)), stage.sleeper(EventsAhead("t", 0))
    for _ in range(2):  # has looked, and not processed the answer yet
        late.step()
    stage.held.prepare(lambda tx: stage.kit.stream("t").publish(1, tx=tx), ISOLATIONS[0], True)
    while not stage.held.returned:
        stage.held.step()
    for _ in range(5):  # a pause, a look, and the registration
        early.step()
    stage.held.step()
    early.wake()
    late.wake()
    early.close()
    late.close()


def test_a_registration_that_changes_during_a_look_is_followed_by_another_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection heard the notifications in between.  The registration stays while the waiter sleeps."""
    monkeypatch.setattr(waking, "monotonic", count(0, 9).__next__)
    waiters, probe = Waiters(), EventsAhead("t", 0)
    waiter = Waiter(probe, lambda: None)
    waiters.add(waiter)
    subjects = sorted(probe.subjects)
    waiters.register(subjects, waiters.next_registration(), set())
    plan = sleep(
        cast(Any, SimpleNamespace(waiters=waiters, closing=False, hearing=True, error=None)), waiter, None, Stop()
    )
    assert next(plan) is probe
    waiters.invalidate()
    waiters.register(subjects, waiters.next_registration(), set())
    nothing = Readiness(ready=False)
    assert plan.send(nothing) is probe
    assert plan.send(nothing) == Pause(None)
    assert waiters.forget()[0] == waiters.missing(waiter) == []
    waiters.wake_up(waiter)
    assert waiters.forget()[0] == waiters.missing(waiter) == subjects


def test_a_listener_that_cannot_listen_pauses_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can connect meanwhile, as through a pooler that delivers no notifications.  Once it listens, it reads them."""
    listener = waking.Listener(parse("postgresql://nowhere/db"))
    listener._wake_receiver = listener._wake_sender = MagicMock()
    select, watch = MagicMock(side_effect=[None] * 8 + [ZeroDivisionError]), MagicMock()
    monkeypatch.setattr(waking, "select", MagicMock(select=select))
    monkeypatch.setattr(listener, "_connect", MagicMock())
    monkeypatch.setattr(listener, "_listen", MagicMock(side_effect=[OSError, OSError, None] + [OSError] * 6))
    monkeypatch.setattr(listener, "_watch", watch)
    with pytest.raises(ZeroDivisionError):
        listener._run()
    assert [call.args[3] for call in select.call_args_list] == [0.05, 0.1, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    watch.assert_called_once()


def _ask(url: str, sql: LiteralString) -> int:
    """Return the number that a statement about the sleepers of a schema gives."""
    base, [schema] = url.partition("?")[0], parse_qs(urlsplit(url).query)["schema"]
    with psycopg.connect(base) as driver:
        [(number,)] = driver.execute(SQL(sql).format(Identifier(schema, "eventkit_sleeper"))).fetchall()
        return int(number)


def test_no_notification_is_sent_when_all_have_left(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds also after two registered the same at once."""
    monkeypatch.setattr(waking, "_REFRESH", 1.0)
    stage = Stage(postgres_url)
    both = [stage.sleeper(EventsAhead("t", 0)), stage.sleeper(EventsAhead("t", 0))]
    for _ in range(12):
        for sleeper in both:
            sleeper.step()
    count = "SELECT count(*) FROM {} WHERE name = 'event:t'"
    assert _ask(postgres_url, count) == 1
    for sleeper in both:
        sleeper.close()
    eventually(lambda: not _ask(postgres_url, count))
    stage.close()


def test_a_process_that_stood_still_for_long_looks_when_it_goes_on(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its registration has expired, so publishers do not notify it."""
    monkeypatch.setattr(waking, "_REFRESH", 1.0)
    stage = Stage(postgres_url)
    sleeper = stage.sleeper(EventsAhead("t", 0))
    sleeper.fall_asleep()
    assert _ask(postgres_url, "UPDATE {} SET until = clock_timestamp() WHERE name = 'event:t' RETURNING 1") == 1
    stage.kit.stream("t").publish(1)
    sleeper.wake()
    sleeper.close()
    stage.close()


def test_a_task_in_other_hands_is_looked_at_every_now_and_then(stage: Stage) -> None:
    """The waiter pauses between looks, and waits no longer than the transaction that holds the task."""
    queue, probe = stage.kit.queue("q"), TasksAhead("q")
    for prepare in (lambda: queue.enqueue("ready"), lambda: queue.enqueue("due", delay=0.001)):
        prepare()
        eventually(lambda: stage.connection.execute(probe).ready)
        with pytest.raises(ZeroDivisionError), stage.kit.transaction() as tx:
            assert queue.claim("worker", tx=tx)
            held = stage.connection.execute(probe)
            assert not held.ready
            assert held.delay == 0.02
            raise ZeroDivisionError
        assert stage.connection.execute(probe).ready
        [task] = queue.claim("worker")
        queue.retry(task, delay=0)
        assert stage.connection.execute(probe).ready
        assert queue.receive()


def test_a_result_in_other_hands_is_looked_at_every_now_and_then(stage: Stage) -> None:
    """A lease that lapses before the commit of its ack is neither a death nor a reason to look without a pause."""
    queue = stage.kit.queue("q")
    id = queue.enqueue(1, max_attempts=1).id
    [task] = queue.claim("worker", lease=0.1)
    probe = ResultAhead(str(id), id)
    with pytest.raises(ZeroDivisionError), stage.kit.transaction() as tx:
        assert queue.ack(task, result=1, tx=tx)
        eventually(lambda: queue.get(id).state == "dead")  # by the clock
        held = stage.connection.execute(probe)
        assert not held.ready
        assert held.delay == 0.02
        raise ZeroDivisionError
    assert stage.connection.execute(probe).ready


def test_a_schedule_in_other_hands_is_looked_at_every_now_and_then(stage: Stage) -> None:
    """Another tick fires the other schedules without waiting, and no loop runs without a pause."""
    schedules, probe = stage.kit.schedules, SchedulesAhead()
    schedules.add("held", "@every 1h", "q")
    schedules.add("free", "@every 2h", "q")
    advance(stage.kit, 3600)
    assert stage.connection.execute(probe).ready
    with pytest.raises(ZeroDivisionError), stage.kit.transaction() as tx:
        assert schedules.update("held", payload=1, tx=tx)
        held = stage.connection.execute(probe)
        assert not held.ready
        assert held.delay == 0.02
        assert schedules.tick() == []
        raise ZeroDivisionError
    assert stage.connection.execute(probe).ready
    assert [fire.schedule for fire in schedules.tick()] == ["held"]
    assert not stage.connection.execute(probe).ready
    with pytest.raises(ZeroDivisionError), stage.kit.transaction() as tx:
        assert schedules.pause("held", tx=tx)
        assert [fire.schedule for fire in schedules.tick(schedules.upcoming("free")[0])] == ["free"]
        raise ZeroDivisionError
    assert stage.connection.execute(probe).delay > 3000
