"""Readers whose database goes back while they run: to a restored backup, or by the promotion of a standby."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster
from own_cluster import ask, eventually, succeeds
from test_postgres_standby import at, behind

import eventkit
from eventkit import DatabaseReplaced, NewEvent
from eventkit.conformance import proves
from eventkit.conformance.threads import in_thread, take
from eventkit.operations.position import ReadPosition
from eventkit.operations.stream import ResumePosition

RESTORE = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).backup(sqlite3.connect(sys.argv[2]))"


class File:
    """A SQLite file, which another process restores in place while it is in use."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._path, self._backup = folder / "shop.db", folder / "backup.db"
        self.url = f"sqlite:///{self._path}?fallback_poll=3600"

    def keep(self) -> None:
        """Take the state to go back to."""
        subprocess.run([sys.executable, "-c", RESTORE, self._path, self._backup], check=True)

    def go_back(self) -> None:
        """Go back to it."""
        subprocess.run([sys.executable, "-c", RESTORE, self._backup, self._path], check=True)


class Servers:
    """A primary, and a standby that is promoted after the primary, which was ahead of it, has ended."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._first = stack.enter_context(Cluster())
        self._second = stack.enter_context(Cluster(primary=self._first))
        self.url = f"{at(self._first.url, self._first, self._second)}?fallback_poll=3600&busy_timeout=2"

    def keep(self) -> None:
        """Cut the standby off from the primary."""
        eventually(lambda: behind(self._first) == behind(self._second), "the standby has followed")
        self._second.stop()

    def go_back(self) -> None:
        """Promote the standby."""
        self._first.stop("immediate")
        self._second.start()
        ask(self._second, "SELECT pg_promote()")


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Return a database that can go back."""
    with ExitStack() as stack:
        yield request.param(stack, tmp_path)


@proves("W6")
@pytest.mark.parametrize(
    ("place", "flavour", "meanwhile"),
    [
        pytest.param(kind, flavour, meanwhile, id=f"{name}-{flavour}-{meanwhile}")
        for name, kind, flavour, meanwhile in (
            ("restored", File, "sync", "asleep"),
            ("restored", File, "sync", "busy"),
            ("restored", File, "async", "asleep"),
            ("restored", File, "async", "busy"),
            ("promoted", Servers, "sync", "busy"),
            ("promoted", Servers, "async", "asleep"),
        )
    ],
    indirect=["place", "flavour"],
)
def test_readers_of_a_database_that_goes_back(
    place: Any, connect: Callable[..., Any], caplog: pytest.LogCaptureFixture, meanwhile: str
) -> None:
    """Readers get all events published afterwards, even with the offsets and content of lost events they have read."""
    kit = connect(place.url)
    stream, quiet, channel = kit.stream("t"), kit.stream("quiet"), kit.channel("c")
    [*_, saved] = stream.publish_many(["same"] * 5)
    quiet.publish("old")
    named, nameless, latest = stream.subscribe("c"), stream.subscribe(), quiet.subscribe(start="latest")
    heard = channel.listen()
    take(named, 5)
    sleeping = [in_thread(take, latest, 1), in_thread(take, named, 1)]
    eventually(lambda: stream.offset("c") == saved, "it is saved")
    place.keep()
    lost = stream.publish_many(["same"] * 100)
    for _ in range(100):
        channel.notify("same")
    assert sleeping.pop().result(30)[0].offset == lost[0]
    take(named, 99)
    take(nameless, 105)
    take(heard, 100)

    def read_on() -> None:
        sleeping.extend([in_thread(take, named, 200), in_thread(take, nameless, 1), in_thread(take, heard, 50)])

    if meanwhile == "asleep":
        read_on()
    place.go_back()
    published: list[int] = []
    eventually(lambda: succeeds(lambda: published.extend(stream.publish_many(["same"] * 50))), "there is a primary")
    published += stream.publish_many(["same"] * 150)
    fresh = quiet.publish("new")
    notified = [channel.notify("same") for _ in range(50)]
    if meanwhile == "busy":
        read_on()
    assert published[0] <= lost[-1] < published[-1]
    assert [event.offset for event in sleeping[1].result(30)] == published
    assert [event.offset for event in sleeping[0].result(30)] == [fresh]
    assert [notification.id for notification in sleeping[3].result(30)] == notified
    with pytest.raises(DatabaseReplaced, match="gone back: event .* of stream 't', which was read, is gone"):
        sleeping[2].result(30)
    assert [line for line in caplog.messages if "consumer 'c' of stream 't' continues" in line]
    for iterator in (named, nameless, latest, heard):
        iterator.close()
    assert stream.offset("c") == published[-2], "the last one was not handled"
    kit.close()


@proves("W6", "S15")
@pytest.mark.parametrize("place", [File, Servers], ids=["restored", "promoted"], indirect=True)
@pytest.mark.parametrize("meanwhile", ["asleep", "busy"])
def test_members_of_a_group_whose_database_goes_back(
    place: Any, caplog: pytest.LogCaptureFixture, meanwhile: str
) -> None:
    """They get all events published afterwards, even with the offsets of lost events that they have handled."""
    with eventkit.connect(place.url) as kit:
        stream = kit.stream("t")
        stream.publish_many([NewEvent("same", key=f"key {n}") for n in range(5)])
        member = stream.join("g", partitions=4)
        take(member, 5)
        sleeping = in_thread(take, member, 1)
        eventually(lambda: stream.groups()[0].lag == 0, "it is saved")
        place.keep()
        lost = [stream.publish("same", key="key 0")]
        assert sleeping.result(30)[0].offset == lost[0]
        lost += stream.publish_many([NewEvent("same", key=f"key {n}") for n in range(50)])
        take(member, 50)
        if meanwhile == "asleep":
            sleeping = in_thread(take, member, 120)
            eventually(lambda: stream.groups()[0].lag == 0, "it is saved")
        place.go_back()
        published: list[int] = []
        more = [NewEvent("same", key=f"key {n}") for n in range(120)]
        eventually(lambda: succeeds(lambda: published.extend(stream.publish_many(more))), "there is a primary")
        if meanwhile == "busy":
            sleeping = in_thread(take, member, 120)
        assert [event.offset for event in sleeping.result(30)] == published
        assert [line for line in caplog.messages if "group 'g' of stream 't'" in line]
        member.close()


@proves("W6")
@pytest.mark.parametrize(("column", "other"), [("payload", '"other"'), ("headers", '{"other": "1"}'), ("key", "other")])
@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_another_event_of_the_same_moment(
    request: pytest.FixtureRequest, tmp_path: Path, backend: str, column: str, other: str
) -> None:
    """The clock of a promoted standby may be behind, so the content identifies an event, too."""
    url = request.getfixturevalue("postgres_url") if backend == "postgres" else f"sqlite:///{tmp_path}/shop.db"
    schema = url.partition("schema=")[2] or "main"
    with eventkit.connect(url) as kit, kit.stream("t").subscribe(batch=1) as subscription:
        kit.stream("t").publish("same", key="same", headers={"same": "1"})
        assert next(subscription).offset
        kit.stream("t").publish("next")
        assert next(subscription).payload == "next"
        with kit.transaction() as tx:
            tx.execute(f"UPDATE {schema}.eventkit_event SET {column} = '{other}'")
        kit.stream("t").publish("third")
        with pytest.raises(DatabaseReplaced, match="is gone or is another one"):
            subscription.next(timeout=10)


@proves("W6")
def test_a_client_at_the_head_resumes_with_a_proof(tmp_path: Path) -> None:
    """It notices another event of the same offset later; a client beyond the head has no proof."""
    with eventkit.connect(f"sqlite:///{tmp_path}/shop.db") as kit:
        head = kit.stream("t").publish(1)
        execute: Any = kit._connection.execute  # type: ignore[attr-defined]
        resumed = [execute(ResumePosition("t", offset)).created for offset in (head, head + 1)]
        assert resumed == [execute(ReadPosition("t", head)).created, 0] != [0, 0]
