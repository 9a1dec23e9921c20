"""`eventkit.testing`: fixtures for the tests of applications."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apps import *

import eventkit
from eventkit import App, Event, Message, Notification
from eventkit.app import AsyncTaskContext
from eventkit.conformance import proves
from eventkit.conformance.flavours import unwrapped
from eventkit.testing import advance, assert_enqueued, assert_published, drain, drain_async

SUITE = """
import pytest

import eventkit
from eventkit.testing import assert_enqueued, drain

pytest_plugins = ["eventkit.testing.fixtures"]
app = eventkit.App("sqlite:////nowhere/shop.db")


@app.task
def double(number: int) -> int:
    return 2 * number


@pytest.fixture(autouse=True)
def bound(kit):
    app.bind(kit)


def test_one(kit, eventkit_url):
    assert eventkit_url.startswith("SCHEME")
    handle = double.enqueue(21)
    assert_enqueued(kit, double, {"number": 21}, count=1)
    drain(app)
    assert handle.result(timeout=5) == 42


def test_two(kit):
    assert_enqueued(kit, double, count=0)
    double.enqueue(1)
    assert_enqueued(kit, double, {"number": 2})
"""


@proves("A8")
def test_everything_that_is_due_runs(
    app: Any, kit: Any, now: Callable[[Any], Any], drained: Callable[..., Any]
) -> None:
    """Events, notifications and tasks of the runs are handled, too; tasks that are not due stay."""
    seen: list[Any] = []

    @app.task
    def first(number: int) -> int:
        seen.append(number)
        return number

    @app.task(queue="other", batch=3)
    def rows(items: list[int]) -> None:
        seen.append(items)

    @app.subscriber("orders", consumer="search")
    async def index(event: Event[int]) -> None:
        seen.append(event.payload)

    @app.listener("alerts")
    def alert(notification: Notification[str]) -> None:
        seen.append(notification.payload)

    now(first.enqueue_many([{"number": 1}, first.options(delay=60).new(2)]))
    now(rows.enqueue_many([{"items": number} for number in range(4)]))
    kit.stream("orders").publish(5)
    kit.channel("alerts").notify("fire")
    ran = drained()
    assert seen == [1, [0, 1, 2], [3], 5, "fire"]
    assert [one.name for one in ran] == ["first", "rows", "rows", "rows", "rows", "index", "alert"]
    assert ran[0].result == 1
    assert drained() == []
    advance(kit, 60)
    [late] = drained()
    assert late.result == 2


@proves("A8")
def test_what_runs_may_bring_about_more(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same drain runs it until nothing is due; an endless chain is an error."""
    app = App()

    @app.task
    def count(down: int) -> None:
        if down:
            count.enqueue(down - 1)

    with eventkit.connect(url) as kit:
        app.bind(kit)
        count.enqueue(3)
        assert len(drain(app)) == 4
        count.enqueue(-1)
        monkeypatch.setattr(sys.modules[drain.__module__], "AT_MOST", 20)
        with pytest.raises(RuntimeError, match="does 'count' enqueue itself"):
            drain(app)


@proves("A8")
def test_what_a_function_raises_is_raised(
    app: Any, kit: Any, now: Callable[[Any], Any], drained: Callable[..., Any]
) -> None:
    """The task's failure is recorded first; tasks claimed with it are released unchanged."""

    @app.task
    def fail(how: str) -> None:
        raise KeyError(how)

    @app.subscriber("orders", consumer="search", then="skip")
    def index(event: Event[Any]) -> None:
        raise IndexError(event.payload)

    now(fail.enqueue_many([{"how": "one"}, {"how": "two"}]))
    with pytest.raises(KeyError, match="one"):
        drained()
    one, two = kit.queue("default").tasks()
    assert (one.state, one.attempt, two.state, two.attempt) == ("scheduled", 1, "ready", 0)
    kit.queue("default").purge()
    kit.stream("orders").publish(7)
    with pytest.raises(IndexError):
        drained()
    assert kit.stream("orders").offset("search") == 0


@proves("A8", "S13")
def test_a_drain_handles_the_events_of_a_group(app: Any, kit: Any, drained: Any) -> None:
    """A failed event goes to the stream of dead events, or stops its partition; a raised error saves nothing."""
    seen: list[int] = []

    @app.subscriber("orders", group="billing", max_attempts=2)
    def bill(event: Event[int]) -> None:
        seen.append(event.payload)
        if event.payload == 2:
            raise IndexError(event.payload)

    @app.subscriber("orders", group="shipping", max_attempts=1, then="stop")
    def ship(event: Event[int]) -> None:
        raise KeyError(event.payload)

    for number in (1, 2, 3):
        kit.stream("orders").publish(number, key="one")
    with pytest.raises(IndexError):
        drained()
    assert kit.stream("orders.dead").head() == 0
    assert len(drained(raising=False)) == 3
    assert seen == [1, 2, 2, 2, 3]
    assert [event.payload for event in kit.stream("orders.dead").read()] == [2]
    billing, shipping = kit.stream("orders").groups()
    assert (billing.lag, [one.state for one in shipping.partitions].count("stopped")) == (0, 1)


@proves("A8")
def test_a_drain_runs_in_no_database_by_accident(kit: Any, flavour: str, loop: Any, url: str) -> None:
    bare = unwrapped(kit)
    app = App("sqlite:////nowhere/shop.db")
    with pytest.raises(RuntimeError, match="app.bind\\(kit\\) first"):
        drain(app)
    app.bind(bare)

    @app.task
    async def later(ctx: AsyncTaskContext) -> str:
        return type(ctx.kit).__name__

    if flavour == "async":
        with pytest.raises(TypeError, match="await drain_async"):
            drain(app)
        return
    later.enqueue()
    with pytest.raises(TypeError, match="drain_async\\(app, async_kit\\)"):
        drain(app)
    assert kit.queue("default").get(1).attempt == 0

    async def both() -> list[Any]:
        with pytest.raises(TypeError, match="needs an async kit"):
            await drain_async(app)
        async with eventkit.connect_async(url) as other:
            return await drain_async(app, other)

    [ran] = asyncio.run(both())
    assert ran.result == "AsyncKit"


@proves("A8")
def test_assertions_say_what_is_there(app: Any, kit: Any, now: Callable[[Any], Any]) -> None:
    bare = unwrapped(kit)

    @app.task(queue="emails")
    def send(to: str, subject: str = "Hello") -> None: ...

    with pytest.raises(AssertionError, match="at least one of the tasks in queue 'emails', and found 0"):
        now(assert_enqueued(bare, "emails"))
    now(send.options(delay=30).enqueue("ann"))
    now(send.enqueue("bob", subject="Bye"))
    kit.queue("emails").enqueue("else")
    [ann] = now(assert_enqueued(bare, send, {"to": "ann"}))
    assert ann.state == "scheduled"
    assert len(now(assert_enqueued(bare, send, count=2))) == 2
    assert len(now(assert_enqueued(bare, "emails", count=3))) == 3
    now(assert_enqueued(bare, "emails", {"args": {"subject": "Bye"}}, count=1))
    with pytest.raises(AssertionError) as raised:
        now(assert_enqueued(bare, send, {"to": "cy"}))
    assert 'with {"task":"send","args":{"to":"cy"}}, and found 0' in str(raised.value)
    assert '(scheduled): {"task":"send","args":{"to":"ann"}}' in str(raised.value)

    kit.stream("orders").publish_many([eventkit.NewEvent({"id": 1, "sum": 2.5}, key="1"), {"id": 2}])
    [event] = now(assert_published(bare, "orders", {"id": 1}, key="1"))
    assert event.payload["sum"] == 2.5
    now(assert_published(bare, "orders", count=2))
    now(assert_published(bare, "orders", {"id": 3}, count=0))
    with pytest.raises(AssertionError, match="(?s)of key '2' with.*found 0.*key '1'"):
        now(assert_published(bare, "orders", {"id": 2}, key="2"))


@proves("A8")
@pytest.mark.parametrize("scheme", ["sqlite", "postgresql"])
def test_the_fixtures_give_a_fresh_database(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """They give a file, or a schema that is dropped, in the test suite of an application."""
    monkeypatch.delenv("EVENTKIT_TEST_URL", raising=False)
    if scheme == "postgresql":
        postgres = request.getfixturevalue("postgres")
        monkeypatch.setenv("EVENTKIT_TEST_URL", postgres)
        before = schemas(postgres)
    (tmp_path / "test_shop.py").write_text(SUITE.replace("SCHEME", scheme))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", str(tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout + ran.stderr
    assert 'with {"task":"double","args":{"number":2}}, and found 0; there is:' in ran.stdout
    if scheme == "postgresql":
        assert schemas(postgres) == before


def schemas(url: str) -> set[str]:
    """Return the schemas of the tests that have not been dropped."""
    import psycopg

    with psycopg.connect(url) as driver:
        return {name for (name,) in driver.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'test_%'")}


@proves("A8")
def test_another_database_is_no_mistake_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTKIT_TEST_URL", "mysql://localhost/shop")
    (tmp_path / "test_shop.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "EVENTKIT_TEST_URL is the URL of a Postgres database" in ran.stdout


@proves("A8", "O1")
def test_a_drain_delivers_outboxes(app: Any, kit: Any, drained: Callable[..., Any]) -> None:
    """In order; a delivery that fails is stored as a worker stores it."""
    delivered: list[Any] = []

    @app.outbox("mails", ordered=True)
    def deliver(message: Message[int]) -> None:
        if message.payload == 2 and message.attempt == 1:
            raise ConnectionError
        delivered.append(message.payload)

    for number in (1, 2, 3):
        kit.outbox("mails").add(number, key="ann")
    kit.outbox("mails").add(4)
    ran = drained(raising=False)
    assert sorted((one.name, one.message.payload, type(one.error)) for one in ran) == [
        ("deliver", 1, type(None)),
        ("deliver", 2, ConnectionError),
        ("deliver", 4, type(None)),
    ]
    advance(kit, 6)
    drained()
    assert delivered == [1, 4, 2, 3]
