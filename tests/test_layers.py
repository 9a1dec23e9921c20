"""Imports point one way.

Each module of the kit stands on a floor and imports only what stands on lower ones, or beside it where the
floor is one room.  Backends see the floors that are theirs, and the kit reaches them by entry point.
"""

import ast
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parent.parent

FLOORS = (
    {"errors", "checks", "telemetry", "metrics", "logs"},
    {"new_file", "transaction"},
    {"codec", "retry", "fork", "cron"},
    {"values"},
    {"operations"},
    {"plans", "statements"},
    {"backend"},
    {"protocols_async"},
    {"protocols"},
    {"handling"},
    {"loops", "flavours", "partitions"},
    {"member"},
    {"stream", "queue", "channel", "locks", "results", "schedules"},
    {"outbox", "functions"},
    {"kit"},
    {"transfer", "app", "arrow", "rollup"},
    {"testing", "archive", "webhooks", "access"},
    {""},
    {"sqlalchemy", "worker", "spark", "report"},
    {"conformance", "demo"},
    {"canary"},
    {"http"},
    {"cli"},
)
"""From the ground up; rooms of a floor do not import each other.  ``""`` is the package itself."""

FOR_BACKENDS = {
    "backend",
    "checks",
    "codec",
    "errors",
    "fork",
    "functions",
    "new_file",
    "operations",
    "plans",
    "protocols",
    "statements",
    "transaction",
    "values",
}

BACKENDS = ("eventkit_sqlite", "eventkit_postgres")

FOREIGN = ROOT / "tests" / "foreign_backend" / "eventkit_elsewhere"


def imports(file: Path, package: str) -> Iterator[str]:
    """Return the absolute names of all modules that *file*, which belongs to *package*, imports anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")
            base = [*above[: len(above) - node.level + 1]] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            # ``from . import x`` and ``from package import x`` may each name a module.
            for alias in node.names:
                file_or_folder = ROOT / name.replace(".", "/") / alias.name
                is_module = file_or_folder.with_suffix(".py").exists() or (file_or_folder / "__init__.py").exists()
                yield f"{name}.{alias.name}" if is_module else name


def modules(folder: Path, package: str) -> Iterator[tuple[str, Path, str]]:
    """Yield each module of the package in *folder*: its name, its file, and the package it belongs to."""
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder).with_suffix("").parts
        inside = ".".join((package, *parts[:-1]))
        yield (inside if parts[-1] == "__init__" else f"{inside}.{parts[-1]}"), file, inside


def room(module: str) -> str | None:
    """Return the room in the kit that *module* is or lies in; None for a foreign module."""
    top, _, rest = module.partition(".")
    return rest.partition(".")[0] if top == "eventkit" else None


def floor(name: str) -> int:
    """Return the floor of a room."""
    return next(number for number, rooms in enumerate(FLOORS) if name in rooms)


def test_every_module_has_a_floor() -> None:
    """Every module has a floor, so a new one needs a decision."""
    rooms = {room(name) for name, _, _ in modules(ROOT / "eventkit", "eventkit")}
    assert rooms == set().union(*FLOORS)


def test_imports_in_the_kit_point_down() -> None:
    """No module imports one from its own floor or above, except inside its own room."""
    for name, file, package in modules(ROOT / "eventkit", "eventkit"):
        here = room(name)
        assert here is not None
        for imported in imports(file, package):
            there = room(imported)
            # The types of each flavour name the other flavour.
            if there is not None and there != here and (here, there) != ("protocols_async", "protocols"):
                assert floor(there) < floor(here), f"{name} imports {imported}"


def test_the_kit_reaches_backends_by_entry_point() -> None:
    """Nothing in the kit names a backend's package, its driver, the migrations or a framework.

    The suite needs SQLAlchemy for an application's transactions on every backend, and `eventkit.sqlalchemy` imports
    it; `transaction` does where the application has.  The command line migrates, and handles SQLAlchemy's errors then.
    """
    allowed = {
        "conformance": {"sqlalchemy"},
        "sqlalchemy": {"sqlalchemy"},
        "transaction": {"sqlalchemy"},
        "cli": {"eventkit_migrations", "sqlalchemy"},
    }
    foreign = {*BACKENDS, "eventkit_migrations", "apsw", "sqlite3", "psycopg", "sqlalchemy", "alembic"}
    for name, file, package in modules(ROOT / "eventkit", "eventkit"):
        if room(name) != "demo":
            named = foreign & {imported.partition(".")[0] for imported in imports(file, package)}
            assert named <= allowed.get(room(name) or "", set()), name
    assert {entry.module for entry in entry_points(group="eventkit.backends")} >= set(BACKENDS)


def test_backends_see_only_what_is_theirs() -> None:
    """A backend imports operations and the means to run them, but no handles, loops or other backends."""
    for backend in BACKENDS:
        for name, file, package in modules(ROOT / "backends" / backend, backend):
            for imported in imports(file, package):
                assert room(imported) in {None, *FOR_BACKENDS}, f"{name} imports {imported}"
                assert imported.partition(".")[0] not in {*BACKENDS} - {backend}, f"{name} imports {imported}"


def test_a_foreign_backend_sees_what_authors_are_offered() -> None:
    """The backend of a third party imports what the documentation offers, and no backend of eventkit's own."""
    offered = {"checks", "errors", "fork", "operations", "plans", "statements"}
    for name, file, package in modules(FOREIGN, FOREIGN.name):
        for imported in imports(file, package):
            assert room(imported) in {None, *offered}, f"{name} imports {imported}"
            assert imported.partition(".")[0] not in BACKENDS, f"{name} imports {imported}"


def test_only_statements_know_what_a_queue_is() -> None:
    """A backend's Python names no operation but those that are the same for every database."""
    for backend, folder in (*((name, ROOT / "backends" / name) for name in BACKENDS), (FOREIGN.name, FOREIGN)):
        for name, file, package in modules(folder, backend):
            for imported in imports(file, package):
                assert imported in {"eventkit.operations", "eventkit.operations.tables"} or not imported.startswith(
                    "eventkit.operations"
                ), f"{name} imports {imported}"


def test_the_suite_uses_what_users_use() -> None:
    """Conformance tests import the public package, its test help and their own fixtures; no backend, no operation."""
    allowed = {"", "kit", "conformance", "testing", "errors", "protocols", "values", "retry", "codec", "checks"}
    allowed |= {"sqlalchemy"}
    for name, file, package in modules(ROOT / "eventkit" / "conformance", "eventkit.conformance"):
        if file.name.startswith("test_"):
            for imported in imports(file, package):
                assert room(imported) in {None, *allowed}, f"{name} imports {imported}"
                assert imported.partition(".")[0] not in BACKENDS, f"{name} imports {imported}"
