"""Fixtures of every test of the suite.  The backend defines ``url``."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

import eventkit
from eventkit.kit import backend_of

from .calling import WAYS, Caller, Plain
from .flavours import Blocking, Loop
from .orders import create_orders, drop_orders


class _Lacking:
    """A report, at the end of a run, of how many tests were skipped for each thing that the backend lacks."""

    def __init__(self) -> None:
        self.tests: Counter[str] = Counter()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for lacking, number in sorted(self.tests.items()):
            terminalreporter.write_line(f"{number} tests of the suite skipped: the backend {lacking}")


_LACKING = pytest.StashKey[_Lacking]()


def _lacks(config: pytest.Config, lacking: str, purpose: str = "") -> NoReturn:
    """Skip the test and count it for what the backend lacks."""
    if _LACKING not in config.stash:
        config.stash[_LACKING] = _Lacking()
        config.pluginmanager.register(config.stash[_LACKING])
    config.stash[_LACKING].tests[lacking] += 1
    pytest.skip(f"the backend {lacking}{purpose}")


@pytest.fixture
def left_out() -> Collection[str]:
    """Return the clauses of the contract that the backend does not promise; a backend of a part overrides it."""
    return ()


@pytest.fixture(autouse=True)
def promised(request: pytest.FixtureRequest, left_out: Collection[str]) -> None:
    """Skip a test of a clause that the backend leaves out."""
    for mark in request.node.iter_markers("proves"):
        for clause in mark.args:
            if clause in left_out:
                _lacks(request.config, f"leaves out clause {clause}")


@pytest.fixture(params=["sync", "async"])
def flavour(request: pytest.FixtureRequest) -> str:
    """Return the flavour of kit that the test runs with."""
    flavour: str = request.param
    return flavour


@pytest.fixture
def loop(flavour: str) -> Iterator[Loop | None]:
    """Return the event loop of the async calls of the test; None in the sync flavour."""
    if flavour == "sync":
        yield None
        return
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def connect(request: pytest.FixtureRequest, loop: Loop | None) -> Iterator[Callable[..., Any]]:
    """Return a function that connects to a URL in the test's flavour; the kit looks sync and is closed after it."""
    marker = request.node.get_closest_marker("requires")
    if marker is not None:
        missing = set(marker.args) - backend_of(request.getfixturevalue("url")).capabilities
        if missing:
            pytest.skip(f"the backend does not declare {', '.join(sorted(missing))}")
    kits: list[Any] = []

    def connect(url: str, **options: Any) -> Any:
        if loop is None:
            kits.append(eventkit.connect(url, **options))
        else:
            kits.append(Blocking(loop.run(eventkit.connect_async(url, **options)), loop))
        return kits[-1]

    yield connect
    for kit in kits:
        kit.close()


@pytest.fixture
def kit(connect: Callable[..., Any], url: str) -> Any:
    """Return a kit on the fresh database."""
    return connect(url)


@pytest.fixture
def new_url(url: str) -> str:
    """Return the URL of a database that no kit has been connected to yet.

    A backend whose ``url`` has the tables already overrides it.
    """
    return url


@pytest.fixture
def engine_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a SQLAlchemy engine of the test's flavour on the database of ``url``.

    A backend overrides it, with a parameter for each driver there is.
    """
    _lacks(request.config, "has no fixture engine_url", ", which says what SQLAlchemy calls its database")


@pytest.fixture
def bare_sql(request: pytest.FixtureRequest) -> tuple[str, Callable[[str], Any]]:
    """Return the prefix of SQL function names and a callable that gives the first value of a statement.

    A backend that has functions of SQL overrides it, with a connection of its driver outside of any transaction.
    """
    _lacks(request.config, "has no fixture bare_sql", ", by which the functions of SQL are called")


@pytest.fixture
def engine(engine_url: str, loop: Loop | None) -> Iterator[Any]:
    """Return an engine on the kit's database, which has a table of orders; an async one looks like a sync one."""
    if loop is None:
        engine: Any = create_engine(engine_url)
    else:
        engine = Blocking(create_async_engine(engine_url), loop)
    try:
        create_orders(engine)
        yield engine
        drop_orders(engine)
    finally:
        engine.dispose()


@pytest.fixture(params=WAYS)
def caller(request: pytest.FixtureRequest, kit: Any, bare_sql: tuple[str, Callable[[str], Any]], engine: Any) -> Caller:
    """Return a caller of SQL functions beside the kit."""
    return Caller(request.param, *bare_sql, engine)


@pytest.fixture
def plain(kit: Any, bare_sql: tuple[str, Callable[[str], Any]]) -> Plain:
    """Return a caller of plain SQL beside the kit."""
    return Plain(Caller("driver", *bare_sql, None))
