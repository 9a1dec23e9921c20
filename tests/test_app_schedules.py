"""Declared schedules and settings, which a worker stores when it starts."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from apps import *

from eventkit import App, TaskContext
from eventkit.conformance import proves
from eventkit.testing import advance


def beat(count: int = 1) -> None: ...


@proves("A7")
def test_a_schedule_is_declared_above_or_below_its_task() -> None:
    """A declaration alone makes the function a task with that schedule."""
    app = App()

    @app.every("@every 30s")
    @app.task
    def above() -> None: ...

    @app.task(queue="nightly")
    @app.cron("0 3 * * *", tz="Europe/Berlin", catch_up="latest")
    @app.every("@every 1h", name="hourly", args={"count": 5})
    def below(count: int = 1, ctx: TaskContext | None = None) -> None: ...

    @app.cron("@daily")
    def alone() -> None: ...

    assert alone() is None  # type: ignore[func-returns-value]
    assert list(app.tasks) == ["above", "below", "alone"]
    assert [(one.name, one.when, one.tz, one.task.name, one.args, one.catch_up) for one in app.schedules] == [
        ("above", "@every 30s", "UTC", "above", {}, "all"),
        ("hourly", "@every 1h", "UTC", "below", {"count": 5}, "all"),
        ("below", "0 3 * * *", "Europe/Berlin", "below", {}, "latest"),
        ("alone", "@daily", "UTC", "alone", {}, "all"),
    ]


@proves("A7")
def test_a_schedule_that_cannot_be_is_refused() -> None:
    app = App()

    @app.task
    def send(to: str) -> None: ...

    with pytest.raises(TypeError, match="has no value for 'to'"):
        app.every("@every 1m")(send)
    with pytest.raises(TypeError, match="Expected `str`"):
        app.every("@every 1m", args={"to": 7})(send)
    with pytest.raises(ValueError, match="no time for a schedule"):
        app.cron("61 * * * *", args={"to": "ann"})(send)
    with pytest.raises(ValueError, match="there is no time zone"):
        app.cron("@daily", tz="Atlantis", args={"to": "ann"})(send)
    with pytest.raises(ValueError, match="catch_up is one of"):
        app.cron("@daily", catch_up="some", args={"to": "ann"})(send)
    with pytest.raises(ValueError, match=r"use cron\(\) for a time of day"):
        app.every("@daily")
    app.every("@every 1m", args={"to": "ann"})(send)
    with pytest.raises(ValueError, match="there is a schedule 'send' already"):
        app.every("@every 2m", args={"to": "ann"})(send)
    assert len(app.schedules) == 1


@proves("A7")
def test_schedules_are_stored_and_those_of_others_are_left(
    app: Any, kit: Any, now: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Storing may be repeated; a schedule that is no longer declared is removed."""
    caplog.set_level(logging.WARNING)
    kit.schedules.add("by hand", "@daily", "default")
    app.every("@every 30s", args={"count": 2})(app.task(max_attempts=2)(beat))
    assert now(app.install()) is None
    first = kit.schedules.get("beat")
    assert (first.when, first.queue, first.max_attempts) == ("@every 30s", "default", 2)
    assert first.payload == {"task": "beat", "args": {"count": 2}}
    advance(kit, 10)
    now(app.install())
    again = kit.schedules.get("beat")
    assert first.next_ms - again.next_ms >= 10_000

    other, later = type(app)(name="other"), type(app)()
    other.every("@every 1h")(other.task(name="elsewhere")(beat))
    for one in (other, later):
        one.bind(app.bound)
        now(one.install())
    assert [schedule.name for schedule in kit.schedules.list()] == ["by hand", "elsewhere"]
    assert "schedule 'beat' is removed" in caplog.text


@proves("A7")
def test_a_schedule_enqueues_its_task(app: Any, kit: Any, drained: Callable[..., Any]) -> None:
    beats: list[int] = []

    @app.every("@every 30s", args={"count": 2})
    @app.task
    def note(count: int) -> None:
        beats.append(count)

    assert drained() == []
    advance(kit, 61)
    assert [one.name for one in drained()] == ["note", "note"]
    assert beats == [2, 2]


@proves("A7")
def test_settings_of_queues_are_stored(app: Any, kit: Any, now: Callable[[Any], Any]) -> None:
    """Settings that are not declared are unchanged."""
    app.task(queue="slow", max_running=1)(beat)
    kit.queue("slow").configure(max_attempts=7)
    now(app.install())
    for _ in range(2):
        kit.queue("slow").enqueue({"task": "beat", "args": {}})
    assert len(kit.queue("slow").claim("worker", 10)) == 1
    assert kit.queue("slow").tasks("running")[0].max_attempts == 7
