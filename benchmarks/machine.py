"""Description of the machine that the numbers were measured on."""

import os
import platform
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import apsw

from .peers_sqlite import PEERS


def describe(folder: str) -> str:
    """Return a list of software, processor, kernel, and the file system of *folder*."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("eventkit-db", "apsw", "msgspec", *PEERS))
    return "\n".join(
        (
            f"- {datetime.now(UTC):%Y-%m-%d %H:%M} UTC{_revision()}",
            f"- load average at the start: {os.getloadavg()[0]:.1f} over 1 minute",
            f"- {os.cpu_count()} cores, {_processor()}; {platform.system()} {platform.release()}, "
            f"{' '.join(platform.libc_ver())}",
            f"- Python {platform.python_version()} ({sys.implementation.name}); SQLite {apsw.sqlite_lib_version()} "
            f"in apsw, {sqlite3.sqlite_version} in the standard library",
            f"- files on {_file_system(folder)}{_priority()}",
            f"- {versions}",
        )
    )


def describe_load() -> str:
    """Return the load, including the benchmarks: under load, spreads are wider and wake-ups later."""
    one, five, fifteen = os.getloadavg()
    return f"Load average at the end: {one:.1f} over 1 minute, {five:.1f} over 5, {fifteen:.1f} over 15."


def version(distribution: str) -> str:
    """Return the installed version; "not installed" for none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    names = [line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _file_system(folder: str) -> str:
    """Return the type of the file system of *folder*."""
    folder = os.path.realpath(folder)
    mounts = [line.split()[1:3] for line in _lines("/proc/mounts")]
    inside = [(point, kind) for point, kind in mounts if os.path.commonpath([point, folder]) == point]
    return max(inside, key=lambda mount: len(mount[0]), default=("", "an unknown file system"))[1]


def _lines(path: str) -> list[str]:
    return Path(path).read_text("utf-8").splitlines() if Path(path).exists() else []


def _priority() -> str:
    """Return the raised priority of the run, if any."""
    nice = os.nice(0)
    return f"; run at niceness {nice}" if nice else ""


def _revision() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f", revision {answer.stdout.strip()}"
