"""A client that is generated from the OpenAPI document works."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from services import Started

from eventkit.conformance.clauses import proves

ROUND = Path(__file__).with_name("generated_client_round.py")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The document is the same for every database."""
    return f"sqlite:///{tmp_path / 'served.db'}"


@pytest.fixture
def generator(tmp_path: Path) -> Path:
    """Return the Python of an environment with the generator, which needs an older typer than the command line."""
    folder = tmp_path / "generator"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    install = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--only-binary", ":all:"]
    subprocess.run([python, *install, "openapi-python-client>=0.26"], check=True, timeout=300)
    return python


@pytest.mark.slow
@proves("E8")
def test_a_generated_client_works(started: Started, generator: Path, tmp_path: Path) -> None:
    """openapi-python-client writes it without a warning, and it makes a round through a queue and a stream."""
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(httpx.get(f"{started.address}/openapi.json").json()))
    command = ["generate", "--path", document, "--output-path", tmp_path / "generated", "--meta", "none"]
    program = [generator, "-m", "openapi_python_client", *command]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Warning" not in ran.stdout, ran.stdout
    called = subprocess.run(
        [generator, ROUND, tmp_path, started.address], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert called.returncode == 0, called.stderr
