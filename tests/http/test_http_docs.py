"""The page about the service is true: its recipes run, and its examples of an application work."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from services import Started
from test_docs import ROOT, blocks

from eventkit.http import ServiceSettings

PAGE = ROOT / "docs" / "http.md"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The recipes are the same for every database."""
    return f"sqlite:///{tmp_path / 'shop.db'}"


def test_its_recipes_run(started: Started) -> None:
    """They run in order, in a shell that ends with the first that fails."""
    recipes = [block for _, block in blocks(PAGE, "sh") if "curl " in block]
    script = "set -euo pipefail\n" + "\n".join(recipes)
    ran = subprocess.run(
        ["bash", "-c", script.replace("localhost:8888", started.address)], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr + ran.stdout
    assert ran.stdout.count('"done":true') == 2


def test_it_names_every_setting() -> None:
    """It names no others."""
    [text] = [block for _, block in blocks(PAGE, "text") if "[tool.eventkit.server]" in block]
    assert sorted(line.split()[0] for line in text.splitlines()[1:]) == sorted(ServiceSettings.__struct_fields__)


def test_it_is_mounted_in_an_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs below a path of the application, as the page shows."""
    monkeypatch.chdir(tmp_path)
    [block] = [block for _, block in blocks(PAGE, "python")]
    namespace: dict[str, Any] = {}
    exec(compile(block, PAGE, "exec"), namespace)

    async def ask() -> None:
        api = namespace["api"]
        async with (
            api.router.lifespan_context(api),
            httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://shop") as client,
        ):
            made = await client.post("/events/queues", json={"name": "emails"})
            assert made.status_code == 201
            assert (await client.get("/events/queues/none")).json()["code"] == "unknown_queue"

    asyncio.run(ask())
