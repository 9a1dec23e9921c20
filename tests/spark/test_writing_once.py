"""Each row from Spark is written once, although processes are killed, writes repeated or connections lost."""

import json
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import deadly
import pytest
from deadly import COMMIT, TASK
from py4j.protocol import Py4JJavaError
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from spark.streams import both, forget_commit, stored

import eventkit
from eventkit.conformance.clauses import proves

PROGRAM = Path(__file__).with_name("programs.py")
KILLED = (PySparkException, Py4JJavaError)
"""The errors that Spark raises for a process that it has lost."""

COUNT = 200
"""Rows of a write: of 2,000 bytes each they wait in the database."""


@pytest.fixture(scope="module", autouse=True)
def source(spark: Any) -> None:
    """Return the data source that dies, in any process."""
    cloudpickle.register_pickle_by_value(deadly)
    spark.dataSource.register(deadly.DeadlySource)


def rows(spark: Any, partitions: int) -> Any:
    """Return the numbers, in lists that are long as text."""
    return spark.range(0, COUNT, 1, partitions).selectExpr("concat('[', id, repeat(' ', 2000), ']') AS payload")


def written(kit: eventkit.EventKit) -> list[str]:
    """Return the stream's numbers, sorted."""
    return sorted(json.dumps(event.payload, separators=(",", ":")) for event in kit.stream("t").read(limit=100_000))


def check_kill(spark: Any, kit: eventkit.EventKit, url: str, flag: Path, place: str, step: int) -> None:
    """Kill the writing process, and write again: no row is there twice, and none is missing."""
    before = len(kit.stream("t").read(limit=100_000))

    def write(partitions: int) -> None:
        fault = {"place": place, "step": step, "victim": "process", "flag": str(flag)}
        frame = rows(spark, partitions).write.format("deadly").options(url=url, topic="t", writeId=flag.name, **fault)
        frame.mode("append").save()

    with pytest.raises(KILLED):
        write(2)
    seen = len(kit.stream("t").read(limit=100_000)) - before
    assert seen == (COUNT if (place, step) == (COMMIT, deadly.STEPS[COMMIT]) else 0), (place, step)
    write(3)
    assert len(kit.stream("t").read(limit=100_000)) - before == COUNT, (place, step)


@proves("D6")
@both
def test_a_writing_process_that_is_killed_leaves_all_or_nothing(
    spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path
) -> None:
    """It dies in the task, before the commit, and after it, before the answer arrives."""
    for place, step in ((TASK, 3), (COMMIT, 5), (COMMIT, 6)):
        check_kill(spark, kit, url, tmp_path / f"{place}{step}", place, step)


@proves("D6")
@pytest.mark.slow
@both
def test_a_writing_process_is_killed_at_every_step(
    spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path
) -> None:
    """It dies fifty times and more."""
    for turn in range(6):
        for place, step in deadly.steps():
            check_kill(spark, kit, url, tmp_path / f"{turn}{place}{step}", place, step)


def check_termination(spark: Any, kit: eventkit.EventKit, url: str, flag: Path, step: int) -> None:
    """End the connection of the commit, which is retried automatically."""
    before = len(kit.stream("t").read(limit=100_000))
    fault = {"place": COMMIT, "step": step, "victim": "connection", "flag": str(flag)}
    rows(spark, 2).write.format("deadly").options(url=url, topic="t", **fault).mode("append").save()
    assert flag.exists()
    assert len(kit.stream("t").read(limit=100_000)) - before == COUNT, step


@proves("D6")
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("turns", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_a_connection_that_breaks_costs_nothing(
    spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path, turns: int
) -> None:
    """It breaks between any two statements, and before the commit."""
    for turn in range(turns):
        for step in range(2, 6):
            check_termination(spark, kit, url, tmp_path / f"{turn}-{step}", step)


@proves("D6")
@pytest.mark.parametrize(
    ("url", "marked"), [("sqlite", True), ("postgresql", True), ("sqlite", False)], indirect=["url"]
)
def test_a_micro_batch_that_comes_again_in_other_parts_is_written_once(
    spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path, marked: bool
) -> None:
    """Its mark prevents the repetition; without it the rows are there twice."""
    lines = deadly.fill(tmp_path / "files", 2, 50)
    checkpoint = tmp_path / "checkpoint"
    deadly.copy_files(spark, tmp_path / "files", checkpoint, 2, "eventkit", url=url, topic="t")
    assert written(kit) == lines
    forget_commit(checkpoint)
    if not marked:
        with kit.transaction() as tx:
            tx.execute(f"DELETE FROM {stored('written_batch', url)}")
    deadly.copy_files(spark, tmp_path / "files", checkpoint, 3, "eventkit", url=url, topic="t")
    assert (written(kit) == lines) == marked
    assert len(written(kit)) == (100 if marked else 150)


@proves("D6")
@pytest.mark.slow
@both
def test_a_query_with_killed_processes_writes_each_row_once(
    spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path
) -> None:
    """Fifty kills at every step each end the query; it goes on with other parts."""
    files, checkpoint = tmp_path / "files", tmp_path / "checkpoint"
    lines = deadly.fill(files, 60, 40)
    for number, (place, step) in enumerate([*deadly.steps()] * 6):
        fault = {"place": place, "step": step, "victim": "process", "flag": str(tmp_path / f"flag{number}")}
        with pytest.raises(KILLED):
            deadly.copy_files(spark, files, checkpoint, 1 + number % 3, "deadly", url=url, topic="t", **fault)
        assert set(written(kit)) <= set(lines)
    deadly.copy_files(spark, files, checkpoint, 2, "eventkit", url=url, topic="t")
    assert written(kit) == lines


@proves("D6")
@pytest.mark.slow
@both
def test_a_driver_that_is_killed_writes_each_row_once(kit: eventkit.EventKit, url: str, tmp_path: Path) -> None:
    """Fifty kills of all of Spark come at a step of a task or a commit; another driver continues with other parts."""
    lines = deadly.fill(tmp_path / "files", 60, 40)
    random.seed(7)
    for number in range(51):
        place, step = random.choice([*deadly.steps()])
        last = number == 50
        arguments = [url, tmp_path / "files", tmp_path / "checkpoint", 1 + number % 3]
        arguments += [] if last else [place, step, tmp_path / f"flag{number}"]
        command = [sys.executable, str(PROGRAM), "copy_files", *map(str, arguments)]
        ended = subprocess.run(command, start_new_session=True, capture_output=True, text=True, timeout=300)
        assert ended.returncode in ((0,) if last else (0, -signal.SIGKILL)), ended.stderr
        assert set(written(kit)) <= set(lines)
        assert len(written(kit)) == len(set(written(kit)))
    assert written(kit) == lines
    shutil.rmtree(tmp_path / "checkpoint")
