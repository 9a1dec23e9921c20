"""The outcome of a task's run, by the rules that workers and drains share, and the context of a running task."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from apps import *
from databases import on_both

import eventkit
from eventkit import Event, Fixed, LeaseLost, Permanent, Retry, Snooze, TaskCancelled, TaskContext
from eventkit.app import AsyncTaskContext
from eventkit.app.declarations import Refused
from eventkit.app.task import progress_value
from eventkit.checks import FOREVER
from eventkit.conformance import proves
from eventkit.conformance.flavours import unwrapped
from eventkit.handling import failure
from eventkit.testing import advance, assert_published


def fail(error: BaseException) -> Any:
    raise error


class Declined(Exception):
    code = "CARD_DECLINED"


@proves("A2", "A4")
def test_a_declaration_says_which_errors_are_worth_another_attempt(
    app: Any, kit: Any, now: Callable[[Any], Any], drained: Callable[..., Any]
) -> None:
    """Others end the task at once; the code of a failure is that of the exception, or its class."""

    @app.task(retry_on=(OSError, Declined), give_up_on=FileNotFoundError)
    def pay(error: str) -> None:
        raise {"timeout": TimeoutError(), "gone": FileNotFoundError(), "bug": KeyError("x"), "retry": Retry(9)}.get(
            error, Declined("no")
        )

    ids = {error: now(pay.enqueue(error)).id for error in ("timeout", "gone", "bug", "retry", "declined")}
    drained(raising=False)
    found = {error: kit.queue("default").get(id) for error, id in ids.items()}
    assert {error: (info.state, info.reason, info.code) for error, info in found.items()} == {
        "timeout": ("scheduled", None, "TimeoutError"),
        "gone": ("dead", "failed", "FileNotFoundError"),
        "bug": ("dead", "failed", "KeyError"),
        "retry": ("scheduled", None, "Retry"),
        "declined": ("scheduled", None, "CARD_DECLINED"),
    }
    with pytest.raises(TypeError, match="give_up_on is an exception class or a tuple of them, not 'KeyError'"):
        app.task(give_up_on=("KeyError",))(lambda: None)


@proves("A2", "A3")
def test_a_declaration_has_the_options_of_its_calls_and_results(
    app: Any, kit: Any, now: Callable[[Any], Any], drained: Callable[..., Any]
) -> None:
    """A call, or a schedule, without an option of its own has the declaration's."""

    @app.cron("@daily")
    @app.task(priority=5, expires=60, result_ttl=None)
    def ever() -> int:
        return 1

    brief = app.task(name="brief", result_ttl=timedelta(minutes=2))(returned)
    never = app.task(name="never", result_ttl=0)(returned)
    usual = app.task(name="usual")(returned)
    made = [kit.queue("default").get(now(call.enqueue()).id) for call in (ever, ever.options(priority=0, expires=9))]
    assert [(info.priority, info.expires_ms - info.enqueued_ms) for info in made] == [(5, 60_000), (0, 9_000)]
    handles = [now(task.enqueue()) for task in (brief, never, usual, ever)]
    drained()
    [daily] = kit.schedules.list()
    assert (daily.priority, daily.expires) == (5, 60)
    for seconds, kept in {0: (0, 2, 3), 121: (2, 3), 3600: (3,), 20 * 365 * 86400: (3,)}.items():
        advance(kit, seconds)
        assert [at for at, handle in enumerate(handles) if kit.results.get(handle.id) == 1] == [*kept]
    assert now(handles[3].result()) == 1
    with pytest.raises(TypeError, match="its result_ttl is 0"):
        handles[1].result()


def returned() -> int:
    return 1


@proves("A4")
def test_what_a_function_raises_says_what_comes_next(
    app: Any, kit: Any, now: Callable[[Any], Any], drained: Callable[..., Any]
) -> None:
    """As in `handling`, it retries, delays or ends the task; any other exception retries it."""
    errors: dict[str, Exception] = {
        "retry": Retry(60, "the server is down"),
        "snooze": Snooze(timedelta(seconds=60)),
        "permanent": Permanent("no such address"),
        "other": KeyError("to"),
    }

    @app.task(max_attempts=2, backoff=Fixed(base=30, jitter=0))
    def send(how: str) -> None:
        raise errors[how]

    ids = {how: now(send.enqueue(how)).id for how in errors}
    ran = drained(raising=False)
    assert [type(one.error) for one in ran] == [type(error) for error in errors.values()]
    infos = {how: kit.queue("default").get(id) for how, id in ids.items()}
    assert {how: (info.state, info.attempt, info.reason) for how, info in infos.items()} == {
        "retry": ("scheduled", 1, None),
        "snooze": ("scheduled", 0, None),
        "permanent": ("dead", 1, "failed"),
        "other": ("scheduled", 1, None),
    }
    assert infos["retry"].error == "the server is down"
    assert infos["permanent"].error == "no such address"
    assert "KeyError: 'to'" in infos["other"].error
    advance(kit, 30)
    assert [one.message.id for one in drained(raising=False)] == [ids["other"]]
    assert kit.queue("default").get(ids["other"]).reason == "exhausted"
    advance(kit, 30)
    assert {one.message.id for one in drained(raising=False)} == {ids["retry"], ids["snooze"]}
    assert kit.queue("default").get(ids["snooze"]).attempt == 0


@proves("A4")
@pytest.mark.parametrize(
    ("delay", "milliseconds"),
    [(1.5, 1500), (timedelta(seconds=2), 2000), (-1, 0), (float("nan"), 0), ("soon", 0), (float("inf"), FOREVER)],
)
def test_an_invalid_delay_keeps_no_task_from_its_outcome(delay: Any, milliseconds: int) -> None:
    for error in (Retry(delay), Snooze(delay)):
        operation: Any = failure(ANY_TASK, error)
        assert operation.delay == milliseconds


@proves("A4")
def test_a_task_that_cannot_be_run_is_dead(app: Any, kit: Any, drained: Callable[..., Any]) -> None:
    @app.task
    def send(to: str) -> None: ...

    queue = kit.queue("default")
    payloads = {
        "RESOLUTION_ERROR: this app declares no task 'sned'": {"task": "sned", "args": {}},
        "SERIALIZATION_ERROR: the arguments are not those of send: Object missing": {"task": "send"},
        "SERIALIZATION_ERROR: the arguments are not those of send: Expected `str`": {"task": "send", "args": {"to": 7}},
    }
    for payload in payloads.values():
        queue.enqueue(payload)
    ran = drained(raising=False)
    assert [one.name for one in ran] == ["sned", "send", "send"]
    dead = sorted(queue.dead(), key=lambda task: task.id)
    for task, error in zip(dead, payloads, strict=True):
        assert task.error.startswith(error)
        assert (task.reason, task.attempt) == ("failed", 1)


@proves("A4", "Q11")
@pytest.mark.parametrize("payload", ["ann", ["send", "ann"], {"to": "ann"}, {"task": 7}, None])
def test_a_plain_payload_is_no_task(app: Any, kit: Any, drained: Callable[..., Any], payload: Any) -> None:
    @app.task
    def send(to: str) -> None: ...

    kit.queue("default").enqueue(payload)
    assert len(drained(raising=False)) == 1
    [task] = kit.queue("default").dead()
    assert task.reason == "poison"
    assert task.error.startswith("NOT_A_TASK: the payload is not")
    assert "enqueue() of the declared function" in task.error
    assert "a queue for which no App declares tasks" in task.error


@proves("A4")
def test_a_result_that_cannot_be_saved_is_a_death(
    app: Any, kit: Any, now: Callable[[Any], Any], drained: Callable[..., Any]
) -> None:
    """The work is done, and a retry would repeat it."""

    @app.task
    def make() -> Any:
        return object()

    @app.task
    def divide() -> float:
        return float("inf")

    for task in (make, divide):
        handle = now(task.enqueue())
        with pytest.raises(Refused, match="the work is done, but its result cannot be saved"):
            drained()
        assert kit.queue("default").get(handle.id).error.startswith("SERIALIZATION_ERROR")


@proves("A4")
def test_hooks_are_called(app: Any, now: Callable[[Any], Any], drained: Callable[..., Any]) -> None:
    """Those of the task run first; a snooze is neither success nor failure."""
    calls: list[tuple[str, Any]] = []
    app.on_success(lambda ctx, result: calls.append(("app", result)))
    app.on_failure(lambda ctx, error: calls.append(("app", str(error))))

    async def later(ctx: Any, result: Any) -> None:
        calls.append(("task", (ctx.task.id, ctx.attempt, result)))

    @app.task(
        on_success=later
        if isinstance(app, eventkit.AsyncApp)
        else [lambda ctx, result: calls.append(("task", (ctx.task.id, ctx.attempt, result)))]
    )
    def work(how: int) -> int:
        return how if how else fail(Snooze(60)) if how is None else fail(Permanent("no"))

    handle = now(work.enqueue(7))
    now(work.enqueue(0))
    drained(raising=False)
    assert calls == [("task", (handle.id, 1, 7)), ("app", 7), ("app", "no")]


def moving(app: Any, then: Callable[[Any], None] = lambda ctx: None) -> Any:
    """Declare a task whose effect is an event, in its own transaction."""
    if isinstance(app, eventkit.AsyncApp):

        @app.task
        async def move(amount: int, ctx: AsyncTaskContext) -> int:
            async with ctx.transaction() as tx:
                await ctx.kit.stream("moves").publish(amount, tx=tx)
                then(ctx)
            return amount

        return move

    @app.task(name="move")
    def move_now(amount: int, ctx: TaskContext) -> int:
        with ctx.transaction() as tx:
            ctx.kit.stream("moves").publish(amount, tx=tx)
            then(ctx)
        return amount

    return move_now


@proves("A5")
@on_both
def test_a_task_may_end_in_its_own_transaction(
    app: Any, kit: Any, now: Callable[[Any], Any], drained: Callable[..., Any]
) -> None:
    """The ack commits with its effect, and the worker does not repeat it; the result is saved too.

    A transaction that fails leaves nothing.
    """
    failing: list[Any] = [True]
    contexts: list[Any] = []

    def then(ctx: Any) -> None:
        contexts.append(ctx)
        if failing:
            raise KeyError(failing.pop())

    handle = now(moving(app, then).enqueue(5))
    with pytest.raises(KeyError):
        drained()
    assert kit.queue("default").get(handle.id).state == "scheduled"
    assert_published(kit, "moves", count=0)
    advance(kit, 3600)
    [ran] = drained()
    assert (ran.result, contexts[-1].settled) == (5, True)
    assert now(handle.result(timeout=5)) == 5
    assert kit.queue("default").get(handle.id) is None
    assert_published(kit, "moves", 5, count=1)


@proves("A5")
def test_a_task_that_is_no_longer_ours_has_no_effect(
    app: Any, kit: Any, url: str, now: Callable[[Any], Any], drained: Callable[..., Any]
) -> None:
    """The lease has lapsed, so another worker may run the same task."""
    move = moving(app)
    handle = now(move.enqueue(5))
    [task] = kit.queue("default").claim("elsewhere", lease=60)
    advance(kit, 61)
    context = (AsyncTaskContext if isinstance(app, eventkit.AsyncApp) else TaskContext)(task, unwrapped(kit))
    with pytest.raises(LeaseLost, match="give its queue a longer lease"):
        now(move(5, ctx=context))
    assert context.settled is False
    assert_published(kit, "moves", count=0)
    drained()
    assert now(handle.status()) == "gone"


@proves("A5")
@on_both
def test_a_task_says_how_far_it_is(app: Any, now: Callable[[Any], Any], drained: Callable[..., Any]) -> None:
    is_async = isinstance(app, eventkit.AsyncApp)

    @app.task(name="blocking")
    def work(ctx: TaskContext) -> None:
        ctx.progress(0.5, "half")

    @app.task(name="awaiting")
    async def work_later(ctx: AsyncTaskContext) -> None:
        await ctx.progress(0.5, "half")

    handle = now((work_later if is_async else work).enqueue())
    assert now(handle.progress()) is None
    drained()
    assert now(handle.progress()) == eventkit.Progress(0.5, "half")
    for wrong, error in ((2, ValueError), ("0.5", TypeError)):
        with pytest.raises(error, match="a fraction from 0 to 1"):
            progress_value(wrong, "")  # type: ignore[arg-type]


ANY_TASK: Any = eventkit.Task(7, "emails", {"task": "send", "args": {}}, None, {}, 0, 2, 3, 0, 0, None, 0, 1, 1000)


@proves("A5")
def test_a_context_knows_its_task(caplog: pytest.LogCaptureFixture) -> None:
    context = TaskContext(ANY_TASK, None)  # type: ignore[arg-type]
    context.raise_if_cancelled()
    assert (context.attempt, context.cancelled, context.settled) == (2, False, False)
    context.cancel()
    assert context.cancelled
    with pytest.raises(TaskCancelled, match="task 7 was cancelled"):
        context.raise_if_cancelled()
    context.logger.warning("going on")
    [record] = caplog.records
    assert (record.task_id, record.task_name, record.queue, record.attempt) == (7, "send", "emails", 2)  # type: ignore[attr-defined]


@proves("A6")
@pytest.mark.parametrize("then", ["stop", "skip"])
def test_a_subscriber_that_keeps_failing(
    app: Any, kit: Any, now: Callable[[Any], Any], drained: Callable[..., Any], then: str
) -> None:
    """It stops before the event, or publishes it to the stream of skipped events; the offset shows which."""
    seen: list[int] = []

    @app.subscriber("orders", consumer="search", max_attempts=3, then=then)
    def index(event: Event[int]) -> None:
        seen.append(event.payload)
        if event.payload == 2:
            raise KeyError("no such order")

    orders = kit.stream("orders")
    offsets = orders.publish_many([1, 2, eventkit.NewEvent("three", key="3"), 4])
    ran = drained(raising=False)
    if then == "stop":
        assert seen == [1, 2, 2, 2]
        assert orders.offset("search") == offsets[0]
        return
    assert seen == [1, 2, 2, 2, 4]
    assert [type(one.error) for one in ran] == [type(None), KeyError, Refused, type(None)]
    assert orders.offset("search") == offsets[3]
    letters = assert_published(kit, "orders.dead", count=2)
    assert [(letter.payload, letter.key) for letter in letters] == [(2, None), ('"three"', "3")]
    assert letters[0].headers["consumer"] == "search"
    assert letters[0].headers["offset"] == str(offsets[1])
    assert "KeyError: 'no such order'" in letters[0].headers["error"]
