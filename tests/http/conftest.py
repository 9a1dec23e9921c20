"""The service, called in two ways: in this process, and as a process of its own; on both backends."""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from services import Served, Started, connected, database, start

from eventkit.http import app

Starting = Callable[[str, str], Started]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database of either kind."""
    return database(request, tmp_path)


@pytest.fixture
def served(url: str) -> Iterator[Served]:
    """Return the application on a kit of its own."""
    with asyncio.Runner() as runner:
        kit = runner.run(connected(url))
        transport = httpx.ASGITransport(app(kit), raise_app_exceptions=False)
        client = httpx.AsyncClient(transport=transport, base_url="http://service")
        yield Served(runner, kit, client)
        runner.run(client.aclose())
        runner.run(kit.close())


@pytest.fixture
def settings() -> str:
    """Return the settings that a test changes."""
    return ""


@pytest.fixture
def started(url: str, tmp_path: Path, settings: str) -> Iterator[Started]:
    """Run the service as a process of its own."""
    service = start(url, tmp_path, settings)
    yield service
    service.kill()


@pytest.fixture(scope="module")
def starting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starting]:
    """Return a function that starts a service on a kind of database, once in the module for the same settings."""
    services: dict[tuple[str, str], Started] = {}

    def started_once(kind: str, settings: str) -> Started:
        if (kind, settings) not in services:
            folder = tmp_path_factory.mktemp("shared")
            url = f"sqlite:///{folder / 'served.db'}"
            if kind == "postgres":
                database = request.getfixturevalue("postgres")
                url = f"{database}{'&' if '?' in database else '?'}schema=t_{secrets.token_hex(4)}"
            services[kind, settings] = start(url, folder, settings)
        return services[kind, settings]

    yield started_once
    for (kind, _), service in services.items():
        service.kill()
        if kind == "postgres":
            from postgres_server import drop_schema

            drop_schema(request.getfixturevalue("postgres"), service.url.rpartition("schema=")[2])


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, starting: Starting, settings: str) -> Started:
    """Return a service that tests of the module share, for tests that leave it as it is and use names of their own."""
    return starting(request.param, settings)


@pytest.fixture
def name() -> str:
    """Return a name that no other test uses."""
    return f"t{secrets.token_hex(4)}"
