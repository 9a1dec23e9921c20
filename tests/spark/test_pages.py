"""The blocks of `docs/spark.md` and the examples of `docs/sql.md` run, as those of the other pages do elsewhere."""

import io
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_cli_docs import SPARKS, examples
from test_docs import ROOT, blocks

from eventkit.cli import main
from eventkit.spark import options

PAGE = ROOT / "docs" / "spark.md"


def test_the_page_runs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of the page run in order without an error."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "page"}
    try:
        for line, block in blocks(PAGE, "python"):
            block = block.replace("sqlite:///", f"sqlite:///{tmp_path}/").replace('"lake/', f'"{tmp_path}/lake/')
            exec(compile("\n" * (line - 1) + block, PAGE, "exec"), namespace)
    finally:
        if "kit" in namespace:
            namespace["kit"].close()


@pytest.mark.parametrize(
    ("heading", "known"), [("| option | meaning | default |", options.READ), ("| option | meaning |\n", options.WRITE)]
)
def test_every_option_is_on_the_page(heading: str, known: dict[str, Any]) -> None:
    """Every option is documented, and every documented one exists."""
    text = PAGE.read_text("utf-8").partition(heading)[2].partition("\n\n")[0]
    documented = [name for row in text.splitlines() if row.startswith("| `") for name in row.split("|")[1].split(",")]
    assert {name.strip(" `") for name in documented} == set(known)


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
