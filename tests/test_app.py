"""Declared tasks, and how they are enqueued."""

import asyncio
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from apps import *
from databases import on_both

import eventkit
from eventkit import App, AsyncApp, Blueprint, Event, Exponential, NewTask, Notification, TaskFailed, TimedOut
from eventkit.app import AsyncBlueprint
from eventkit.conformance import proves
from eventkit.conformance.flavours import unwrapped
from eventkit.retry import Delays
from eventkit.testing import advance

elsewhere = App()


@elsewhere.task
def send(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


@proves("A1")
def test_declaring_touches_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The app connects once, at its first use."""
    monkeypatch.chdir(tmp_path)
    app = App("sqlite:///shop.db")
    app.task(lambda to: to)  # a function like any other
    app.cron("@daily")(lambda: None)
    assert os.listdir(tmp_path) == []
    kits = []
    threads = [threading.Thread(target=lambda: kits.append(app.kit)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(kit) for kit in kits}) == 1
    app.close()
    app.close()
    with pytest.raises(eventkit.Closed):
        kits[0].maintain()
    app.kit.maintain()
    app.close()


@proves("A1")
def test_an_async_app_connects_by_itself(url: str) -> None:
    """It connects at its first use, once for each event loop; a worker beside it runs what it enqueues."""
    app = AsyncApp(url)

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    async def use(number: int) -> int:
        handles = await asyncio.gather(*(double.enqueue(number) for _ in range(3)))
        assert await double.handle(handles[0].id).status() == "ready"
        assert await app.connect() is app.kit
        worker = app.worker()
        working = asyncio.create_task(worker.serve())
        results = [await handle.result(timeout=60) for handle in handles]
        worker.stop()
        await working
        await app.close()
        await app.close()
        return sum(results)

    assert [asyncio.run(use(number)) for number in (1, 2)] == [6, 12]


@proves("A4")
def test_work_on_a_queue_of_declared_tasks_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = App()

    @app.task(queue="declared")
    def send() -> None: ...

    async def asynchronously() -> None:
        async with eventkit.connect_async(f"sqlite:///{tmp_path}/shop.db") as kit:
            await kit.queue("declared").work().aclose()

    with eventkit.connect(f"sqlite:///{tmp_path}/shop.db") as kit:
        kit.queue("plain").work().close()
        assert caplog.records == []
        kit.queue("declared").work().close()
        kit.work(["plain", ("declared", 2)]).close()
        asyncio.run(asynchronously())
    warned = ["queue 'declared', for which an App declares tasks" in record.message for record in caplog.records]
    assert warned == [True] * 3


FORKING = """
import os, sys, eventkit

app = eventkit.App(sys.argv[1])
task = app.task(name="task")(lambda: None)
task.enqueue()
if (child := os.fork()) == 0:
    try:
        os._exit(0 if task.enqueue().created else 1)
    except eventkit.Closed as error:
        os._exit(2 if "after the fork" in str(error) else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(app.kit.queue("default").tasks()))
app.close()
"""


@proves("A1")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork()")
def test_a_forked_child_connects_for_itself(url: str) -> None:
    """It connects where the database allows that; on SQLite, where writes could be lost, it raises."""
    ran = subprocess.run([sys.executable, "-c", FORKING, url], capture_output=True, text=True, timeout=60)
    assert ran.stdout.split() == (["2", "1"] if url.startswith("sqlite") else ["0", "2"]), ran.stderr


@proves("A1")
def test_an_app_without_a_database_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="bind\\(\\) a kit"):
        send.enqueue("ann")
    with pytest.raises(RuntimeError, match=r"await app\.connect\(\)"):
        _ = AsyncApp("sqlite:///shop.db").kit
    with pytest.raises(RuntimeError, match="give AsyncApp a URL"):
        asyncio.run(AsyncApp().connect())
    with pytest.raises(TypeError, match="bind\\(\\) takes a kit"):
        App().bind("sqlite:///shop.db")
    with (
        eventkit.connect(f"sqlite:///{tmp_path}/shop.db") as kit,
        pytest.raises(TypeError, match="App takes a kit that blocks"),
    ):
        AsyncApp().bind(kit)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="App takes a URL"):
        App(7)  # type: ignore[arg-type]


@proves("A2")
def test_a_call_is_a_plain_call() -> None:
    """Parameters may have the names of eventkit's own options."""
    app = App()

    @app.task
    async def later(to: str) -> str:
        return to

    assert send("ann") == "sent to ann"
    assert asyncio.run(later("ann")) == "ann"
    assert (send.__name__, send.__doc__, send.__module__) == ("send", "Send a mail.", __name__)
    assert pickle.loads(pickle.dumps(send)) is send


@proves("A2")
def test_a_task_is_enqueued_with_what_was_declared(app: Any, kit: Any, now: Callable[[Any], Any]) -> None:
    """Its name can be enqueued by any other program, too."""

    @app.task(queue="emails", max_attempts=5, key="{to}:{subject}")
    def send_email(to: str, subject: str = "Hello") -> None: ...

    @app.task(name="ship.it", key=lambda order, **others: str(order))
    async def ship(order: int, express: bool = False) -> None: ...

    handle = now(send_email.options(delay=30, priority=5, group="acme", headers={"tenant": "acme"}).enqueue("ann"))
    info = kit.queue("emails").get(handle.id)
    assert handle.created is True
    assert info.payload == {"task": "send_email", "args": {"to": "ann"}}
    assert (info.state, info.priority, info.max_attempts, info.key) == ("scheduled", 5, 5, "ann:Hello")
    assert (info.headers, info.group) == ({"tenant": "acme"}, "acme")
    again = now(send_email.enqueue("ann"))
    assert (again.id, again.created) == (handle.id, False)
    assert now(send_email.options(key="other", max_attempts=1).enqueue("ann")).created is True
    shipped = kit.queue("default").get(now(ship.enqueue(order=7)).id)
    assert (shipped.payload, shipped.key) == ({"task": "ship.it", "args": {"order": 7}}, "7")
    with pytest.raises(TypeError, match="send_email: Expected `str`, got `int`"):
        send_email.enqueue(7)
    with pytest.raises(ValueError, match="nan is not a JSON number"):
        now(app.task(name="half")(half).enqueue(float("nan")))


def half(of: float) -> float:
    return of / 2


@proves("A2")
@on_both
def test_a_task_is_enqueued_in_the_callers_transaction(app: Any, kit: Any, loop: Any) -> None:
    task = app.task(half)

    def enqueue(tx: Any) -> Any:
        answer = task.options(tx=unwrapped(tx)).enqueue(of=1.5)
        return answer if loop is None else loop.run(answer)

    with pytest.raises(KeyError), kit.transaction() as tx:
        assert enqueue(tx).created
        raise KeyError
    assert kit.queue("default").size() == 0
    with kit.transaction() as tx:
        enqueue(tx)
    assert kit.queue("default").size() == 1


@proves("A2")
def test_many_are_enqueued_or_none(app: Any, kit: Any, now: Callable[[Any], Any]) -> None:
    task = app.task(max_attempts=1)(half)
    other = app.task(send.declaration.function)
    handles = now(task.enqueue_many([{"of": 1.0}, task.options(delay=5).new(of=2.0), {"of": 3.0}]))
    infos = [kit.queue("default").get(handle.id) for handle in handles]
    assert [info.payload["args"]["of"] for info in infos] == [1.0, 2.0, 3.0]
    assert [info.state for info in infos] == ["ready", "scheduled", "ready"]
    assert [info.max_attempts for info in infos] == [1, 1, 1]
    with pytest.raises(TypeError, match="half: Expected `float`"):
        now(task.enqueue_many([{"of": 1.0}, {"of": "2"}]))
    for foreign in (other.new("ann"), NewTask({"of": 1.0}), NewTask(7)):
        with pytest.raises(ValueError, match="half.new()"):
            now(task.enqueue_many([{"of": 1.0}, foreign]))
    assert kit.queue("default").size() == 3


@proves("A2")
def test_what_was_declared_is_refused_where_it_is_wrong() -> None:
    app = App()
    app.task(queue="slow", name="one", rate=5, burst=10)(half)
    for options, error, message in (
        ({"name": "one"}, ValueError, "there is a task 'one' already, in test_app"),
        ({"queue": "slow"}, ValueError, "rate, burst of task 'one' applies to all of queue 'slow'.*queue= of its own"),
        ({"queue": ""}, ValueError, "the name of a queue"),
        ({"max_attempts": 0}, ValueError, "max_attempts"),
        ({"timeout": 0}, ValueError, "timeout"),
        ({"backoff": "sometimes"}, ValueError, "retry is one of"),
        ({"burst": 5}, ValueError, "pass rate= too"),
        ({"key": 5}, TypeError, "key is a template"),
        ({"on_crash": "weep"}, ValueError, "on_crash is one of retry, fail"),
        ({"batch": 0}, ValueError, "batch"),
        ({"isolation": "thread"}, ValueError, "isolation is one of process"),
        ({"on_success": 5}, TypeError, "'int' object is not iterable|a function or a list"),
        ({"nonsense": 5}, TypeError, "nonsense"),
    ):
        with pytest.raises(error, match=message):
            app.task(**options)(half)
    with pytest.raises(TypeError, match="a task is a function, not str"):
        app.task("emails")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="is a task already"):
        app.task(app.task(half))
    with pytest.raises(ValueError, match="isolation='process' is for plain functions"):

        @app.task(isolation="process")
        async def later() -> None: ...

    with pytest.raises(ValueError, match="max_running of task 'two' applies to all of queue 'default'"):
        app.task(name="two", max_running=1)(half)
    assert list(app.tasks) == ["one", "half"]
    assert app.tasks["half"].max_attempts is None
    assert App().task(backoff="exponential")(half).declaration.backoff == Exponential()
    with pytest.raises(TypeError):
        app.tasks["other"] = app.tasks["half"]  # type: ignore[index]
    assert app.queues == ("slow", "default")


@proves("A3")
def test_a_handle_returns_the_result_of_the_task(
    app: Any, kit: Any, now: Callable[[Any], Any], drained: Callable[..., Any]
) -> None:
    """The result has the type that the function's annotation gives."""

    @app.task
    def when(name: str) -> dict[str, datetime]:
        return {name: datetime(2030, 1, 1, tzinfo=UTC)}

    handle = now(when.options(delay=10).enqueue("ann"))
    assert now(handle.status()) == "scheduled"
    with pytest.raises(TimedOut):
        now(handle.result(timeout=0))
    advance(kit, 10)
    drained()
    assert now(handle.result(timeout=5)) == {"ann": datetime(2030, 1, 1, tzinfo=UTC)}
    assert now(handle.status()) == "gone"
    assert now(when.handle(handle.id).result(timeout=5)) == now(handle.result(timeout=5))
    assert now(handle.progress()) is None
    assert repr(handle) == f"<task {handle.id} of 'when'>"


@proves("A3")
def test_a_handle_reports_a_death_and_a_missing_result(
    app: Any, kit: Any, now: Callable[[Any], Any], drained: Callable[..., Any]
) -> None:
    @app.task
    def maybe(give: int) -> int | None:
        if give < 0:
            raise eventkit.Permanent("no such thing")
        return give or None

    @app.task
    def nothing() -> None: ...

    @app.task
    def wrong() -> int:
        return "one"  # type: ignore[return-value]

    dead, none, empty, other = (
        now(maybe.enqueue(-1)),
        now(maybe.enqueue(0)),
        now(nothing.enqueue()),
        now(wrong.enqueue()),
    )
    drained(raising=False)
    with pytest.raises(TaskFailed, match="no such thing"):
        now(dead.result(timeout=5))
    assert now(dead.status()) == "dead"
    assert now(none.result(timeout=5)) is None
    with pytest.raises(TypeError, match="let it return something"):
        empty.result(timeout=5)
    with pytest.raises(TypeError, match="wrong has returned a value that does not match its annotation"):
        now(other.result(timeout=5))
    waiting = now(maybe.options(delay=60).enqueue(5))
    assert now(waiting.cancel()) is True
    assert now(waiting.cancel()) is False
    assert now(waiting.status()) == "gone"


@proves("A6")
def test_subscribers_and_listeners_are_declared_with_their_types() -> None:
    app = App()

    @app.subscriber("orders", consumer="search", max_attempts=3, backoff=[1, 2], then="skip")
    async def index(event: Event[dict[str, int]]) -> None: ...

    @app.listener("alerts", "deploys")
    def alert(notification) -> None: ...  # type: ignore[no-untyped-def]

    [subscriber], [listener] = app.subscribers, app.listeners
    assert subscriber.function is index
    assert (subscriber.stream, subscriber.consumer, subscriber.is_async) == ("orders", "search", True)
    assert (subscriber.type, subscriber.max_attempts, subscriber.then) == (dict[str, int], 3, "skip")
    assert (subscriber.dead_letters, subscriber.backoff) == ("orders.dead", Delays((1.0, 2.0)))
    assert (listener.channels, listener.is_async, listener.type) == (("alerts", "deploys"), False, None)
    with pytest.raises(ValueError, match="give this one a consumer= of its own"):
        app.subscriber("orders", consumer="search")(index)
    with pytest.raises(ValueError, match="then is one of stop, skip"):
        app.subscriber("orders", consumer="other", then="weep")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must take one parameter"):
        app.subscriber("orders", consumer="other")(lambda: None)
    for channels in ((), (alert,)):
        with pytest.raises(ValueError, match="at least one channel"):
            app.listener(*channels)


@proves("A9")
def test_a_blueprint_declares_for_the_apps_that_include_it(app: Any, kit: Any, now: Any, drained: Any) -> None:
    """Before and after it is included; its tasks are enqueued through the app, and run as the app's own."""
    emails: Any = Blueprint() if isinstance(app, App) else AsyncBlueprint()
    called: list[Any] = []

    @emails.task(queue="emails")
    def send(to: str) -> None:
        called.append(to)

    @emails.subscriber("orders", consumer="mailer")
    def ordered(event: Event[int]) -> None:
        called.append(event.payload)

    with pytest.raises(RuntimeError, match=r"call app.include\(blueprint\)"):
        send.enqueue("bob@example.com")
    app.include(emails)

    @emails.listener("alerts")
    def alerted(notification: Notification[str]) -> None:
        called.append(notification.payload)

    @emails.every("@every 1h")
    def clean() -> None:
        called.append("cleaned")

    assert list(app.tasks) == list(emails.tasks) == ["send", "clean"]
    assert [one.name for one in app.schedules] == ["clean"]
    assert now(send.enqueue("ann@example.com")).created
    kit.stream("orders").publish(42)
    kit.channel("alerts").notify("low")
    drained()
    advance(kit, 3601)
    drained()
    assert called == ["ann@example.com", 42, "low", "cleaned"]


@proves("A9")
def test_a_blueprint_and_its_apps_share_no_name() -> None:
    first, second, tasks = App(name="first"), App(name="second"), Blueprint()
    tasks.task(os.getcwd)
    first.include(tasks)
    second.include(tasks)
    with pytest.raises(ValueError, match="there is a task 'getcwd' already"):
        second.task(os.getcwd)
    with pytest.raises(ValueError, match="includes this blueprint already"):
        first.include(tasks)
    for wrong in (App(), AsyncBlueprint(), os):
        with pytest.raises(TypeError, match=r"App.include\(\) takes a Blueprint, not "):
            first.include(wrong)
    late = Blueprint()
    late.listener("alerts")(lambda notification: None)
    late.task(os.getcwd)
    with pytest.raises(ValueError, match="there is a task 'getcwd' already"):
        first.include(late)
    assert first.listeners == ()
    second.task(os.getpid)
    with pytest.raises(ValueError, match="there is a task 'getpid' already"):
        tasks.task(os.getpid)
    assert list(first.tasks) == ["getcwd"]
