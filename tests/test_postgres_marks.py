"""S2 and N2 with concurrent writers: publishers and readers held at each of their steps."""

import random
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any
from urllib.parse import parse_qs, urlsplit

import eventkit_postgres
import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg.sql import SQL, Identifier
from stepping import Held, install_halts

import eventkit
from eventkit.codec import Codec
from eventkit.conformance.threads import in_thread
from eventkit.conformance.urls import with_options
from eventkit.kit import Kit
from eventkit.operations.bulk import NotifyAll, PublishAll
from eventkit.operations.channel import ReadNotifications
from eventkit.operations.stream import ReadEvents


def _schema(url: str) -> str:
    [schema] = parse_qs(urlsplit(url).query)["schema"]
    return schema


@pytest.fixture
def driver(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """Return a plain connection of the driver."""
    with psycopg.connect(postgres_url.partition("?")[0]) as driver:
        yield driver
        if not driver.closed:
            driver.rollback()


@pytest.fixture
def kit(postgres_url: str) -> Iterator[Any]:
    """Return a kit without a fallback poll."""
    with eventkit.connect(with_options(postgres_url, fallback_poll=86_400)) as kit:
        yield kit


Way = Callable[[Any, Any], object]


def _after_a_savepoint(kit: Any, tx: Any) -> None:
    tx.execute("SAVEPOINT inner_part")
    kit.stream("t").publish(1, tx=tx)
    tx.execute("ROLLBACK TO inner_part")
    kit.stream("t").publish(2, tx=tx)


def _to_many(kit: Any, tx: Any) -> None:
    for n in range(34):
        kit.stream(f"topic {n}").publish(None, tx=tx)
    kit.stream("t").publish(1, tx=tx)


def _collected(kit: Any, tx: Any) -> None:
    both = [("t", "1", None, None, None), ("u", "2", "k", None, None), ("t", "3", None, None, None)]
    kit._connection.execute(PublishAll(both), tx)


_WAYS: dict[str, Way] = {
    "publish": lambda kit, tx: kit.stream("t").publish(1, tx=tx),
    "publish_many": lambda kit, tx: kit.stream("t").publish_many([1, 2], tx=tx),
    "dedup": lambda kit, tx: kit.stream("t").publish(1, dedup=str(random.random()), tx=tx),
    "after a savepoint": _after_a_savepoint,
    "to many topics": _to_many,
    "collected": _collected,
}


class Scene:
    """Two publishers and a reader that can each be held at each step."""

    def __init__(self, url: str) -> None:
        self._connection = eventkit_postgres.connect(url)
        self._kit = Kit(self._connection)
        self._schema = _schema(url)
        base = url.partition("?")[0]
        with psycopg.connect(base) as driver:
            places = install_halts(driver, self._schema)
        self._publishers = [Held(base, places, 0), Held(base, places, 1)]
        self._reader = Held(base, places, 2)

    def play(self, kind: str, seed: int) -> None:
        """Run two transactions that end in any order while a reader polls."""
        chance = random.Random(seed)
        isolations = [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ]
        for publisher in self._publishers:
            publisher.prepare(self._way(kind, chance), chance.choice(isolations), chance.random() < 0.8)
        before = self._last(kind)
        seen: list[int] = [before]
        while active := [publisher for publisher in self._publishers if not publisher.done]:
            if self._reader.done:
                self._reader.prepare(lambda tx: seen.extend(self._read(kind, seen[-1], tx)), isolations[0], True)
            held = chance.choice([*active, self._reader])
            _advance(held, chance.choice((1, 2, 4, 8, 16)))
        while not self._reader.done:
            self._reader.step()
        seen += self._read(kind, seen[-1], None)
        assert seen[1:] == self._read(kind, before, None)

    def overtake(self, kind: str, first: int, then: int, last: int) -> None:
        """Publish after so many steps of a reader; publish and commit another event after so many more;
        commit the first one after the last number of steps.
        """
        before = self._last(kind)
        seen: list[int] = [before]
        early, late = self._publishers
        for publisher in self._publishers:
            publisher.prepare(self._way(kind, random.Random(first)), IsolationLevel.READ_COMMITTED, True)
        self._reader.prepare(lambda tx: seen.extend(self._read(kind, before, tx)), IsolationLevel.READ_COMMITTED, True)
        _advance(self._reader, first)
        while not early.returned:
            early.step()
        _advance(self._reader, then)
        _advance(late, 1000)
        _advance(self._reader, last)
        _advance(early, 1000)
        _advance(self._reader, 1000)
        seen += self._read(kind, seen[-1], None)
        assert seen[1:] == self._read(kind, before, None)

    def close(self) -> None:
        """Close all connections."""
        for held in (*self._publishers, self._reader):
            held.close()
        self._kit.close()

    def _last(self, kind: str) -> int:
        last = SQL("SELECT coalesce(max(id), 0) FROM {}").format(Identifier(self._schema, f"eventkit_{kind}"))
        with psycopg.connect(self._connection._address.conninfo) as driver:
            [(id,)] = driver.execute(last).fetchall()
            return int(id)

    def _way(self, kind: str, chance: random.Random) -> Callable[[Any], object]:
        if kind == "event":
            if chance.random() < 0.2:
                insert = SQL("INSERT INTO {} (topic, payload) VALUES ('t', '1')").format(
                    Identifier(self._schema, "eventkit_event")
                )
                return lambda tx: tx.execute(insert)
            way = _WAYS[chance.choice(list(_WAYS))]
            return lambda tx: way(self._kit, tx)
        if chance.random() < 0.5:
            return lambda tx: self._connection.execute(NotifyAll([("t", "1", None), ("u", "2", None)]), tx)
        return lambda tx: self._kit.channel("t").notify(1, tx=tx)

    def _read(self, kind: str, after: int, tx: Any) -> list[int]:
        codec = Codec(None, 1000)
        if kind == "event":
            return [event.offset for event in self._connection.execute(ReadEvents("t", after, 1000, codec, False), tx)]
        return [each.id for each in self._connection.execute(ReadNotifications(("t", "u"), after, 1000, codec), tx)]


def _advance(held: Held, steps: int) -> None:
    for _ in range(steps):
        if not held.done:
            held.step()


@pytest.fixture
def scene(postgres_url: str) -> Iterator[Scene]:
    """Return a scene of the test's own."""
    scene = Scene(postgres_url)
    yield scene
    scene.close()


@pytest.mark.parametrize("rounds", [25, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["event", "notification"])
def test_no_order_of_steps_skips(scene: Scene, kind: str, rounds: int) -> None:
    """A reader at a number never finds a lower one."""
    for seed in range(rounds):
        scene.play(kind, seed)


@pytest.mark.parametrize("kind", ["event", "notification"])
def test_what_a_reader_passes_by_commits_nowhere_below(scene: Scene, kind: str) -> None:
    """At each step of the reader, one publisher draws a number, another the next and commits, and the first commits."""
    for first, then, last in product(range(9), repeat=3):
        if first + then + last <= 8:
            scene.overtake(kind, first, then, last)


def test_a_plain_insert_is_marked(kit: Any, driver: Any, postgres_url: str) -> None:
    """Readers of every topic stay below the number of an open transaction."""
    stream = kit.stream("orders")
    insert = SQL("INSERT INTO {} (topic, payload) VALUES ('orders', '\"early\"')")
    driver.execute(insert.format(Identifier(_schema(postgres_url), "eventkit_event")))
    late = stream.publish("late, and committed first")
    other = kit.stream("others").publish("later still")
    assert stream.read() == kit.stream("others").read() == []
    driver.commit()
    assert [event.payload for event in stream.read()] == ["early", "late, and committed first"]
    assert [stream.head(), kit.stream("others").head()] == [late, other]


def test_what_was_collected_is_marked(kit: Any, driver: Any) -> None:
    """Readers of each of its topics stay below, and those of another do not wait."""
    topics = ("orders", "others")
    kit._connection.execute(PublishAll([(topic, '"early"', None, None, None) for topic in topics]), driver)
    for topic in (*topics, "third"):
        kit.stream(topic).publish("late, and committed first")
    assert [len(kit.stream(topic).read()) for topic in (*topics, "third")] == [0, 0, 1]
    driver.commit()
    for topic in topics:
        assert [event.payload for event in kit.stream(topic).read()] == ["early", "late, and committed first"]


def test_a_prepared_transaction_keeps_its_marks(kit: Any, driver: Any, postgres_url: str) -> None:
    """They stay when the connection that prepared it is gone; subscribers have all events soon after its end."""
    stream = kit.stream("orders")
    events = stream.subscribe()
    received = in_thread(lambda: [next(events).payload for _ in range(2)])
    driver.tpc_begin(driver.xid(1, _schema(postgres_url), "marks"))
    driver.execute("SET LOCAL eventkit.notify_off = 'on'")
    early = stream.publish("early", tx=driver)
    driver.tpc_prepare()
    assert stream.publish("late, and committed first") > early
    assert stream.read() == []
    driver.close()
    time.sleep(0.1)
    assert not received.done()
    with psycopg.connect(postgres_url.partition("?")[0], autocommit=True) as another:
        [xid] = [xid for xid in another.tpc_recover() if xid.gtrid == _schema(postgres_url)]
        another.tpc_commit(xid)
    assert received.result(5) == ["early", "late, and committed first"]


def test_transactions_elsewhere_delay_no_reader(kit: Any, driver: Any, postgres_url: str) -> None:
    """A writer of other tables, a publisher of another topic or schema; all events arrive while they last."""
    driver.isolation_level = IsolationLevel.REPEATABLE_READ
    driver.execute("CREATE TEMPORARY TABLE unrelated AS SELECT 1")
    other_url = postgres_url.replace("schema=", "schema=other_")
    delays = []
    with eventkit.connect(other_url) as other, other.transaction() as there, kit.transaction() as tx:
        other.stream("orders").publish("open", tx=there)
        kit.stream("others").publish("open", tx=tx)
        events, heard = kit.stream("orders").subscribe(), kit.channel("orders").listen()
        for n in range(50):
            following = [in_thread(lambda: (next(events).payload, time.monotonic())) for _ in range(1)]
            following += [in_thread(lambda: (next(heard).payload, time.monotonic()))]
            time.sleep(0.01)
            began = time.monotonic()
            kit.stream("orders").publish(n)
            kit.channel("orders").notify(n)
            for payload, moment in [future.result(5) for future in following]:
                assert payload == n
                delays.append(moment - began)
        events.close()
        heard.close()
    driver.rollback()
    driver.execute(SQL("DROP SCHEMA {} CASCADE").format(Identifier(_schema(other_url))))
    driver.commit()
    assert statistics.median(delays) < 0.1
