"""`eventkit query`, `rollup` and `report` as commands."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from command_line import Commands
from pyarrow import parquet

import eventkit

SQL = "SELECT payload:to, count(*) AS n FROM orders GROUP BY 1 ORDER BY 2"


@pytest.fixture
def commands(spark: Any, capsys: pytest.CaptureFixture[str], sqlite_url: str) -> Commands:
    """Return commands on a database with three orders and two jobs."""
    with eventkit.connect(sqlite_url) as kit:
        kit.stream("orders").publish_many([{"to": "ann"}, {"to": "bob"}, {"to": "bob", "lines": [1, None]}])
        kit.queue("emails").configure(history=True)
        kit.queue("emails").enqueue_many([1, 2])
        [task] = kit.queue("emails").claim("w")
        kit.queue("emails").ack(task)
    return Commands(capsys, sqlite_url)


def test_what_comes_out(commands: Commands, tmp_path: Path) -> None:
    """A table, JSON, CSV and Parquet have the same values."""
    assert commands.text("query", SQL).splitlines() == ["to   n", "ann  1", "bob  2"]
    said = commands.text("query", SQL, "--output-format", "json")
    assert [json.loads(line) for line in said.splitlines()] == [{"to": "ann", "n": 1}, {"to": "bob", "n": 2}]
    assert list(csv.reader(io.StringIO(commands.text("query", SQL, "--output-format", "csv")))) == [
        ["to", "n"],
        ["ann", "1"],
        ["bob", "2"],
    ]
    assert commands.text("query", "SELECT payload:lines FROM orders", "-o", tmp_path / "lines.parquet") == ""
    assert parquet.read_table(tmp_path / "lines.parquet").to_pylist()[-1] == {"lines": [1, None]}


def test_statements_one_after_the_other(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each statement of a pipe ends with a semicolon; the first error ends the command."""
    monkeypatch.setattr(
        "sys.stdin", io.StringIO("\nSELECT 1 AS a;\n\nSELECT count(*) AS n\n FROM orders;\nSELECT 3 AS c")
    )
    assert commands.text("query").split() == ["a", "1", "n", "3", "c", "3"]
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT * FROM ordres;\nSELECT 1;\n"))
    assert "did you mean 'orders'?" in commands.refusal(2, "query")


def test_refusals(commands: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An error is one line with the remedy."""
    assert "there is no stream 'ordres'" in commands.refusal(2, "query", "SELECT * FROM ordres")
    assert "cannot be cast" in commands.refusal(1, "query", "SELECT CAST(payload:to AS INT) FROM orders")
    assert "needs a statement" in commands.refusal(2, "query", "-o", "x.csv")
    assert "there is no stream 'ordres'" in commands.refusal(2, "rollup", "ordres")
    assert "cannot write" in commands.refusal(2, "report", "-o", tmp_path / "no" / "where.html")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    for command in (["query", SQL], ["rollup"]):
        assert commands.refusal(1, *command).startswith("JAVA_HOME is /nowhere, and no Java runs there")
    commands.url = f"sqlite:///{tmp_path}/none.db"
    commands.refusal(1, "query", SQL)


def test_rollup_and_report(commands: Commands, tmp_path: Path) -> None:
    """A rollup shows the last hours, and a report shows the rollups."""
    ran = commands.run("rollup", "--json")
    assert ran.code == 0
    summed = ["eventkit.tasks: 4 new events, up to offset 7", "orders: 3 new events, up to offset 3"]
    assert sorted(ran.err.splitlines()) == summed
    topics: dict[str, int] = {}
    for one in json.loads(ran.out):
        if "stream" in one:
            topics[one["stream"]] = topics.get(one["stream"], 0) + one["events"]
    assert topics == {"orders": 3, "eventkit.tasks": 4}
    [queue] = [one for one in json.loads(ran.out) if "queue" in one]
    assert (queue["enqueued"], queue["succeeded"], queue["failure_rate"]) == (2, 1, 0)
    assert "emails" in commands.text("rollup")
    assert commands.text("report", "-o", tmp_path / "page.html", "--title", "shop & co") == ""
    assert "<h1>shop &amp; co</h1>" in (tmp_path / "page.html").read_text("utf-8")
