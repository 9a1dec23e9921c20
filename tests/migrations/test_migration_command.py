"""`python -m eventkit_migrations`."""

import subprocess
import sys
from pathlib import Path

import eventkit_migrations
import pytest
from eventkit_migrations import HEAD, VERSION_TABLE
from eventkit_migrations.__main__ import main
from schemas import connected, on_postgres, place


def test_the_command_line(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command prints the revision it ends at, and exits with 0."""
    for command, printed in [
        (["current", url], "none\n"),
        (["upgrade", url], f"{HEAD}\n"),
        (["current", url], f"{HEAD}\n"),
        (["upgrade", url, "--to", HEAD], f"{HEAD}\n"),
        (["downgrade", url, "--to", "base"], "none\n"),
    ]:
        assert main(command) == 0
        assert capsys.readouterr() == (printed, "")


def test_the_command_line_says_in_one_line_what_went_wrong(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failure is one line on stderr and exit code 1."""
    newer = place(url, "newer")
    eventkit_migrations.upgrade(newer)
    with connected(newer) as connection:
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    nowhere, reason = place(url, "missing/shop"), "unable to open database file"
    if on_postgres(url):
        nowhere, reason = "postgresql://ann:secret@127.0.0.1:1/shop?password=secret", "no connection"
    for arguments, word in [
        (["upgrade", newer], "9999"),
        (["upgrade", url, "--to", "12"], "'12'"),
        (["upgrade", nowhere], reason),
        (["current", "mysql://localhost/shop"], "mysql"),
        (["current", "nonsense"], "nonsense"),
    ]:
        assert main(arguments) == 1
        printed, error = capsys.readouterr()
        assert printed == ""
        assert word in error
        assert "secret" not in error
        assert error.count("\n") == 1


def test_the_command_line_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """--help exits with 0, a misuse with 2."""
    with pytest.raises(SystemExit) as asked:
        main(["--help"])
    assert asked.value.code == 0
    said = " ".join(capsys.readouterr().out.lower().split())
    assert "dropped with its data" in said
    assert "postgresql://" in said
    with pytest.raises(SystemExit) as misused:
        main(["downgrade", "sqlite:///shop.db"])
    assert misused.value.code == 2


def test_the_module_can_be_run(url: str) -> None:
    """python -m eventkit_migrations is the command."""
    command = [sys.executable, "-m", "eventkit_migrations", "upgrade", url]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == f"{HEAD}\n"
