"""Sqew's spelling of commands."""

from pathlib import Path

import command_line
import databases
import pytest
from command_line import Commands

from eventkit import EventKit
from eventkit.cli.spellings import SPELLINGS, rewritten

url, kit, cli = databases.url, databases.kit, command_line.cli

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
