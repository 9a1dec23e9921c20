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

import pytest
from spark.standalone import Standalone

import eventkit
from eventkit.conformance.clauses import proves

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("copying_topics.py")
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
            [sys.executable, str(PROGRAM), cluster.master, str(folder / "checkpoint"), *more],
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
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
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
