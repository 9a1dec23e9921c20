"""Drivers that are killed with all their processes, at any moment, and started again."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from spark.families import descendants

import eventkit
from eventkit.conformance.clauses import proves

PROGRAM = Path(__file__).parent / "reading_program.py"


def start(url: str, folder: Path, remote: str = "") -> "subprocess.Popen[str]":
    """Start a driver that reads."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), url, str(folder), remote],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def finished(driver: "subprocess.Popen[str]") -> list[int]:
    """Return the offsets in the sink when the driver has ended."""
    output, _ = driver.communicate(timeout=600)
    assert driver.returncode == 0
    return [int(word) for word in output.rpartition("ends")[2].split()]


@proves("D3", "D4")
@pytest.mark.slow
def test_each_event_comes_once_however_drivers_end(kit: eventkit.EventKit, url: str, tmp_path: Path) -> None:
    """Fifty drivers are killed after different times; in the end the sink has the published events."""
    stream = kit.stream("orders")
    chance = random.Random(1)
    published: list[int] = []
    for _ in range(50):
        published += stream.publish_many(list(range(100)))
        driver = start(url, tmp_path)
        assert driver.stdout is not None
        assert driver.stdout.readline() == "begins\n"
        time.sleep(chance.random() * 4)  # The moment of the kill is random; no event marks it.
        for process in [driver.pid, *descendants(driver.pid)]:
            os.kill(process, signal.SIGKILL)
        driver.communicate()
    assert finished(start(url, tmp_path)) == published
    assert stream.offset("lake") == published[-1]


@proves("D10")
@pytest.mark.slow
def test_a_session_of_connect_reads(kit: eventkit.EventKit, url: str, tmp_path: Path) -> None:
    """A client of Spark Connect without a Java of its own reads and streams as usual."""
    published = kit.stream("orders").publish_many(list(range(100)))
    assert finished(start(url, tmp_path, remote="local[2]")) == published
    assert kit.stream("orders").offset("lake") == published[-1]
