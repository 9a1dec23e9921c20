"""Actions of the command line are recorded on ``eventkit.audit``, on both databases."""

import getpass
from typing import Any

import command_line
import databases
import pytest
from command_line import Commands

from eventkit import EventKit
from eventkit.conformance.clauses import proves

url, kit, cli = databases.url, databases.kit, command_line.cli


def audited(kit: EventKit) -> list[dict[str, Any]]:
    """Return the events of the stream, without their author."""
    entries = [event.payload for event in kit.stream("eventkit.audit").read()]
    assert {entry.pop("by") for entry in entries} <= {f"command line: {getpass.getuser()}"}
    return entries


@proves("E19")
def test_changes_of_settings_are_recorded(cli: Commands, kit: EventKit) -> None:
    """Each command has one event with author, action and target."""
    cli.text("queue", "add", "emails", "--lease", "2m")
    cli.text("queue", "configure", "emails", "--max-size", 5)
    cli.text("queue", "pause", "emails")
    cli.text("queue", "resume", "emails")
    cli.text("schedule", "add", "nightly", "@daily", "emails")
    cli.text("schedule", "pause", "nightly")
    cli.text("schedule", "resume", "nightly")
    cli.text("schedule", "rm", "nightly")
    cli.text("queue", "rm", "emails")
    assert audited(kit) == [
        {"action": "queue.add", "queue": "emails", "lease": 120.0},
        {"action": "queue.configure", "queue": "emails", "max_size": 5},
        {"action": "queue.pause", "queue": "emails"},
        {"action": "queue.resume", "queue": "emails"},
        {"action": "schedule.add", "schedule": "nightly", "when": "@daily", "queue": "emails"},
        {"action": "schedule.pause", "schedule": "nightly"},
        {"action": "schedule.resume", "schedule": "nightly"},
        {"action": "schedule.rm", "schedule": "nightly"},
        {"action": "queue.rm", "queue": "emails", "force": False},
    ]


@proves("E19")
def test_changes_of_tasks_and_events_are_recorded(cli: Commands, kit: EventKit) -> None:
    """Deleted and requeued tasks, skipped events and pruned events are recorded."""
    queue, stream = kit.queue("emails"), kit.stream("orders")
    queue.configure(max_attempts=1)
    first = queue.enqueue(1).id
    queue.enqueue_many(range(3))
    stream.publish_many(range(3))
    for task in queue.claim("worker", 2):
        queue.fail(task, "no")
    cli.text("dead", "requeue", "emails", first)
    cli.text("dead", "purge", "emails", "--yes")
    cli.text("task", "remove", "emails", first)
    cli.text("queue", "purge", "emails", "--yes")
    cli.text("stream", "seek", "orders", "search", "earliest")
    cli.text("stream", "prune", "orders", "--keep-count", 1, "--unconsumed")
    assert audited(kit) == [
        {"action": "dead.requeue", "queue": "emails", "ids": [first]},
        {"action": "dead.purge", "queue": "emails", "older_than": None},
        {"action": "task.remove", "queue": "emails", "id": first},
        {"action": "queue.purge", "queue": "emails", "state": "ready"},
        {"action": "stream.seek", "stream": "orders", "consumer": "search", "to": "earliest"},
        {"action": "stream.prune", "stream": "orders", "older_than": None, "keep_count": 1},
    ]


@proves("E19")
def test_an_action_that_failed_is_not_recorded(cli: Commands, kit: EventKit) -> None:
    """Reading and working are not recorded either."""
    cli.text("task", "enqueue", "emails", "1")
    cli.text("stream", "publish", "orders", "1")
    cli.json("queue", "list")
    cli.refusal(1, "queue", "rm", "emails")
    cli.refusal(1, "schedule", "rm", "nightly")
    cli.refusal(2, "queue", "configure", "emails", "--rate", -1)
    assert audited(kit) == []


@proves("E19")
def test_an_action_without_its_record_is_undone(cli: Commands, kit: EventKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event is in the same transaction: if it cannot be written, the action is undone."""
    monkeypatch.setattr("eventkit.operations.admin.AUDIT", None)
    kit.queue("emails").enqueue(1)
    with pytest.raises(AssertionError):
        cli.text("queue", "purge", "emails", "--yes")
    assert kit.queue("emails").size() == 1
