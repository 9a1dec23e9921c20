"""The command as users run it: a process, its settings, its exit code."""

import resource
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import command_line
import pytest
from command_line import EVENTKIT, Commands, environment, process

import eventkit
from eventkit.conformance.clauses import proves

folder = command_line.folder


@pytest.fixture
def cli(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Return commands without a database of their own."""
    monkeypatch.delenv("EVENTKIT_URL", raising=False)
    return Commands(capsys, None)


AT_MOST = 2.0
"""Seconds of CPU time for ``--help``, which takes about 0.2; the limit tolerates a busy machine."""


def test_help_comes_at_once_and_loads_nothing_that_it_does_not_need() -> None:
    program = (
        "import sys; from eventkit.cli import main; code = main(['--help']); "
        "heavy = [name for name in ('apsw', 'psycopg', 'sqlalchemy', 'alembic', 'rich') if name in sys.modules]; "
        "sys.exit(code or ' '.join(heavy) or 0)"
    )
    took = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        assert ran.returncode == 0, ran.stderr
    assert "queue" in ran.stdout
    assert min(took) < AT_MOST


@proves("L2")
def test_the_option_beats_the_environment_and_that_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, cli: Commands
) -> None:
    for name in ("option", "environment", "own", "shared"):
        with eventkit.connect(f"sqlite:///{name}.db") as kit:
            kit.queue(name).enqueue(1)

    def found(*arguments: str) -> Any:
        return cli.json("queue", "list", *arguments)[0]["queue"]

    (folder / "pyproject.toml").write_text('[tool.eventkit]\nurl = "sqlite:///shared.db"\n', "utf-8")
    assert found() == "shared"
    (folder / "eventkit.toml").write_text('url = "sqlite:///own.db"\n', "utf-8")
    assert found() == "own"
    monkeypatch.setenv("EVENTKIT_URL", "sqlite:///environment.db")
    assert found() == "environment"
    assert found("--url", "sqlite:///option.db") == "option"


@proves("L2")
def test_without_a_database_it_says_how_to_name_one(folder: Path, cli: Commands) -> None:
    refusal = cli.refusal(2, "stats")
    assert all(way in refusal for way in ("--url", "EVENTKIT_URL", "[tool.eventkit]"))
    for text, reason in (("url = 3", "use a text"), ("ulr = 'x'", "unknown setting 'ulr'"), ("url =", "read")):
        (folder / "eventkit.toml").write_text(text, "utf-8")
        assert reason in cli.refusal(2, "stats")


@proves("L2")
def test_only_migrate_creates_a_database(folder: Path, cli: Commands) -> None:
    for command in (["stats"], ["task", "enqueue", "q", "1"], ["doctor"], ["current"]):
        cli.run(*command, "--url", "sqlite:///typo.db")
        assert not (folder / "typo.db").exists(), command


@proves("L1")
@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["stats", "--url", "nonsense://x"], 1, "no installed backend"),
        (["stats", "--url", "sqlite:///none.db"], 1, "migrat"),
        (["stats", "--url", "sqlite:///shop.db?speed=9"], 2, "unknown option"),
        (["stats", "--url", "postgresql://localhost:1/none"], 1, "localhost"),
        (["migrate", "--url", "postgresql://localhost:1/none"], 1, "localhost"),
        (["stats", "--url", "sqlite:///text.db"], 1, "not an SQLite database"),
        (["nonsense"], 2, "--help"),
        (["queue", "show"], 2, "QUEUE"),
        (["backup", "x.db", "--url", "postgresql://localhost/x"], 1, "pg_dump"),
    ],
)
def test_an_error_is_one_line_with_the_remedy(
    folder: Path, cli: Commands, arguments: list[str], code: int, word: str
) -> None:
    (folder / "text.db").write_text("this is no database, but long enough to be looked at" * 9, "utf-8")
    assert word in cli.refusal(code, *arguments)


def test_without_the_extra_there_is_a_line_with_the_command() -> None:
    program = "import sys; sys.modules['typer'] = None; from eventkit.cli import main; sys.exit(main(['--help']))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr == "eventkit: the command line is not installed: pip install 'eventkit-db[cli]'\n"


def test_a_pipe_may_be_closed_early(folder: Path) -> None:
    with eventkit.connect("sqlite:///shop.db") as kit:
        kit.stream("t").publish_many(range(20_000))
    command = f"{' '.join(EVENTKIT)} stream read t -n 20000 --url sqlite:///shop.db | head -n 1"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment(), timeout=60)
    assert ran.stderr == ""


@proves("L3")
def test_lines_come_from_stdin(folder: Path) -> None:
    ran = process("task", "enqueue", "jobs", "--file", "-", "--url", "sqlite:///shop.db", stdin='{"a":1}\n{"a":2}\n')
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("2 tasks enqueued in ")
    with eventkit.connect("sqlite:///shop.db") as kit:
        assert [task.payload for task in kit.queue("jobs").tasks()] == [{"a": 1}, {"a": 2}]


@proves("L4")
def test_a_backup_is_whole_while_others_write(folder: Path) -> None:
    with eventkit.connect("sqlite:///shop.db") as kit:
        kit.queue("jobs").enqueue_many(range(5000))
        ran = process("backup", "copy.db", "--url", "sqlite:///shop.db")
        kit.queue("jobs").enqueue(1)
    assert ran.returncode == 0, ran.stderr
    with eventkit.connect("sqlite:///copy.db", create=False) as kit:
        assert kit.queue("jobs").size() == 5000
    assert "already exists" in process("backup", "copy.db", "--url", "sqlite:///shop.db").stderr


def test_the_script_of_a_migration_makes_what_a_migration_makes(folder: Path) -> None:
    sql = process("migrate", "--sql", "--url", "sqlite:///by_hand.db").stdout
    with sqlite3.connect("by_hand.db") as connection:
        connection.executescript(sql)
    connection.close()
    with eventkit.connect("sqlite:///by_hand.db", create=False) as kit:
        kit.queue("jobs").enqueue(1)


def test_shell_completion_knows_the_commands() -> None:
    asked = environment(_EVENTKIT_COMPLETE="complete_bash", COMP_WORDS="eventkit queu", COMP_CWORD="1")
    ran = process(env=asked)
    assert ran.stdout.split() == ["queue"]
