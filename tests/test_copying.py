"""Copies between databases of every kind: `eventkit.copy`."""

from typing import Any

import apsw
import moving
import pytest
from moving import Places, moved, routes, run_sql

import eventkit
from eventkit.conformance import proves
from eventkit.testing import advance
from eventkit.values import Enqueued

places = moving.places


@routes
@proves("K8")
def test_a_lease_is_held_across_the_move(places: Places, route: tuple[str, str]) -> None:
    """The worker that holds a task finishes it on the target; a worker that did not survive the move loses its task."""
    with moved(places, route) as (kit, move):
        kit.queue("late").enqueue("lost", max_attempts=2)
        [lost] = kit.queue("late").claim("worker", lease=30)
        kit.queue("emails").enqueue_many([1, 2, 3])
        [first, second] = kit.queue("emails").claim("worker", limit=2)
        copy = move()
        emails, late = copy.queue("emails"), copy.queue("late")
        assert [task.payload for task in emails.claim("other", limit=9)] == [3]
        assert emails.extend(first, 60)
        assert emails.ack(first)
        assert emails.retry(second, delay=0)
        [again] = emails.claim("other")
        assert (again.id, again.payload, again.attempt) == (second.id, 2, 2)
        advance(copy, 31)
        [found] = late.claim("other")
        assert (found.id, found.attempt) == (lost.id, 2)
        assert not late.ack(lost)


@routes
@proves("K8")
def test_a_consumer_goes_on_where_it_was(places: Places, route: tuple[str, str]) -> None:
    """Offsets are kept, also where events were pruned, and the next ones lie above."""
    with moved(places, route) as (kit, move):
        orders = kit.stream("orders")
        offsets = orders.publish_many(range(1200))
        kit.stream("others").publish("between")
        orders.publish("dup", dedup="one")
        last = kit.stream("gone").publish("gone")
        kit.stream("gone").prune(keep_count=0)
        orders.save_offset("search", offsets[599])
        orders.prune(keep_count=1191)
        there = move().stream("orders")
        read = list(there.read(after=there.offset("search"), limit=9999))
        assert [event.payload for event in read] == [*range(600, 1200), "dup"]
        assert [event.offset for event in read[:600]] == offsets[600:]
        with pytest.raises(eventkit.Truncated):
            there.read(after=offsets[2])
        assert there.publish("new") > last
        assert there.publish("dup", dedup="one") == read[-1].offset
        assert [event.payload for event in there.read(after=read[-1].offset)] == ["new"]


@routes
@proves("K8")
def test_keys_are_refused_as_before(places: Places, route: tuple[str, str]) -> None:
    """A key held by a task in any state, or reserved for a deleted one, is not free on the target either."""
    with moved(places, route) as (kit, move):
        queue = kit.queue("emails")
        queue.configure(keep_done=3600)
        kit.queue("forgetful").configure(key_ttl=0)
        kept = queue.enqueue("done", key="done").id
        gone = kit.queue("plain").enqueue("gone", key="gone").id
        kit.queue("forgetful").enqueue("free", key="free")
        for name in ("emails", "plain", "forgetful"):
            [task] = kit.queue(name).claim("worker")
            assert kit.queue(name).ack(task)
        dead = queue.enqueue("dead", key="dead").id
        [task] = queue.claim("worker")
        queue.fail(task, "broken")
        ready = queue.enqueue("ready", key="ready").id
        several = kit.queue("several")
        several.configure(keep_done=3600, key_ttl=0)
        for _ in range(4):
            several.enqueue("same", key="same")
            if len(several.tasks("done")) < 3:
                [task] = several.claim("worker")
                several.ack(task)
        copy = move()
        assert len(copy.queue("several").tasks("done")) == 3, "also those whose key another task has now"
        assert not copy.queue("several").enqueue("same", key="same").created
        there = copy.queue("emails")
        for key, id in (("done", kept), ("dead", dead), ("ready", ready)):
            assert there.enqueue("again", key=key) == Enqueued(id, False)
        assert copy.queue("plain").enqueue("again", key="gone") == Enqueued(gone, False)
        assert copy.queue("forgetful").enqueue("again", key="free").created
        assert there.enqueue("new", key="new").id > ready
        [task] = there.claim("worker")
        assert task.id == ready
        assert there.ack(task)
        assert not there.enqueue("again", key="ready").created
        advance(copy, 90_000)
        assert there.enqueue("later", key="ready").created
        assert copy.queue("plain").enqueue("later", key="gone").created
        assert [one.id for one in there.dead()] == [dead]


@routes
@proves("K8")
def test_a_schedule_fires_once(places: Places, route: tuple[str, str]) -> None:
    """A schedule that fired at the source does not fire again, and its next fire comes on the target."""
    with moved(places, route) as (kit, move):
        kit.schedules.add("report", "@every 1h", "reports")
        advance(kit, 3601)
        assert len(kit.schedules.tick()) == 1
        before = kit.schedules.get("report")
        copy = move()
        assert copy.schedules.get("report") == before
        assert copy.schedules.tick() == []
        advance(copy, 3600)
        assert len(copy.schedules.tick()) == 1
        assert copy.queue("reports").size() == 2


def _configured(kit: eventkit.EventKit) -> list[Any]:
    """Return the handles that the test below configures."""
    return [kit.queue("emails"), kit.stream("orders"), kit.channel("alerts"), kit.inbox("shop")]


@routes
@proves("K8")
def test_everything_else_is_what_it_was(places: Places, route: tuple[str, str]) -> None:
    """Settings, locks with their fences, limits, results, inboxes and notifications are copied."""
    with moved(places, route) as (kit, move):
        kit.queue("emails").configure(rate=1 / 3, burst=2.5, max_size=7, retry=eventkit.Fixed(3), dead_letter_to="dead")
        kit.stream("orders").configure(keep=60, keep_unconsumed=False)
        kit.channel("alerts").configure(keep=None)
        kit.inbox("shop").configure(keep=3600)
        configured = [handle.settings() for handle in _configured(kit)]
        kit.queue("emails").pause()
        held, free = kit.lock("held"), kit.lock("free")
        assert held.acquire()
        assert free.acquire()
        fence = free.fence
        free.release()
        assert kit.limit("login", count=1, per=86_400).acquire()
        assert kit.limit("api", rate=0.001, burst=1).acquire()
        kit.results.save("answer", {"is": [42, "ünïcödé \u0000", 0.1]})
        with kit.transaction() as tx:
            assert kit.inbox("shop").once("message", tx=tx)
        kit.channel("alerts").notify("first")
        started = kit.channel("alerts").notify("second")
        copy = move()
        assert [handle.settings() for handle in _configured(copy)] == configured
        assert copy.queue("emails").stats().paused
        assert len(copy.queue("emails").enqueue_many(range(7))) == 7
        with pytest.raises(eventkit.QueueFull):
            copy.queue("emails").enqueue("one too many")
        with pytest.raises(eventkit.LockHeld):
            copy.lock("held").__enter__()
        again = copy.lock("free")
        assert again.acquire()
        assert (again.fence or 0) > (fence or 0) > 0
        assert not copy.limit("login", count=1, per=86_400).acquire()
        assert not copy.limit("api", rate=0.001, burst=1).acquire()
        assert copy.results.get("answer") == {"is": [42, "ünïcödé \u0000", 0.1]}
        with copy.transaction() as tx:
            assert not copy.inbox("shop").once("message", tx=tx)
        assert copy.channel("alerts").notify("third") > started
        with copy.channel("alerts").listen(start=0) as heard:
            assert [next(heard).payload for _ in range(3)] == ["first", "second", "third"]


@routes
@proves("K8")
def test_an_ordered_outbox_keeps_its_order(places: Places, route: tuple[str, str]) -> None:
    """A message waits for the one before it of its key, whether that is delivered at the source or the target."""
    with moved(places, route) as (kit, move):
        heard: list[str] = []
        with kit.transaction() as tx:
            for payload in ("a1", "a2", "b1"):
                kit.outbox("mail", ordered=True).add(payload, tx=tx, key=payload[0])
        copy = move()

        def deliver(message: eventkit.Message[Any]) -> None:
            heard.append(message.payload)
            if len(heard) == 3:
                outbox.stop()

        outbox = copy.outbox("mail", deliver=deliver, ordered=True)
        outbox.run()
        assert sorted(heard) == ["a1", "a2", "b1"]
        assert heard.index("a1") < heard.index("a2")


def tables(url: str) -> dict[str, list[str]]:
    """Return eventkit's tables at an SQLite database, and their columns with their types.

    It leaves out the tables that a copy leaves out: the identity of the database, its workers, sessions of
    browsers, and staged rows of a batch, which their writer stages again.
    """
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    names = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'eventkit_*' "
        "AND name NOT IN ('eventkit_version', 'eventkit_identity', 'eventkit_staged_rows', 'eventkit_worker', "
        "'eventkit_session', 'eventkit_consumer_lease')"
    ).fetchall()
    columns: dict[str, list[str]] = {
        name: connection.execute("SELECT name || ' ' || type FROM pragma_table_info(?)", (name,)).fetchall()
        for (name,) in names
    }
    connection.close()
    return {name: [column for (column,) in found] for name, found in columns.items()}


@proves("K8")
def test_every_column_of_every_table_arrives(places: Places) -> None:
    """Copied to Postgres and back, each column keeps a value that no default gives."""
    source, between, back = places.fresh("sqlite"), places.fresh("postgres"), places.fresh("sqlite")
    eventkit.connect(source).close()
    values = {"TEXT": "'\"x\"'", "INTEGER": "1700000000123", "REAL": "0.1"}
    small = {
        "priority": "7",
        "attempt": "7",
        "lapsed": "1",
        "paused": "1",
        "history": "1",
        "strict_keys": "1",
        "ordered": "1",
        "fair": "1",
        "held": "1",
        "blocks": "0",
        "keep_unconsumed": "0",
        "partition": "7",
        "partitions": "7",
        "max_parked": "7",
        "stopped": "1",
    }
    statements = []
    for table, columns in tables(source).items():
        names = [column.split()[0] for column in columns]
        row = [small.get(name, values[kind]) for name, kind in (column.split() for column in columns)]
        statements.append(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(row)})")
    run_sql(source, *statements)
    # A task of this state holds its key, so there is no reservation beside it.
    run_sql(source, "UPDATE eventkit_task SET state = 'done'")
    copied = eventkit.copy(source, between)
    assert copied == dict.fromkeys(tables(source), 1)
    assert eventkit.copy(between, back) == copied
    for table in tables(source):
        assert run_sql(back, f"SELECT * FROM {table}") == run_sql(source, f"SELECT * FROM {table}"), table
