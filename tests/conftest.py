"""A real PostgreSQL server for every test that asks for one, without any set-up.

One server serves a session, with all its workers, and ends with it; it starts when the first test asks for it.
`postgres_server` says which one.  That there is none is a failure.
"""

import json
import os
import secrets
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from owned_folder import OwnedFolder
from postgres_binaries import NoServer

# libpq reads them behind the URLs that the tests give: PGSSLMODE=require, say, and no server here has TLS.
for name in [name for name in os.environ if name.startswith("PG")]:
    del os.environ[name]

# The path of a Unix socket has at most 103 bytes, and multiprocessing puts its own below the temporary folder.
if len(os.fsencode(tempfile.gettempdir())) > 60:
    os.environ["TMPDIR"] = tempfile.tempdir = "/tmp"

from eventkit.conformance.fixtures import connect, engine, flavour, kit, loop  # noqa: E402, F401  # for the tests beside the suite

OWNED = pytest.StashKey[OwnedFolder]()


def shared_folder(config: pytest.Config) -> Path:
    """The folder of the session's server; it belongs to the main process, which outlives the workers."""
    given = getattr(config, "workerinput", None)
    if given is not None:
        return Path(given["postgres_folder"])
    if OWNED not in config.stash:
        config.stash[OWNED] = OwnedFolder()
    return config.stash[OWNED].path


def pytest_configure() -> None:
    """Let programs of tests hear SIGINT: what a shell starts in the background ignores it, as do its children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist where the folder is."""
    node.workerinput["postgres_folder"] = str(shared_folder(node.config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of Spark together, whose Java machine takes a gigabyte, and spread all others."""
    from xdist.scheduler import LoadScopeScheduling

    class SparkTogether(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith("tests/spark/") else nodeid

    return SparkTogether(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was tested on."""
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
    """The URL of a database of this worker's own, on the server that all workers share."""
    # Imported here, because not every session that passes by has the driver.
    from postgres_server import own_database, share

    worker = getattr(request.config, "workerinput", {}).get("workerid", "main")
    try:
        server = share(shared_folder(request.config), os.environ)
        with own_database(server, worker) as url:
            yield url
    except NoServer as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


@pytest.fixture
def postgres_url(postgres: str) -> Iterator[str]:
    """The same URL with a schema that does not exist yet; it is dropped after the test."""
    from postgres_server import drop_schema

    schema = f"t_{secrets.token_hex(4)}"
    yield f"{postgres}{'&' if '?' in postgres else '?'}schema={schema}"
    drop_schema(postgres, schema)
