"""A real PostgreSQL server for every test that requests one, without any set-up.

One server serves a session with all its workers; it starts when the first test requests it.
`postgres_server` chooses it.  A missing server is a failure.
"""

import json
import os
import secrets
import signal
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from owned_folder import OwnedFolder
from postgres_binaries import NoServer

if TYPE_CHECKING:
    from emptied_schema import EmptiedSchema

# libpq reads them after the URLs of the tests: PGSSLMODE=require, for example, but no server here has TLS.
for name in [name for name in os.environ if name.startswith("PG")]:
    del os.environ[name]

# A Unix socket's path has at most 103 bytes, and multiprocessing puts its own below the temporary folder.
if len(os.fsencode(tempfile.gettempdir())) > 60:
    os.environ["TMPDIR"] = tempfile.tempdir = "/tmp"

from eventkit.conformance.fixtures import connect, engine, flavour, kit, loop  # noqa: E402, F401  # for the tests beside the suite

OWNED = pytest.StashKey[OwnedFolder]()
SHARE_A_SERVICE = ("tests/http/test_http_live.py", "tests/http/test_http_serving.py")


def shared_folder(config: pytest.Config) -> Path:
    """Return the folder of the session's server; the main process owns it and outlives the workers."""
    given = getattr(config, "workerinput", None)
    if given is not None:
        return Path(given["postgres_folder"])
    if OWNED not in config.stash:
        config.stash[OWNED] = OwnedFolder()
    return config.stash[OWNED].path


def pytest_configure() -> None:
    """Restore SIGINT for programs of tests: a shell's background processes and their children ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of tests by clauses of the contract."""
    parser.addoption("--clause", action="append", metavar="CLAUSE", help="run the tests of this clause, as in Q19")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the chosen clauses."""
    if chosen := {*(config.getoption("clause") or ())}:
        kept = [item for item in items if any(chosen & {*mark.args} for mark in item.iter_markers("proves"))]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the folder to a worker of pytest-xdist."""
    node.workerinput["postgres_folder"] = str(shared_folder(node.config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of Spark together, whose Java process takes a gigabyte, and those that share a running service."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "spark" if file.startswith("tests/spark/") else file if file in SHARE_A_SERVICE else nodeid

    return Together(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print which server was tested on."""
    if OWNED in config.stash:
        known = config.stash[OWNED].path / "server.json"
        if known.exists():
            server = json.loads(known.read_text("utf-8"))
            terminalreporter.write_sep("-", f"tested on PostgreSQL {server['version']} ({server['source']})")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server."""
    if OWNED in config.stash:
        config.stash[OWNED].close()
        del config.stash[OWNED]


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the URL of this worker's own database, on the server that all workers share."""
    # Imported here, because the driver may be missing in a session without tests of Postgres.
    from postgres_server import own_database, share

    worker = getattr(request.config, "workerinput", {}).get("workerid", "main")
    try:
        server = share(shared_folder(request.config), os.environ)
        with own_database(server, worker) as url:
            yield url
    except NoServer as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


@pytest.fixture(scope="session")
def emptied(postgres: str) -> Iterator["EmptiedSchema"]:
    """Return the schema that the tests of this worker use one after the other."""
    from emptied_schema import EmptiedSchema

    with closing(EmptiedSchema(postgres)) as schema:
        yield schema


@pytest.fixture
def emptied_url(emptied: "EmptiedSchema") -> str:
    """Return the URL of an emptied schema, for tests that only change rows of eventkit's tables."""
    emptied.empty()
    return emptied.url


@pytest.fixture
def postgres_url(postgres: str) -> Iterator[str]:
    """Return the same URL with a schema that does not exist yet; it is dropped after the test."""
    from postgres_server import drop_schema

    schema = f"t_{secrets.token_hex(4)}"
    yield f"{postgres}{'&' if '?' in postgres else '?'}schema={schema}"
    drop_schema(postgres, schema)
