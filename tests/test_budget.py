"""The size of the repository: limits that fall with each commit that makes it smaller."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent

LINES = 117_900
PRODUCTION_LINES = 49_400
PRODUCTION_MODULES = 170
PUBLIC_NAMES = 49

TEXT = {".py", ".pyi", ".sql", ".md", ".toml", ".yml", ".html", ".css", ".js", ".txt", ".json", ".ini", ".mako"}
PLACES = ("eventkit", "backends", "migrations", "tests", "benchmarks", "docs", ".ci")
PRODUCTION = ("eventkit", "backends", "migrations")


def files(*places: str) -> Iterator[Path]:
    """Yield the files of text in some folders."""
    for place in places:
        for path in (ROOT / place).rglob("*"):
            if path.is_file() and (path.suffix in TEXT or place == ".ci") and "__pycache__" not in path.parts:
                yield path


def production() -> Iterator[Path]:
    """Yield the files that users install, without the conformance suite."""
    return (path for path in files(*PRODUCTION) if "conformance" not in path.parts)


def count(paths: Iterator[Path]) -> int:
    """Return the number of lines of some files."""
    return sum(len(path.read_bytes().splitlines()) for path in paths)


def test_all_lines() -> None:
    """All text of the repository, including tests and documentation, stays below its limit."""
    top = [
        path
        for path in ROOT.iterdir()
        if path.is_file() and (path.suffix in TEXT or path.name in ("Makefile", "LICENSE"))
    ]
    assert count(iter(top)) + count(files(*PLACES)) <= LINES


def test_production_lines() -> None:
    """Lines of Python, SQL and templates stay below their limit."""
    assert count(production()) <= PRODUCTION_LINES


def test_production_modules() -> None:
    """The number of Python modules stays below its limit."""
    assert len([path for path in production() if path.suffix == ".py"]) <= PRODUCTION_MODULES


def test_public_names() -> None:
    """The number of names that `import eventkit` gives stays below its limit."""
    import eventkit

    assert len(eventkit.__all__) <= PUBLIC_NAMES
