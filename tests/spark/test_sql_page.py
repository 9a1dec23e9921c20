"""The examples of docs/sql.md about one file run, as those of the other pages do in ``test_cli_docs``."""

import shlex
from pathlib import Path
from typing import Any

import pytest
from test_cli_docs import SPARKS, examples

from eventkit.cli import main

FILES = {
    "prices.csv": "name,price\ntea,4.50\ncoffee,7.25\ncocoa,6\n",
    "orders.jsonl": '{"id": 1, "lines": [{"sku": "tea", "n": 2}, {"sku": "cups"}]}\n',
}
"""What the page takes for granted."""


def test_its_examples_of_one_file_run(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And say what they are there to say."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, "utf-8")
    lines = [line for line in examples(SPARKS) if line.startswith("eventkit select ")]
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0, line
    told = capsys.readouterr().out
    assert ("coffee" in told, "17.75" in told) == (True, True)
    assert (tmp_path / "skus.csv").read_text("utf-8").split() == ["sku", "tea"]
