"""Sums by the hour equal a plain count of the events, also for late events, kills and repetitions."""

import os
import signal
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from spark.streams import both

import eventkit
from eventkit.archive import archive
from eventkit.conformance import proves
from eventkit.conformance.processes import spawn
from eventkit.kit import backend_of
from eventkit.operations import Plan
from eventkit.operations.bulk import AddSums, ReadMark, Sum
from eventkit.rollup import HOUR, KINDS, read, spans
from eventkit.spark import pipeline as rolling
from eventkit.spark.pipeline import rollup
from eventkit.spark.views import events
from eventkit.testing import advance

EVER = {"since": datetime(1971, 1, 1, tzinfo=UTC), "before": datetime(2999, 1, 1, tzinfo=UTC)}


def sums(kit: eventkit.EventKit) -> Counter[tuple[Any, ...]]:
    """Return the sums without the latencies."""
    return Counter({tuple(one[:4]): one.amount for one in read(kit, **EVER) if one.measure in ("events", *KINDS)})


def counted(events: list[Any]) -> Counter[tuple[Any, ...]]:
    """Return the same sums by counting each event."""
    count: Counter[tuple[Any, ...]] = Counter()
    for event in events:
        hour = int(event.created_at.timestamp()) * 1000 // HOUR * HOUR
        count["topic", event.stream, hour, "events"] += 1
        if event.stream == "eventkit.tasks":
            count["queue", event.payload["queue"], hour, event.payload["kind"]] += 1
    return count


def everything(kit: eventkit.EventKit) -> list[Any]:
    return [event for topic in ("orders", "eventkit.tasks") for event in kit.stream(topic).read(limit=10_000)]


def jobs(kit: eventkit.EventKit, number: int) -> None:
    """Enqueue tasks that end in several ways."""
    queue = kit.queue("emails")
    queue.configure(history=True, max_attempts=2)
    queue.enqueue_many(range(number))
    for task in queue.claim("w", number):
        match task.payload % 3:
            case 0:
                queue.ack(task)
            case 1:
                queue.retry(task, delay=0)
            case 2:
                queue.fail(task, "no")


@proves("D19")
@both
def test_sums_are_what_a_plain_count_gives(spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path) -> None:
    """They cover every topic and queue, archived events too, and late events in their own hour."""
    kit.stream("orders").publish_many(range(50))
    jobs(kit, 9)
    before = everything(kit)
    archive(url, "orders", to=tmp_path, prune=True)
    assert kit.stream("orders").read() == []
    first = {one.stream: one for one in rollup(spark, url)}
    assert (first["orders"].events, first["eventkit.tasks"].events) == (50, len(before) - 50)
    assert sums(kit) == counted(before)
    assert [(one.name, one.lag) for one in kit.stream("orders").consumers() if one.name == "rollup"] == [("rollup", 0)]

    # The events are of two hours ago and of now; those that are summed up already are not read again.
    kit.stream("orders").publish_many(range(5))
    advance(kit, 7200)
    kit.stream("orders").publish_many(range(7))
    late = kit.stream("orders").read()
    assert [one.events for one in rollup(spark, url, ["orders"])] == [12]
    assert sums(kit) == counted(before) + counted(late)
    assert [one.events for one in rollup(spark, url)] == [0, 0]
    assert sums(kit) == counted(before) + counted(late)
    with pytest.raises(ValueError, match="there is no stream 'odrers'"):
        list(rollup(spark, url, ["odrers"]))


@proves("D19")
def test_a_run_keeps_to_its_bounds(
    spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file holds events summed up before, current ones, and some published after the run was planned."""
    stream = kit.stream("orders")
    stream.publish_many(range(5))
    list(rollup(spark, url, ["orders"]))
    stream.publish_many(range(7))

    def events_by_then(*given: Any) -> Any:
        monkeypatch.undo()
        stream.publish_many(range(3))
        assert archive(url, "orders", to=tmp_path).files == 1
        return events(*given)

    monkeypatch.setattr(rolling, "events", events_by_then)
    assert [one.events for one in rollup(spark, url, ["orders"])] == [7]
    assert [one.events for one in rollup(spark, url, ["orders"])] == [3]
    assert sums(kit) == counted(everything(kit))


def test_latencies_and_rates(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """Percentiles are within a tenth of the real ones, and shares are those of the attempts."""
    runs = [round(1.1**n) for n in range(1, 100)]
    steps = [("succeeded", 0, run) for run in runs] + [("failed", 900, 0)] * 11
    kit.stream("eventkit.tasks").publish_many(
        {"queue": "q", "kind": kind, "wait_ms": wait, "run_ms": run} for kind, wait, run in steps
    )
    kit.stream("eventkit.tasks").publish_many(["no step", {"queue": "q", "kind": "invented"}, {"queue": 1}, None])
    list(rollup(spark, url))
    [span] = [one for one in spans(read(kit, **EVER), hours=10_000_000) if one.subject == "queue"]
    assert (span.name, span.attempts, span.count("failed"), span.failure_rate) == ("q", 110, 11, 0.1)
    assert span.count("run_ms") == sum(runs)
    measured = sorted([*runs, *[0] * 11])
    for share in (0.5, 0.9, 0.99):
        exact = measured[round(share * len(measured)) - 1]
        assert exact / 1.1 <= (span.percentile("run", share) or 0) <= exact * 1.1
    assert (span.percentile("wait", 0.5), span.percentile("nothing", 0.5)) == (0, None)
    assert 900 / 1.1 <= (span.percentile("wait", 0.95) or 0) <= 900 * 1.1


class Dying(AddSums, frozen=True):
    """A connection that is killed at a step."""

    step: int = 0

    def plan(self) -> Plan[bool]:
        steps = AddSums.plan(self)
        answer, place = None, 0
        while True:
            if place == self.step:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                operation = steps.send(answer)
            except StopIteration as end:
                return bool(end.value)
            answer, place = (yield operation), place + 1


def die_adding(url: str, step: int, last: int) -> None:
    with closing(backend_of(url).connect(url, create=False)) as connection:
        after = connection.execute(ReadMark("rollup:orders"))
        connection.execute(Dying("orders", after, last, [Sum("topic", "orders", 0, "events", 1000)], step=step))
    os.kill(os.getpid(), signal.SIGKILL)


@proves("D19")
@both
def test_a_killed_run_has_done_nothing(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """This holds at every step; an earlier run that continues does not repeat what was done."""
    for step in range(4):
        [last] = [kit.stream("orders").publish(step)]
        with pytest.raises(AssertionError, match="ended with -9"):
            spawn(die_adding, url, step, last).result()
        assert [one.events for one in rollup(spark, url)] == [1]
        assert sums(kit) == counted(everything(kit))
    assert kit._connection.execute(AddSums("orders", 0, last, [Sum("topic", "orders", 0, "events", 1)])) is False
    assert sums(kit) == counted(everything(kit))


def test_lost_events_are_reported(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """The error names events that were pruned without an archive before they were summed up."""
    kit.stream("orders").publish(1)
    list(rollup(spark, url))
    lost = [kit.stream("orders").publish(n) for n in range(3)]
    kit.stream("orders").prune(keep_count=1, keep_unconsumed=False)
    [done] = rollup(spark, url)
    assert (done.events, done.lost) == (1, lost[1])
