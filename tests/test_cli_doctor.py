"""Diagnostics of ``eventkit doctor``, and the remedies it prints."""

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import command_line
import databases
import psycopg
import pytest
from command_line import Commands
from databases import on_both

from eventkit import EventKit
from eventkit.testing import advance

url, kit, cli = databases.url, databases.kit, command_line.cli
folder = command_line.folder


@on_both
def test_doctor_finds_what_is_wrong_and_says_what_to_do(cli: Commands, kit: EventKit) -> None:
    diagnostics = json.loads(cli.run("doctor", "--json").out)["diagnostics"]
    # The suite's server runs without the settings that protect from crashes of the machine.
    assert {one["what"].split()[0] for one in diagnostics if one["level"] == "bad"} <= {"fsync", "full_page_writes"}
    assert "all tables and indexes are there" in {one["what"] for one in diagnostics}
    kit.queue("idle").enqueue(1)
    kit.queue("resting").enqueue(1)
    kit.queue("resting").pause()
    kit.stream("orders").publish(1)
    kit.stream("orders").seek("stuck", 0)
    kit.schedules.add("late", "@every 1h", "idle")
    advance(kit, 7200)
    ran = cli.run("doctor")
    assert ran.code == 1
    for found, remedy in (
        ("queue idle", "start a worker"),
        ("queue resting is paused", "queue resume resting"),
        ("consumer stuck of stream orders", "stream seek orders stuck"),
        ("schedule late", "scheduler"),
    ):
        assert found in ran.out
        assert remedy in ran.out
    assert "problems found" in ran.err


@pytest.fixture
def shop(folder: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    """Return commands on ``shop.db``."""
    return Commands(capsys, "sqlite:///shop.db")


def test_doctor_sees_a_missing_index_and_a_mode_in_which_readers_wait(shop: Commands) -> None:
    """It looks before it opens the file as a kit does, which changes the mode."""
    with closing(sqlite3.connect("shop.db")) as connection:
        connection.execute("DROP INDEX eventkit_task_ready")
        connection.execute("PRAGMA journal_mode = delete")
    ran = shop.run("doctor")
    assert ran.code == 1
    assert "lacks eventkit_task_ready" in ran.out
    assert "the file is in delete mode" in ran.out
    assert "WAL mode" in shop.run("doctor").out


def test_doctor_reports_another_distribution_of_the_import_name(
    folder: Path, shop: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = folder / "site" / "eventkit-1.0.3.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: eventkit\nVersion: 1.0.3\n", "utf-8")
    (other / "RECORD").write_text("eventkit/__init__.py,,\n", "utf-8")
    assert "distribution eventkit also installs" not in shop.run("doctor").out
    monkeypatch.syspath_prepend(other.parent)
    ran = shop.run("doctor", "--json")
    [found] = [
        one for one in json.loads(ran.out)["diagnostics"] if "distribution eventkit also installs" in one["what"]
    ]
    assert (ran.code, found["remedy"]) == (1, "pip uninstall eventkit eventkit-db, then pip install eventkit-db")


def test_doctor_sees_two_libraries_in_one_process(shop: Commands) -> None:
    """It reports them if both have the file open; eventkit itself loads both, which is no problem."""
    program = (
        "import sqlite3, sys, eventkit; kit = eventkit.connect('sqlite:///shop.db'); kit.queue('q').size(); "
        "other = sqlite3.connect('shop.db'); {use}; print('ready', flush=True); sys.stdin.read()"
    )
    for use, found in (("other.close()", False), ("other.execute('SELECT * FROM eventkit_task')", True)):
        command = [sys.executable, "-c", program.format(use=use)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            other.stdout.readline()
            ran = shop.run("doctor")
            assert (f"process {other.pid} " in ran.out) is found
            assert ("sqlite+apsw://" in ran.out) is found
            assert ran.code == found
            other.communicate()


def test_doctor_sees_what_a_server_suffers_from(
    postgres_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reports transactions that stay open, forgotten prepared ones, and rejected connections."""
    monkeypatch.setattr("eventkit_postgres.admin._LONG", 0)
    cli = Commands(capsys, postgres_url)
    cli.text("migrate")
    server, schema = re.sub(r"[?&]schema=\w+$", "", postgres_url), postgres_url.rpartition("=")[2]
    with psycopg.connect(server) as idle, psycopg.connect(server, autocommit=True) as other:
        idle.execute("SELECT 1")
        pid = idle.info.backend_pid
        other.execute(f"BEGIN; SELECT txid_current(); PREPARE TRANSACTION '{schema}'".encode())
        try:
            other.execute(f"DROP INDEX {schema}.eventkit_task_ready".encode())
            ran = cli.run("doctor")
        finally:
            other.execute(f"ROLLBACK PREPARED '{schema}'".encode())
    assert ran.code == 1
    for found, remedy in (
        (f"process {pid} ", f"pg_terminate_backend({pid})"),
        (f"the prepared transaction '{schema}'", f"ROLLBACK PREPARED '{schema}'"),
        ("the schema lacks eventkit_task_ready", "eventkit migrate --sql"),
    ):
        assert found in ran.out
        assert remedy in ran.out
