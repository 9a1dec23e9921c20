"""The service, called in two ways: in this process, and as a process of its own; on both backends."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from services import Served, Started, connected, database

import eventkit
from eventkit.http import app


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
    eventkit.connect(url).close()
    (tmp_path / "eventkit.toml").write_text(f"[server]\n{settings}\n")
    service = Started(url, tmp_path)
    yield service
    if service.process.poll() is None:
        service.process.kill()
        service.process.wait()
