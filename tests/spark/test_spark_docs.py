"""The blocks of `docs/spark.md` run in order in one session."""

from pathlib import Path
from typing import Any

import pytest
from test_docs import ROOT, blocks

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
