"""The examples of docs/sql.md run, as those of the other pages do in ``test_cli_docs``."""

import io
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_cli_docs import SPARKS, examples

from eventkit.cli import main


def test_its_examples_run(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They run in order in a new folder, and print what the page shows."""
    monkeypatch.chdir(tmp_path)
    for line in examples(SPARKS):
        given, _, line = line.rpartition(" | ")
        match shlex.split(line):
            case ["export", "EVENTKIT_URL=sqlite:///shop.db"]:
                # The session was started in another folder.
                monkeypatch.setenv("EVENTKIT_URL", f"sqlite:///{tmp_path}/shop.db")
            case ["printf", *_]:
                subprocess.run(["bash", "-c", line], check=True)
            case ["eventkit", *arguments]:
                monkeypatch.setattr("sys.stdin", io.StringIO("".join(shlex.split(given)[1:])))
                assert main(arguments) == 0, line
            case _:
                pytest.fail(f"{line} is no example")
    output = capsys.readouterr().out
    assert ("coffee" in output, "17.75" in output, "bob" in output) == (True, True, True)
    assert (tmp_path / "skus.csv").read_text("utf-8").split() == ["sku", "tea"]
    assert (tmp_path / "best.csv").read_text("utf-8").split() == ["key,total", "1,12.5", "2,3.0"]
    assert "emails" in (tmp_path / "shop.html").read_text("utf-8")
