"""Executors of a cluster read and write, take the database from their environment, and may be killed."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark
import pytest
from clusters import free_port
from spark.families import command, descendants
from spark.streams import both

import eventkit
from eventkit.conformance.clauses import proves

_CLASSES = "org.apache.spark.deploy"
_HERE = ("--host", "127.0.0.1", "--webui-port", "0")
_PATIENCE = 180.0


class Standalone:
    """The cluster, in a folder.  Its workers and their executors have the variables of *environment*."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = os.environ | environment | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOG_DIR": str(folder)}
        self._port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        """Return the URL of the master."""
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._start("master.Master", "--port", self._port)
            self._wait_for("elected leader", 1)
            for number in (1, 2):
                room = ("--cores", 1, "--memory", "700m")
                self._start("worker.Worker", self.master, *room, "--work-dir", self._folder / f"worker{number}")
            self._wait_for("Registering worker", 2)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def executors(self) -> list[int]:
        """Return the Java processes of the executors."""
        return [one for one in self._started() if "CoarseGrainedExecutorBackend" in command(one)]

    def pythons(self) -> list[int]:
        """Return their Python worker processes."""
        return [one for one in self._started() if "pyspark" in command(one) and "java" not in command(one).split()[0]]

    def executors_so_far(self) -> int:
        """Return the number of executors started so far."""
        return len([*self._folder.glob("worker*/app-*/*")])

    def _started(self) -> list[int]:
        return [one for worker in self._processes[1:] for one in descendants(worker.pid)]

    def _start(self, name: str, *arguments: Any) -> None:
        program = Path(pyspark.__path__[0]) / "bin" / "spark-class"
        with (self._folder / f"{len(self._processes)}.log").open("wb") as log:
            words = [str(program), f"{_CLASSES}.{name}", *_HERE, *map(str, arguments)]
            own = {"stdout": log, "stderr": log, "start_new_session": True}
            self._processes.append(subprocess.Popen(words, env=self._environment, **own))

    def _wait_for(self, words: str, times: int) -> None:
        """Return when the master has logged it."""
        deadline = time.monotonic() + _PATIENCE
        while (self._folder / "0.log").read_text("utf-8", "replace").count(words) < times:
            assert time.monotonic() < deadline, "the cluster does not start"
            time.sleep(0.2)

    def _end(self) -> None:
        for process in [one for parent in self._processes for one in (*descendants(parent.pid), parent.pid)]:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for process in self._processes:
            process.wait()


pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("programs.py")
KILLS = 50


@pytest.fixture
def standalone(url: str, tmp_path: Path) -> Iterator[Standalone]:
    """Return a cluster whose environment names the database."""
    with Standalone(tmp_path, {"SHOP_URL": url}) as cluster:
        yield cluster


def start(cluster: Standalone, url: str, folder: Path, *more: str) -> "subprocess.Popen[str]":
    """Start a driver that copies; it sends its executors no environment."""
    with (folder / "driver.log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), "copy_topic", cluster.master, str(folder / "checkpoint"), *more],
            env=os.environ | {"SHOP_URL": url},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )


def finish(driver: "subprocess.Popen[str]", folder: Path) -> int:
    """Return how many events are copied when the driver has ended."""
    output, _ = driver.communicate(timeout=900)
    assert driver.returncode == 0, (folder / "driver.log").read_text("utf-8")
    return int(output.split()[-1])


def payloads(kit: eventkit.EventKit, topic: str) -> list[object]:
    """Return the payloads of the topic, in order."""
    return [event.payload for event in kit.stream(topic).read(limit=1_000_000)]


@proves("D10")
@both
def test_executors_read_and_write(kit: eventkit.EventKit, url: str, tmp_path: Path, standalone: Standalone) -> None:
    """Options, parts and rows are sent to both; secrets need not be."""
    kit.stream("orders").publish_many(list(range(200)))
    assert finish(start(standalone, url, tmp_path), tmp_path) == 200
    assert payloads(kit, "copied") == list(range(200))
    assert kit.stream("orders").consumers()[0].lag == 0
    assert standalone.executors_so_far() == 2
    sent = [path.read_text("utf-8", "replace") for path in tmp_path.glob("worker*/app-*/*/std*")]
    assert sent
    assert not [text for text in sent if url in text]


@proves("D10")
def test_a_file_is_refused_by_the_driver(
    kit: eventkit.EventKit, url: str, tmp_path: Path, standalone: Standalone
) -> None:
    """The driver refuses it before an executor would open its own machine's file."""
    kit.stream("orders").publish(1)
    driver = start(standalone, url, tmp_path, "false")
    driver.communicate(timeout=900)
    assert driver.returncode != 0
    assert "set option sharedFile to true" in (tmp_path / "driver.log").read_text("utf-8")
    assert kit.stream("copied").read() == []


@proves("D3", "D6")
@both
def test_each_event_is_copied_once_however_executors_end(
    kit: eventkit.EventKit, url: str, tmp_path: Path, standalone: Standalone
) -> None:
    """Fifty kills of executors and of their processes of Python, at any moment; drivers that give up are restarted."""
    chance = random.Random(1)
    kills = published = 0
    copied: list[object] = []
    driver = start(standalone, url, tmp_path)
    while kills < KILLS:
        if driver.poll() is not None:
            driver.communicate()
            driver = start(standalone, url, tmp_path)
        # The copy has always work, or the driver would end, and never much, or the test would take too long.
        if published - len(copied) < 200:
            kit.stream("orders").publish_many(list(range(published, published + 100)))
            published += 100
        time.sleep(0.5 + chance.random() * 2)  # The moment of the kill is random; no event marks it.
        if victims := (standalone.executors() if kills % 2 else standalone.pythons()):
            with suppress(ProcessLookupError):
                os.kill(chance.choice(victims), signal.SIGKILL)
                kills += 1
        copied = payloads(kit, "copied")
        assert copied == list(range(len(copied)))
    driver.communicate(timeout=900)
    assert finish(start(standalone, url, tmp_path), tmp_path) == published
    assert payloads(kit, "copied") == list(range(published))
