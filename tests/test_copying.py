"""Moving house, between databases of every kind: `eventkit.copy`."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import eventkit_migrations
import pytest
from moving import Places, run_sql
from postgres_server import drop_schema

import eventkit
from eventkit import copying
from eventkit.conformance import proves
from eventkit.testing import advance

PROGRAM = Path(__file__).with_name("moving.py")

ROUTES = [(here, there) for here in ("sqlite", "postgres") for there in ("sqlite", "postgres")]
routes = pytest.mark.parametrize("route", ROUTES, ids=[f"{here}-to-{there}" for here, there in ROUTES])


@pytest.fixture
def places(tmp_path: Path, postgres_url: str, postgres: str) -> Iterator[Places]:
    """Fresh databases, of which those on Postgres are dropped after the test."""
    places = Places(tmp_path, postgres_url)
    yield places
    for schema in places.schemas():
        drop_schema(postgres, schema)


@contextmanager
def moved(places: Places, route: tuple[str, str]) -> Iterator[tuple[eventkit.EventKit, Any]]:
    """A kit to fill, and a function that gives the kit of its copy."""
    here, there = (places.fresh(kind) for kind in route)
    kits: list[eventkit.EventKit] = []

    def move() -> eventkit.EventKit:
        eventkit.copy(here, there)
        kits.append(eventkit.connect(there))
        return kits[-1]

    with eventkit.connect(here) as kit:
        yield kit, move
    for copy in kits:
        copy.close()


@routes
@proves("K8")
def test_a_lease_is_held_across_the_move(places: Places, route: tuple[str, str]) -> None:
    """The worker that had a task says on the new side what became of it; nobody else gets it meanwhile."""
    with moved(places, route) as (kit, move):
        kit.queue("emails").enqueue_many([1, 2, 3])
        [first, second] = kit.queue("emails").claim("worker", limit=2)
        emails = move().queue("emails")
        assert [task.payload for task in emails.claim("other", limit=9)] == [3]
        assert emails.extend(first, 60)
        assert emails.ack(first)
        assert emails.retry(second, delay=0)
        [again] = emails.claim("other")
        assert (again.id, again.payload, again.attempt) == (second.id, 2, 2)


@routes
@proves("K8")
def test_a_lease_lapses_on_the_other_side(places: Places, route: tuple[str, str]) -> None:
    """A worker that did not survive the move loses its task, with the attempts that it has had."""
    with moved(places, route) as (kit, move):
        kit.queue("emails").enqueue("lost", max_attempts=2)
        [lost] = kit.queue("emails").claim("worker", lease=30)
        copy = move()
        advance(copy, 31)
        [found] = copy.queue("emails").claim("other")
        assert (found.id, found.attempt) == (lost.id, 2)
        assert not copy.queue("emails").ack(lost)


@routes
@proves("K8")
def test_a_consumer_goes_on_where_it_was(places: Places, route: tuple[str, str]) -> None:
    """Offsets are what they were, also where events were pruned, and the next ones lie above."""
    with moved(places, route) as (kit, move):
        orders = kit.stream("orders")
        offsets = orders.publish_many(range(1200))
        kit.stream("others").publish("between")
        orders.publish("dup", dedup="one")
        last = kit.stream("gone").publish("gone")
        kit.stream("gone").prune(max_keep=0)
        orders.save_offset("search", offsets[599])
        orders.prune(max_keep=1191)
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
    """A key that a task holds, in whatever state, or that is reserved for one that is gone, is still not free."""
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
        copy = move()
        there = copy.queue("emails")
        for key, id in (("done", kept), ("dead", dead), ("ready", ready)):
            assert there.enqueue("again", key=key) == eventkit.Enqueued(id, False)
        assert copy.queue("plain").enqueue("again", key="gone") == eventkit.Enqueued(gone, False)
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
def test_a_key_is_kept_by_each_of_the_tasks_that_had_it(places: Places, route: tuple[str, str]) -> None:
    """Tasks that are done are copied one and all, although one key was theirs, and is another one's by now."""
    with moved(places, route) as (kit, move):
        queue = kit.queue("emails")
        queue.configure(keep_done=3600, key_ttl=0)
        for _ in range(3):
            queue.enqueue("same", key="same")
            [task] = queue.claim("worker")
            queue.ack(task)
        queue.enqueue("same", key="same")
        there = move().queue("emails")
        assert len(there.list("done")) == 3
        assert not there.enqueue("same", key="same").created


@routes
@proves("K8")
def test_a_schedule_fires_once(places: Places, route: tuple[str, str]) -> None:
    """What has fired at the source does not fire again, and what is due next fires on the new side."""
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
    """Handles that were configured in the test below."""
    return [kit.queue("emails"), kit.stream("orders"), kit.channel("alerts"), kit.inbox("shop")]


@routes
@proves("K8")
def test_everything_else_is_what_it_was(places: Places, route: tuple[str, str]) -> None:
    """Settings, locks with their fences, limits, results, inboxes and notifications."""
    with moved(places, route) as (kit, move):
        kit.queue("emails").configure(rate=1 / 3, burst=2.5, max_size=7, retry=eventkit.Fixed(3), dead_letter_to="dead")
        kit.stream("orders").configure(retain=60, keep_unconsumed=False)
        kit.channel("alerts").configure(retain=None)
        kit.inbox("shop").configure(retain=3600)
        configured = [handle.settings() for handle in _configured(kit)]
        kit.queue("emails").pause()
        held, free = kit.lock("held"), kit.lock("free")
        assert held.acquire()
        assert free.acquire()
        fence = free.fence
        free.release()
        assert kit.rate_limit("login", 1, 86_400)
        assert kit.token_bucket("api", 0.001, 1)
        kit.results.save("answer", {"is": [42, "ünïcödé \u0000", 0.1]})
        with kit.transaction() as tx:
            assert kit.inbox("shop").once("message", tx)
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
        assert not copy.rate_limit("login", 1, 86_400)
        assert not copy.token_bucket("api", 0.001, 1)
        assert copy.results.get("answer") == {"is": [42, "ünïcödé \u0000", 0.1]}
        with copy.transaction() as tx:
            assert not copy.inbox("shop").once("message", tx)
        assert copy.channel("alerts").notify("third") > started
        with copy.channel("alerts").listen(start=0) as heard:
            assert [next(heard).payload for _ in range(3)] == ["first", "second", "third"]


@routes
@proves("K8")
def test_an_ordered_outbox_keeps_its_order(places: Places, route: tuple[str, str]) -> None:
    """A message waits for the one before it of its key, on whichever side that is delivered."""
    with moved(places, route) as (kit, move):
        heard: list[str] = []
        with kit.transaction() as tx:
            for payload in ("a1", "a2", "b1"):
                kit.outbox("mail", ordered=True).add(tx, payload, key=payload[0])
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
    """eventkit's tables at an SQLite database, and their columns with their types.

    But for two: what tells a database from its copy, and what is put aside for a batch, which whoever writes it puts
    aside again.
    """
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    names = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'eventkit_*' "
        "AND name NOT IN ('eventkit_version', 'eventkit_identity', 'eventkit_staged')"
    ).fetchall()
    columns: dict[str, list[str]] = {
        name: connection.execute("SELECT name || ' ' || type FROM pragma_table_info(?)", (name,)).fetchall()
        for (name,) in names
    }
    connection.close()
    return {name: [column for (column,) in found] for name, found in columns.items()}


@proves("K8")
def test_every_column_of_every_table_arrives(places: Places) -> None:
    """By way of Postgres and back: a value that no default would give, in each column that there is."""
    source, between, back = places.fresh("sqlite"), places.fresh("postgres"), places.fresh("sqlite")
    eventkit.connect(source).close()
    values = {"TEXT": "'\"x\"'", "INTEGER": "1700000000123", "REAL": "0.1"}
    small = {"priority": "7", "attempt": "7", "lapsed": "1", "paused": "1", "history": "1", "keep_unconsumed": "0"}
    statements = []
    for table, columns in tables(source).items():
        names = [column.split()[0] for column in columns]
        row = [small.get(name, values[kind]) for name, kind in (column.split() for column in columns)]
        statements.append(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(row)})")
    run_sql(source, *statements)
    # A task of this state holds its key, and then there is no reservation beside it.
    run_sql(source, "UPDATE eventkit_task SET state = 'done'")
    copied = eventkit.copy(source, between)
    assert copied == dict.fromkeys(tables(source), 1)
    assert eventkit.copy(between, back) == copied
    for table in tables(source):
        assert run_sql(back, f"SELECT * FROM {table}") == run_sql(source, f"SELECT * FROM {table}"), table


@routes
@proves("K8")
def test_a_copy_is_repeated_without_harm(places: Places, route: tuple[str, str]) -> None:
    """One that is whole is found whole, and what the source has in addition by now is added."""
    here, there = (places.fresh(kind) for kind in route)
    with eventkit.connect(here) as kit:
        kit.queue("emails").enqueue("first", key="first")
        first = eventkit.copy(here, there)
        assert eventkit.copy(here, there) == first
        kit.queue("emails").enqueue("second")
    assert eventkit.copy(here, there)["eventkit_task"] == 2


@routes
@proves("K8")
def test_what_is_not_a_copy_is_not_written_to(places: Places, route: tuple[str, str]) -> None:
    """A database in use, or a copy that was worked on, is refused before anything is changed."""
    here, there = (places.fresh(kind) for kind in route)
    with eventkit.connect(here) as kit:
        kit.queue("emails").enqueue("first")
        kit.stream("orders").publish("order")
    with eventkit.connect(there) as used:
        used.queue("emails").enqueue("somebody else's")
        with pytest.raises(eventkit.CopyDiffers, match=r"in eventkit_task .* downgrade") as raised:
            eventkit.copy(here, there)
        assert raised.value.table == "eventkit_task"
        assert raised.value.expected is not None
        assert raised.value.expected[0] == 1
        assert raised.value.found is not None
        assert "somebody else's" in raised.value.found[12]
        assert used.stream("orders").head() == 0
    eventkit_migrations.downgrade(there, "base")
    eventkit.copy(here, there)
    with eventkit.connect(there) as used, used.transaction() as tx:
        used.inbox("shop").once("mine", tx)
    with pytest.raises(eventkit.CopyDiffers, match=r"in eventkit_inbox the source has no row"):
        eventkit.copy(here, there)


@proves("K8")
def test_a_source_that_is_not_there_is_not_made(places: Places) -> None:
    """A misspelt URL leaves nothing behind."""
    here = places.fresh("sqlite")
    with pytest.raises(eventkit.EventkitError):
        eventkit.copy(here, places.fresh("postgres"))
    assert not Path(here.removeprefix("sqlite:///")).exists()
    with pytest.raises(ValueError, match="same database"):
        eventkit.copy(here, here)


@routes
@proves("K8")
def test_a_worker_that_was_there_first_finds_what_arrives(places: Places, route: tuple[str, str]) -> None:
    """A target that has been looked at and had nothing is as good as a new one."""
    here, there = (places.fresh(kind) for kind in route)
    with eventkit.connect(here) as kit:
        kit.queue("emails").enqueue("first")
    with eventkit.connect(there) as early:
        assert early.queue("emails").claim("worker") == []
        time.sleep(0.2)  # A claim remembers where ready tasks begin, and begins no later than a moment ago.
        assert early.queue("emails").claim("worker") == []
        eventkit.copy(here, there)
        assert [task.payload for task in early.queue("emails").claim("worker")] == ["first"]


@routes
@proves("K8")
def test_who_writes_meanwhile_is_noticed(
    places: Places, route: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that a worker claims after it was copied is found when both are compared, and the error helps."""
    here, there = (places.fresh(kind) for kind in route)
    with eventkit.connect(here) as kit:
        kit.queue("emails").enqueue("first")
        verified = copying._verified

        def late(*arguments: Any) -> int:
            kit.queue("emails").claim("worker")
            answer: int = verified(*arguments)
            return answer

        monkeypatch.setattr("eventkit.copying._verified", late)
        with pytest.raises(eventkit.CopyDiffers, match=r"eventkit_task .*'leased'.*somebody has written.*copy again"):
            eventkit.copy(here, there)


def copy_until(reports: int, source: str, target: str, output: Path) -> int:
    """Copy in a process of its own, kill it soon after so many reports of progress, and say how many there were.

    -1 for a copy that was whole before.
    """
    with output.open("wb") as file:
        process = subprocess.Popen([sys.executable, PROGRAM, source, target], stdout=file)
    while process.poll() is None and output.read_bytes().count(b".") < reports:
        time.sleep(0.001)
    time.sleep(random.uniform(0, 0.05))
    process.kill()
    ended = process.wait()
    said = output.read_bytes()
    assert b"finished" in said or ended == -signal.SIGKILL, "a copy ended with an error"
    return -1 if b"finished" in said else said.count(b".")


def kill_often(places: Places, route: tuple[str, str], output: Path, kills: int) -> None:
    """Kill copies at any moment, repeat them until one is whole, and begin anew, until so many were killed."""
    source, target = (places.fresh(kind) for kind in route)
    with eventkit.connect(source) as kit:
        kit.stream("orders").publish_many(range(6000))
        kit.queue("emails").enqueue_many([eventkit.NewTask(number, key=str(number)) for number in range(6000)])
        kit.queue("emails").claim("worker", limit=500)
        with kit.transaction() as tx:
            for number in range(1000):
                kit.inbox("shop").once(str(number), tx)
    reports: list[str] = []
    whole = eventkit.copy(source, target, progress=lambda table, rows: reports.append(table))
    eventkit_migrations.downgrade(target, "base")
    killed = on_the_way = 0
    while killed < kills or not on_the_way:
        reached = copy_until(random.randrange(len(reports)), source, target, output)
        if reached < 0:
            assert eventkit.copy(source, target) == whole
            eventkit_migrations.downgrade(target, "base")
        else:
            killed += 1
            on_the_way += reached > 0
        assert killed < 10 * kills, "no copy was killed on its way"
    assert eventkit.copy(source, target) == whole


@pytest.mark.parametrize("route", [("sqlite", "postgres"), ("postgres", "sqlite")], ids=["to-postgres", "to-sqlite"])
@proves("K8")
def test_a_killed_copy_is_repeated(places: Places, route: tuple[str, str], tmp_path: Path) -> None:
    """Three copies are killed, at whatever they were doing."""
    kill_often(places, route, tmp_path / "output", 3)


@pytest.mark.slow
@routes
@proves("K8")
def test_two_hundred_killed_copies_are_repeated(places: Places, route: tuple[str, str], tmp_path: Path) -> None:
    """Fifty copies of each route are killed, at whatever they were doing."""
    kill_often(places, route, tmp_path / "output", 50)
