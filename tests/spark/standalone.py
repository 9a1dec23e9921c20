"""A standalone cluster of Spark on this machine: a master and two workers, which start executors of a core each."""

import os
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark
from clusters import free_port
from spark.families import command, descendants

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
            self._processes.append(
                subprocess.Popen(
                    [
                        str(program),
                        f"{_CLASSES}.{name}",
                        "--host",
                        "127.0.0.1",
                        "--webui-port",
                        "0",
                        *map(str, arguments),
                    ],
                    env=self._environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

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
