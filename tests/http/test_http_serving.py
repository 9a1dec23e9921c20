"""The service as a process: where it listens, and how it ends."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from services import Started

import eventkit


def test_it_answers_and_ends_when_told_to(started: Started) -> None:
    """It says where it listens, answers there, and ends with exit code 0."""
    assert httpx.get(f"{started.address}/healthz").json() == {"status": "ok"}
    assert started.stop() == 0
    assert "Traceback" not in started.log.read_text()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_without_keys_it_listens_on_this_machine_alone(host: str, tmp_path: Path) -> None:
    """Another address than loopback is refused, in a line that says what to do."""
    url = f"sqlite:///{tmp_path / 'alone.db'}"
    eventkit.connect(url).close()
    command = [sys.executable, "-m", "eventkit.cli", "serve", "--url", url, "--host", host, "--port", "0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert "eventkit key add" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
