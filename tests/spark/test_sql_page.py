"""The examples of docs/sql.md run, as those of the other pages do in ``test_cli_docs``."""

import io
import shlex
from pathlib import Path
from typing import Any

import pytest
from test_cli_docs import SPARKS, examples

import eventkit
from eventkit.cli import main

FILES = {
    "prices.csv": "name,price\ntea,4.50\ncoffee,7.25\ncocoa,6\n",
    "orders.jsonl": '{"id": 1, "lines": [{"sku": "tea", "n": 2}, {"sku": "cups"}]}\n',
}
"""What the page takes for granted."""


def test_its_examples_run(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other, and say what they are there to say."""
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path}/shop.db"  # The session was begun in another folder.
    monkeypatch.setenv("EVENTKIT_URL", url)
    eventkit.connect(url).close()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, "utf-8")
    for line in examples(SPARKS):
        given, _, line = line.rpartition(" | ")
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(shlex.split(given)[1:])))
        assert main(shlex.split(line)[1:]) == 0, line
    told = capsys.readouterr().out
    assert ("coffee" in told, "17.75" in told, "bob" in told) == (True, True, True)
    assert (tmp_path / "skus.csv").read_text("utf-8").split() == ["sku", "tea"]
    assert (tmp_path / "best.csv").read_text("utf-8").split() == ["key,total", "1,12.5", "2,3.0"]
    assert "emails" in (tmp_path / "shop.html").read_text("utf-8")
