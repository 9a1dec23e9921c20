"""Input and output of the command line: lines of tasks and events, exports, copies."""

import json
from pathlib import Path
from typing import Any

import command_line
import databases
import pytest
from command_line import Commands
from databases import on_both

import eventkit
from eventkit import EventKit
from eventkit.conformance.clauses import proves

url, kit, cli = databases.url, databases.kit, command_line.cli


@proves("L3")
@pytest.mark.parametrize("what", ["task", "stream"])
def test_a_file_goes_in_line_by_line(cli: Commands, kit: EventKit, tmp_path: Path, what: str) -> None:
    """The file has several batches, and blank lines are skipped."""
    file = tmp_path / "lines.ndjson"
    file.write_text("\n".join(json.dumps({"n": n}) if n % 1000 else f'\n{{"n":{n}}}' for n in range(4500)), "utf-8")
    command = ("task", "enqueue", "jobs") if what == "task" else ("stream", "publish", "jobs")
    assert cli.json(*command, "--file", file)["number"] == 4500
    found: list[Any] = kit.queue("jobs").tasks(limit=9999) if what == "task" else kit.stream("jobs").read(0, 9999)
    assert [one.payload["n"] for one in found] == list(range(4500))


@proves("L3")
@pytest.mark.parametrize("bad", ['{"n": 1', "NaN", '"\\ud800"', f'"{"x" * 600_000}"'])
def test_a_bad_line_is_named_and_those_before_it_are_in(cli: Commands, kit: EventKit, tmp_path: Path, bad: str) -> None:
    file = tmp_path / "lines.ndjson"
    file.write_text("\n".join([*map(str, range(2499)), bad, "1"]), "utf-8")
    refusal = cli.refusal(1, "task", "enqueue", "jobs", "--file", file)
    assert refusal.startswith("line 2500 ")
    assert "tail -n +2500" in refusal
    assert kit.queue("jobs").size() == 2499
    assert "fix it" in cli.refusal(1, "stream", "publish", "t", "--file", _first_bad(tmp_path))
    assert kit.stream("t").read() == []


def _first_bad(folder: Path) -> Path:
    file = folder / "first.ndjson"
    file.write_text("nonsense\n1\n", "utf-8")
    return file


def test_options_hold_for_every_line_of_a_file(cli: Commands, kit: EventKit, tmp_path: Path) -> None:
    file = tmp_path / "lines.ndjson"
    file.write_text("1\n2\n", "utf-8")
    cli.text("task", "enqueue", "jobs", "--file", file, "--priority", 5, "--delay", "1h", "--header", "a=b")
    tasks = kit.queue("jobs").tasks()
    assert [(task.payload, task.priority, task.state) for task in tasks] == [(1, 5, "scheduled"), (2, 5, "scheduled")]
    refusal = cli.refusal(2, "task", "enqueue", "jobs", "--file", file, "--key", "k")
    assert "--key does not work with --file" in refusal
    assert "pass either PAYLOAD" in cli.refusal(2, "task", "enqueue", "jobs")
    assert "cannot read" in cli.refusal(2, "task", "enqueue", "jobs", "--file", tmp_path / "none")
    cli.text("stream", "publish", "t", "--file", file, "--key", "k")
    assert [event.key for event in kit.stream("t").read()] == ["k", "k"]


@proves("L4")
@on_both
def test_what_is_exported_is_imported_elsewhere(
    cli: Commands, kit: EventKit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Imported and exported once more, the file is the same."""
    kit.queue("jobs").configure(rate=0.1, max_attempts=5)
    kit.queue("jobs").enqueue_many([{"n": n, "é": "\u0000"} for n in range(1203)])
    kit.queue("jobs").claim("me", 3)
    kit.queue("other").enqueue("x", key="k")
    kit.stream("orders").publish_many(range(10))
    kit.stream("orders").save_offset("search", 4)
    kit.schedules.add("nightly", "@daily", "jobs")
    file, again = tmp_path / "kit.ndjson", tmp_path / "again.ndjson"
    assert cli.json("export", file)["rows"] >= 1217
    assert "already exists" in cli.refusal(1, "export", file)
    assert file.stat().st_mode & 0o077 == 0
    other = Commands(capsys, f"sqlite:///{tmp_path}/other.db")
    counts = {row["table"]: row["rows"] for row in other.json("import", file)}
    assert (counts["eventkit_task"], counts["eventkit_event"]) == (1204, 10)
    other.text("export", again)
    assert again.read_text("utf-8") == file.read_text("utf-8")
    assert "has rows already" in other.refusal(2, "import", file)
    with eventkit.connect(str(other.url)) as copied:
        assert copied.queue("jobs").size() == 1203
        assert copied.queue("jobs").enqueue(1).id > 1204


@proves("L4")
def test_an_export_without_its_end_is_not_taken_for_a_whole_one(
    cli: Commands, kit: EventKit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kit.stream("orders").publish_many(range(10))
    file = tmp_path / "kit.ndjson"
    cli.text("export", file)
    lines = file.read_text("utf-8").splitlines(keepends=True)
    for number, broken in enumerate((lines[:-1], [*lines[:-2], lines[-1]], lines[1:], ["[1]\n"])):
        file.write_text("".join(broken), "utf-8")
        other = Commands(capsys, f"sqlite:///{tmp_path}/other{number}.db")
        assert "export" in other.refusal(2, "import", file)
