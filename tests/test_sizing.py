"""The figures of docs/sizing.md are those of benchmarks/RESULTS.md.

``python tests/test_sizing.py`` rewrites them.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "sizing.md"
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
TABLE = re.compile(r"^\| (?:work|process) \|.*\n(?:\|.*\n)+", re.MULTILINE)

WORK = (
    "enqueue, one per transaction",
    "enqueue_many of 100",
    "enqueue_many of 1,000",
    "claim + ack, one by one",
    "claim + ack in batches of 128",
    "publish, one per transaction",
    "publish_many of 100",
    "replay with read()",
    "replay with subscribe()",
)
COLUMNS = {
    "SQLite": ("Throughput", "eventkit /s"),
    "SQLite, asyncio": ("Throughput", "async /s"),
    "Postgres": ("Postgres, one connection", "eventkit /s"),
    "Postgres, asyncio": ("Postgres, one connection", "async /s"),
}


def table(heading: str) -> dict[str, dict[str, str]]:
    """Return the table under a heading of the results, by the first column, and then by the others."""
    part = RESULTS.read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", part, re.MULTILINE)
    ]
    return {first: dict(zip(lines[0][1:], rest, strict=True)) for first, *rest in lines[2:]}


def throughput() -> str:
    """Return the throughput in a second, in the page's form."""
    rows = [("work", *COLUMNS), ("---",) * (1 + len(COLUMNS))]
    for work in WORK:
        figures = [table(heading).get(work, {}).get(column, "–") for heading, column in COLUMNS.values()]
        assert figures != ["–"] * len(COLUMNS), work
        rows.append((work, *figures))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def memory() -> str:
    """Return the memory of a process, in the page's form."""
    rows = [("process", "resident"), ("---", "---")]
    rows += [(process, cells["resident"]) for process, cells in table("Memory").items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def rewritten(page: str) -> str:
    """Return the page with the figures of the results."""
    figures = iter((throughput(), memory()))
    return TABLE.sub(lambda _: next(figures), page)


def test_the_figures_are_those_of_the_results() -> None:
    """Run ``python tests/test_sizing.py`` if they differ."""
    page = PAGE.read_text("utf-8")
    assert len(TABLE.findall(page)) == 2
    assert rewritten(page) == page


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text("utf-8")), "utf-8")
