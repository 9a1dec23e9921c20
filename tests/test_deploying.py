"""The files of docs/deploying.md for service managers are parsed as those do, and the commands in them are run."""

import configparser
import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import EVENTKIT, environment, process
from deployed import programs, worker
from eventkit_postgres import address
from test_docs import blocks
from working import PATIENCE

from eventkit.cli.settings import duration

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "deploying.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the page's program in it."""
    programs(PAGE, tmp_path)
    return tmp_path


def unit() -> configparser.RawConfigParser:
    """Return the unit of systemd."""
    [(_, text)] = blocks(PAGE, "ini")
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser


def image() -> list[str]:
    """Return the command that a container of the image runs."""
    [(_, text)] = blocks(PAGE, "dockerfile")
    lines = dict(line.split(" ", 1) for line in text.splitlines())
    return [*json.loads(lines["ENTRYPOINT"]), *json.loads(lines["CMD"])]


def manifests() -> list[dict[str, Any]]:
    """Return the manifests of Compose and of Kubernetes."""
    return [yaml.safe_load(text) for _, text in blocks(PAGE, "yaml")]


def started() -> Iterator[tuple[list[str], list[str], float]]:
    """Return what the manifests start: the command, its probe, and the seconds for its shutdown."""
    entry = image()[:1]
    compose, kubernetes = manifests()
    for service in compose["services"].values():
        if "build" in service:
            probe = service.get("healthcheck", {}).get("test", ["CMD"])[1:]
            command = entry + service["command"] if "command" in service else image()
            yield command, probe, duration(service.get("stop_grace_period", "10s"))
    pod = kubernetes["spec"]["template"]["spec"]
    for container in (*pod["initContainers"], *pod["containers"]):
        probe = container.get("readinessProbe", {}).get("exec", {}).get("command", [])
        yield entry + container["args"], probe, pod["terminationGracePeriodSeconds"]


def grace(command: list[str]) -> float:
    """Return how long the command waits for running tasks."""
    return duration(command[command.index("--shutdown-timeout") + 1])


def test_the_unit_starts_a_worker(folder: Path) -> None:
    """It reports to systemd when it takes tasks, and ends before systemd kills it."""
    service = unit()["Service"]
    command = shlex.split(service["ExecStart"].replace("%H", "host").replace("%i", "1"))
    assert Path(command[0]).name == "eventkit"
    assert float(service["TimeoutStopSec"]) > grace(command)
    name, _, url = service["Environment"].partition("=")
    assert (name, url) == ("EVENTKIT_URL", "sqlite:////var/lib/shop/shop.db")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(folder / "notify"))
        manager.settimeout(PATIENCE)
        variables = {"NOTIFY_SOCKET": str(folder / "notify"), "EVENTKIT_URL": f"sqlite:///{folder}/shop.db"}
        with worker(*EVENTKIT, *command[1:], folder=folder, **variables):
            assert manager.recv(100) == b"READY=1"
        assert manager.recv(100) == b"STOPPING=1"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    [(_, text)] = blocks(PAGE, "ini")
    file = tmp_path / "shop-worker@1.service"
    file.write_text(re.sub("ExecStart=[^ ]+", f"ExecStart={shutil.which('true')}", text), "utf-8")
    ran = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, timeout=60)
    assert [line for line in (ran.stdout + ran.stderr).splitlines() if "shop-worker" in line] == []


def test_containers_start_workers(folder: Path) -> None:
    """A probe succeeds only while the worker is ready, and running tasks have time to end."""
    ready, url = folder / "ready", f"sqlite:///{folder}/shop.db"
    probes: dict[tuple[str, ...], list[list[str]]] = {}
    for command, probe, seconds in started():
        assert command[1] != "worker" or seconds > grace(command)
        ours = probes.setdefault(tuple(word.replace("/tmp/ready", str(ready)) for word in command), [])
        ours.append([word.replace("/tmp/ready", str(ready)) for word in probe])
    assert {command[1] for command in probes} == {"migrate", "worker"}

    def answers() -> set[int]:
        return {subprocess.run(probe).returncode for probe in probes[command]}

    for command in probes:
        if command[1] == "worker":
            assert answers() == {1}
            with worker(*EVENTKIT, *command[1:], folder=folder, EVENTKIT_URL=url):
                assert answers() == {0}
            assert answers() == {1}
        else:
            answer = process(*command[1:], cwd=folder, env=environment(EVENTKIT_URL=url))
            assert answer.returncode == 0, answer


def test_the_urls_in_manifests_are_urls() -> None:
    """They lead to the services beside them."""
    compose, _ = manifests()
    services = compose["services"]
    urls = [service["environment"]["EVENTKIT_URL"] for service in services.values() if "build" in service]
    for url in urls:
        found = address.parse(url)
        assert found.url.partition("@")[2].partition("/")[0] in services
        assert url.endswith("/" + services["postgres"]["environment"]["POSTGRES_DB"])
        assert services["postgres"]["environment"]["POSTGRES_PASSWORD"] in url
    assert len(urls) == 2
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        for volume in service.get("volumes", ()):
            assert volume.partition(":")[0] in compose["volumes"]


def test_the_program_with_metrics_serves_them(tmp_path: Path) -> None:
    """It serves them from the moment the worker takes tasks until it ends."""
    programs(DOCS / "monitoring.md", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    def slots(_: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=PATIENCE) as answer:
                return "eventkit_worker_slots 50\n" in answer.read().decode()
        except urllib.error.URLError:
            return False

    with worker(sys.executable, "metered.py", folder=tmp_path, begun=slots, METRICS_PORT=str(port)):
        pass
