"""Each command: its effect, its output, its exit code, its record on ``eventkit.audit``, and its spelling in Sqew."""

import getpass
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import command_line
import databases
import pytest
from command_line import Commands
from databases import on_both
from eventkit_migrations import HEAD

from eventkit import EventKit, NewEvent
from eventkit.cli.spellings import SPELLINGS, rewritten
from eventkit.conformance.clauses import proves

url, kit, cli = databases.url, databases.kit, command_line.cli


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_migrate_makes_the_tables_and_current_shows_them(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = f"sqlite:///{tmp_path}/shop.db" if backend == "sqlite" else request.getfixturevalue("postgres_url")
    cli = Commands(capsys, empty)
    assert cli.text("current") == "none\n"
    assert "eventkit_migrations upgrade" in cli.refusal(1, "health")
    sql = cli.text("migrate", "--sql")
    assert "CREATE TABLE" in sql
    assert cli.text("current") == "none\n"
    assert cli.json("migrate")["revision"] == HEAD
    assert cli.text("current") == f"{HEAD}\n"
    assert "already" in cli.text("migrate")
    assert cli.text("migrate", "--sql").strip() == ""
    assert cli.json("health")["healthy"]


def test_queues_are_made_changed_and_forgotten(cli: Commands, kit: EventKit) -> None:
    assert cli.json("queue", "list") == []
    assert cli.run("queue", "list").err == "there are no queues\n"
    made = cli.json("queue", "add", "emails", "--lease", "2m", "--retry", "5,30,300", "--max-size", 100, "--rate", 2.5)
    assert (made["lease"], made["max_size"], made["rate"]) == (120.0, 100, 2.5)
    assert made["retry"]["seconds"] == [5.0, 30.0, 300.0]
    assert "queue configure emails" in cli.refusal(1, "queue", "add", "emails")
    changed = cli.json("queue", "configure", "emails", "--lease", "none", "--keep-done", "7d")
    assert (changed["lease"], changed["keep_done"], changed["max_size"]) == (None, 604800.0, 100)
    assert changed["history"] is False
    assert cli.json("queue", "configure", "emails", "--history")["history"] is True
    assert cli.json("queue", "configure", "emails", "--lease", "1m")["history"] is True
    assert cli.json("queue", "configure", "emails", "--no-history")["history"] is False
    cli.text("queue", "pause", "emails")
    assert kit.queue("emails").stats().paused
    kit.queue("emails").enqueue({"to": "ann"})
    shown = cli.json("queue", "show", "emails")
    assert (shown["paused"], shown["ready"], shown["max_size"]) == (True, 1, 100)
    cli.text("queue", "resume", "emails")
    [row] = cli.json("queue", "list")
    assert (row["queue"], row["ready"], row["paused"]) == ("emails", 1, False)
    assert "--force" in cli.refusal(1, "queue", "rm", "emails")
    assert "--yes" in cli.refusal(2, "queue", "rm", "emails", "--force")
    cli.text("queue", "rm", "emails", "--force", "--yes")
    assert cli.json("queue", "list") == []


def test_a_table_is_aligned_and_plain_in_a_pipe(cli: Commands, kit: EventKit) -> None:
    kit.queue("emails").enqueue_many([1] * 12)
    kit.queue("reports").enqueue(2)
    header, *rows = cli.text("stats").splitlines()
    assert header.split() == ["queue", "ready", "scheduled", "running", "dead", "done", "oldest", "paused"]
    assert [row.split()[:2] for row in rows] == [["emails", "12"], ["reports", "1"]]
    assert header.index("ready") + len("ready") == rows[0].index("12") + 2
    assert len(cli.text("stats", "reports").splitlines()) == 2


def test_a_task_is_enqueued_claimed_and_acked_by_hand(cli: Commands, kit: EventKit) -> None:
    made = cli.json("task", "enqueue", "jobs", '{"a": [1, "é"]}', "--priority", 3, "--key", "k", "--header", "x=y=z")
    assert made["created"]
    assert not cli.json("task", "enqueue", "jobs", "1", "--key", "k")["created"]
    [seen] = cli.json("queue", "peek", "jobs")
    assert (seen["payload"], seen["priority"], seen["headers"]) == ({"a": [1, "é"]}, 3, {"x": "y=z"})
    [task] = cli.json("task", "poll", "jobs", "--worker", "me", "--lease", "1m")
    assert (task["id"], task["attempt"], task["lease"]) == (made["id"], 1, 60.0)
    held = ("jobs", task["id"], task["token"])
    assert cli.json("task", "get", *held[:2])["worker"] == "me"
    assert cli.json("task", "extend-lease", *held, "10m")["ok"]
    assert "poll it again" in cli.refusal(1, "task", "ack", "jobs", task["id"], 1)
    assert "is running" in cli.refusal(1, "task", "remove", *held[:2])
    cli.text("task", "nack", *held, "--delay", 0, "--error", "not now")
    assert kit.queue("jobs").peek()[0].error == "not now"
    [task] = cli.json("task", "poll", "jobs")
    cli.text("task", "ack", "jobs", task["id"], task["token"], "--result", '{"ok": true}')
    assert kit.results.get(task["id"]) == {"ok": True}
    assert "no task" in cli.refusal(1, "task", "get", "jobs", task["id"])
    other = cli.json("task", "enqueue", "jobs", "2", "--delay", "1h30m")["id"]
    assert cli.json("task", "get", "jobs", other)["state"] == "scheduled"
    cli.text("task", "remove", "jobs", other)
    assert cli.json("queue", "peek", "jobs") == []


def test_dead_tasks_are_listed_by_error_shown_and_requeued(cli: Commands, kit: EventKit) -> None:
    queue = kit.queue("jobs")
    assert cli.json("dead", "list") == []
    ids = [queue.enqueue(n).id for n in range(3)]
    for task, error in zip(
        queue.claim("me", 3), ["Traceback\nValueError: no", "Traceback\nValueError: no", "bad"], strict=True
    ):
        queue.fail(task, error)
    assert cli.json("dead", "list") == [{"queue": "jobs", "dead": 3}]
    assert [task["id"] for task in cli.json("dead", "list", "jobs")] == ids[::-1]
    assert "ValueError: no" in cli.text("dead", "list", "jobs")
    groups = cli.json("dead", "list", "--by-error")
    assert [(group["queue"], group["number"], group["summary"]) for group in groups] == [
        ("jobs", 2, "ValueError: no"),
        ("jobs", 1, "bad"),
    ]
    assert cli.json("dead", "show", "jobs", ids[0])["error"] == "Traceback\nValueError: no"
    assert "Traceback\n" in cli.text("dead", "show", "jobs", ids[0])
    assert cli.json("dead", "requeue", "jobs", ids[0])["requeued"] == 1
    assert "not dead" in cli.refusal(1, "dead", "show", "jobs", ids[0])
    assert cli.json("dead", "purge", "jobs", "--older-than", "1h", "--yes")["deleted"] == 0
    assert cli.json("dead", "requeue", "jobs")["requeued"] == 2
    assert cli.json("queue", "purge", "jobs", "--yes")["deleted"] == 3


def test_streams_are_published_read_sought_and_pruned(cli: Commands, kit: EventKit) -> None:
    assert cli.json("stream", "list") == []
    first = cli.json("stream", "publish", "orders", '{"id": 1}', "--key", "1", "--dedup", "a")["offset"]
    assert cli.json("stream", "publish", "orders", "2", "--dedup", "a")["offset"] == first
    last = cli.json("stream", "publish", "orders", "2")["offset"]
    events = cli.json("stream", "read", "orders")
    assert [(event["offset"], event["key"], event["payload"]) for event in events] == [
        (first, "1", {"id": 1}),
        (last, None, 2),
    ]
    assert datetime.now(UTC) - datetime.fromisoformat(events[0]["created_at"]) < timedelta(minutes=5)
    assert [event["offset"] for event in cli.json("stream", "read", "orders", "--after", first)] == [last]
    assert cli.json("stream", "read", "orders", "--since", "2020-01-01T00:00", "--limit", 1)[0]["offset"] == first
    cli.text("stream", "seek", "orders", "search", first)
    [consumer] = cli.json("stream", "consumers", "orders")
    assert (consumer["name"], consumer["offset"], consumer["lag"]) == ("search", first, 1)
    [audit, orders] = cli.json("stream", "list")
    assert audit["stream"] == "eventkit.audit"
    assert (orders["stream"], orders["events"], orders["lag"], orders["head"]) == ("orders", 2, 1, last)
    assert cli.json("stream", "prune", "orders", "--keep-count", 0)["dropped"] == 1
    assert cli.json("stream", "seek", "orders", "search", "latest")["offset"] == last
    assert cli.json("stream", "seek", "orders", "search", "earliest")["offset"] == 0
    assert "not a time" in cli.refusal(2, "stream", "seek", "orders", "search", "soon")
    cli.text("stream", "forget", "orders", "search")
    assert "has no consumer" in cli.refusal(1, "stream", "forget", "orders", "search")
    assert cli.json("stream", "prune", "orders", "--older-than", "0s", "--unconsumed")["dropped"] == 1
    assert "older_than" in cli.refusal(2, "stream", "prune", "orders")


def test_groups_are_shown_paused_drained_and_reset(cli: Commands, kit: EventKit) -> None:
    """A member that runs meanwhile is listed with its partitions."""
    stream = kit.stream("orders")
    assert cli.json("group", "list") == []
    offsets = stream.publish_many([NewEvent(n, key="one") for n in range(3)])
    with stream.join("billing", partitions=4) as member:
        assert member.next(timeout=30).payload == 0
        [listed] = cli.json("group", "list", "orders")
        assert (listed["stream"], listed["name"], listed["members"], listed["partitions"]) == (
            "orders",
            "billing",
            1,
            4,
        )
        shown = cli.json("group", "show", "orders", "billing")
        assert [one["partitions"] for one in shown["members"]] == [4]
        assert sum(one["lag"] for one in shown["partitions"]) == shown["lag"] == 3
        assert "3 events behind, 0 parked" in cli.text("group", "show", "orders", "billing")
        assert "3 events behind" in cli.refusal(1, "group", "drain", "orders", "billing", "--timeout", 0)
        assert [member.next(timeout=30).payload for _ in range(2)] == [1, 2]
    assert cli.json("group", "reset", "orders", "billing", "latest")["group"] == "billing"
    assert cli.json("group", "drain", "orders", "billing")["drained"] is True
    for to in (offsets[0], "2020-01-01T00:00", "earliest"):
        cli.text("group", "reset", "orders", "billing", to)
        assert cli.json("group", "list")[0]["lag"] == (2 if to == offsets[0] else 3)
    cli.text("group", "pause", "orders", "billing")
    assert cli.json("group", "list")[0]["paused"] is True
    cli.text("group", "resume", "orders", "billing")
    cli.text("group", "remove", "orders", "billing")
    for action in ("show", "pause", "resume", "drain", "remove"):
        assert "no group" in cli.refusal(1, "group", action, "orders", "billing")
    assert "not a time" in cli.refusal(2, "group", "reset", "orders", "billing", "soon")


def test_schedules_are_kept_paused_and_forgotten(cli: Commands, kit: EventKit) -> None:
    added = cli.json("schedule", "add", "nightly", "0 3 * * *", "reports", '{"all": true}', "--tz", "Europe/Berlin")
    assert (added["queue"], added["payload"], added["paused"]) == ("reports", {"all": True}, False)
    assert [schedule["name"] for schedule in cli.json("schedule", "list")] == ["nightly"]
    assert len(cli.json("schedule", "next", "nightly", "-n", 3)) == 3
    assert cli.json("schedule", "pause", "nightly")["next_at"] is None
    assert "fires next at" in cli.text("schedule", "resume", "nightly")
    cli.text("schedule", "rm", "nightly")
    assert "no schedule 'nightly'" in cli.refusal(1, "schedule", "rm", "nightly")
    assert "no time for a schedule" in cli.refusal(2, "schedule", "add", "s", "now and then", "q")


def test_notifications_locks_and_an_overview(cli: Commands, kit: EventKit) -> None:
    with kit.channel("alerts").listen() as heard:
        id = cli.json("channel", "notify", "alerts", '{"new": 1}')["id"]
        notification = next(heard)
    assert (notification.id, notification.payload) == (id, {"new": 1})
    assert cli.json("channel", "list") == [{"name": "alerts", "head": id, "notifications": 1}]
    assert cli.json("channel", "prune", "--keep-count", 0) == {"channel": None, "dropped": 1}
    assert cli.json("channel", "prune", "alerts", "--keep-count", 0) == {"channel": "alerts", "dropped": 0}
    assert cli.json("lock", "list") == []
    with kit.lock("report"):
        [held] = cli.json("lock", "list")
    assert (held["lock"], held["fence"]) == ("report", 1)
    kit.queue("jobs").enqueue(1)
    kit.stream("orders").save_offset("search", kit.stream("orders").publish(1))
    kit.results.save("r", 1)
    assert {"queues", "streams", "schedules", "locks", "results"} <= cli.json("overview").keys()
    text = cli.text("overview")
    assert "jobs" in text
    assert "search" in text


@on_both
def test_check_says_what_serves_the_url(cli: Commands, url: str) -> None:
    assert cli.json("check")["backend"] == url.partition(":")[0]
    assert cli.json("check", "--live")["wake_ms"] > 0


@on_both
def test_compacting_leaves_all_there_is(cli: Commands, kit: EventKit, url: str) -> None:
    queue = kit.queue("jobs")
    queue.enqueue_many(["x" * 1000] * 3000)
    queue.purge()
    queue.enqueue("left")
    sizes = cli.json("queue", "compact")
    assert sizes["after"] < sizes["before"] or url.startswith("postgres")  # The rest stays stored.
    assert [task.payload for task in queue.peek(9)] == ["left"]


def test_bench_leaves_nothing(cli: Commands, kit: EventKit) -> None:
    ran = cli.run("bench", "--seconds", "0.1", "--json")
    assert ran.code == 0, ran
    assert all(measure["value"] > 0 for measure in json.loads(ran.out))
    assert (kit.overview().queues, [stats.events for stats in kit.overview().streams.values()]) in (({}, []), ({}, [0]))


def test_what_is_no_json_is_refused_with_a_hint(cli: Commands) -> None:
    assert "needs quotes" in cli.refusal(2, "task", "enqueue", "jobs", "hello")
    assert "not a header" in cli.refusal(2, "task", "enqueue", "jobs", "1", "--header", "x")
    assert "not a duration" in cli.refusal(2, "task", "enqueue", "jobs", "1", "--delay", "soon")
    assert "not a time" in cli.refusal(2, "task", "enqueue", "jobs", "1", "--run-at", "soon")
    assert "1 to 255 characters" in cli.refusal(2, "task", "enqueue", "", "1")
    assert "--help" in cli.refusal(2, "task", "enqueue")
    assert "--help" in cli.refusal(2, "task", "enqueue", "jobs", "1", "--nonsense")


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
    ("stream forget orders search", {"stream": "orders", "consumer": "search"}),
    ("group pause orders billing", {"stream": "orders", "group": "billing"}),
    ("group resume orders billing", {"stream": "orders", "group": "billing"}),
    ("group reset orders billing latest", {"stream": "orders", "group": "billing", "to": "latest"}),
    ("group remove orders billing", {"stream": "orders", "group": "billing"}),
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
    with kit.stream("orders").join("billing") as member:
        member.next()
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


SESSION = """
queue add --name mails --max-attempts 2 --visibility-ms 30000
queue show --name mails
message enqueue --queue mails --payload {"to":"ann"} --idempotency-key=a --delay-ms 0
message enqueue --queue mails --file tasks.jsonl
queue peek --name mails --limit 3
message peek --queue mails
message poll --queue mails --batch 2 --visibility-ms 60000
message extend-lease --queue mails --id #0 --ms 60000
message ack --queue mails --ids #0
message nack --queue mails --ids #1 --delay-ms 0
message get --queue mails --batch 9
message nack --queue mails --ids #1,#2
message remove --queue mails --id #2
stats --queue mails
metrics
dlq list --queue mails
dlq show --queue mails --id #1
dlq requeue --queue mails --ids #1
queue requeue-dlq --name mails
dlq purge --queue mails --yes
queue purge --name mails --yes
queue rm --name mails --force --yes
"""
"""Commands in the spelling of Sqew.  Each succeeds after those before it; #0 is the first task."""


def test_each_spelling_is_that_of_a_command(
    cli: Commands, kit: EventKit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole session runs, in which each spelling occurs."""
    monkeypatch.chdir(tmp_path)
    Path("tasks.jsonl").write_text("2\n3\n4\n")
    seen, first = set[str](), 0
    for line in SESSION.strip().splitlines():
        first = first or min([task.id for task in kit.queue("mails").tasks()], default=0)
        words = line.replace("#0", f"{first}").replace("#1", f"{first + 1}").replace("#2", f"{first + 2}").split()
        seen |= {" ".join(words[:2])} & set(SPELLINGS) or {words[0]}
        cli.text("--json", *words)
    assert seen == set(SPELLINGS)
    assert kit.overview().queues == {}


def test_a_spelling_becomes_ours() -> None:
    """Each id becomes a command of its own, and other commands stay unchanged."""
    assert rewritten(["message", "ack", "--queue=q", "--ids", "7,8", "--json"]) == [
        ["task", "ack", "q", "7", "current", "--json"],
        ["task", "ack", "q", "8", "current", "--json"],
    ]
    assert rewritten(["--json", "message", "poll", "--queue", "q", "--batch", "5"]) == [
        ["task", "poll", "q", "--limit=5", "--json"]
    ]
    ours = ["queue", "add", "emails", "--lease", "2m"]
    assert (rewritten(ours), rewritten([])) == ([ours], [[]])


def test_a_task_that_is_not_claimed_has_no_current_lease(cli: Commands, kit: EventKit) -> None:
    """The command fails, and the others of its ids still run."""
    waiting, claimed = kit.queue("q").enqueue(1, priority=-1), kit.queue("q").enqueue(2)
    cli.text("task", "poll", "q")
    ran = cli.run("message", "ack", "--queue", "q", "--ids", f"{waiting.id},{claimed.id}")
    assert (ran.code, kit.queue("q").get(claimed.id)) == (1, None)
    other = kit.queue("other").enqueue(3).id
    cli.text("task", "poll", "other")
    assert "lease" in cli.refusal(1, "message", "ack", "--queue", "q", "--ids", other)
    assert "is not a token" in cli.refusal(2, "task", "ack", "q", waiting.id, "x")
