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


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("queue add jobs --lease 2m", {"queue": "jobs", "lease": 120.0}),
    ("queue configure jobs --max-size 5", {"queue": "jobs", "max_size": 5}),
    ("queue pause jobs", {"queue": "jobs"}),
    ("queue resume jobs", {"queue": "jobs"}),
    ("schedule add nightly @daily emails", {"schedule": "nightly", "when": "@daily", "queue": "emails"}),
    ("schedule pause nightly", {"schedule": "nightly"}),
    ("schedule resume nightly", {"schedule": "nightly"}),
    ("schedule rm nightly", {"schedule": "nightly"}),
    ("dead requeue emails 1", {"queue": "emails", "ids": [1]}),
    ("dead purge emails --yes", {"queue": "emails", "older_than": None}),
    ("task remove emails 1", {"queue": "emails", "id": 1}),
    ("queue purge emails --yes", {"queue": "emails", "state": "ready"}),
    ("queue rm jobs", {"queue": "jobs", "force": False}),
    ("stream seek orders search earliest", {"stream": "orders", "consumer": "search", "to": "earliest"}),
    ("stream prune orders --keep-count 1 --unconsumed", {"stream": "orders", "older_than": None, "keep_count": 1}),
]
"""Commands that change something, and their events beside the action, which the first two words name."""


@proves("E19")
def test_changes_are_recorded(cli: Commands, kit: EventKit) -> None:
    """Each command has one event with author, action and target."""
    queue = kit.queue("emails")
    assert queue.enqueue("first", max_attempts=1).id == 1
    queue.enqueue_many(range(3))
    kit.stream("orders").publish_many(range(3))
    for task in queue.claim("worker", 2):
        queue.fail(task, "no")
    for command, _ in CHANGES:
        cli.text(*command.split())
    assert audited(kit) == [{"action": ".".join(command.split()[:2])} | target for command, target in CHANGES]


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
