"""Throwaway PostgreSQL clusters: real servers for tests, without any set-up."""

import os
import pwd
import random
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import postgres_binaries
import pytest
from owned_folder import PATIENCE, UNPRIVILEGED, OwnedFolder, open_to_all
from postgres_binaries import Binaries

KEEPER = Path(__file__).parent / "keeper.py"

SETTINGS: dict[str, object] = {
    "listen_addresses": "127.0.0.1",
    "max_connections": 200,
    "max_prepared_transactions": 20,
    "shared_buffers": "32MB",  # dropping a table scans all of them
    "fsync": "off",
    "full_page_writes": "off",
}
"""The settings that every cluster starts with.  Without fsync, only a crash of the machine loses data."""

Mode = Literal["fast", "immediate"]
"""A way to stop: ``fast`` rolls back and disconnects, ``immediate`` is a crash."""


class ClusterError(Exception):
    """A server program failed; the message holds its output and the server's log."""


class Cluster:
    """A PostgreSQL server with data of its own in a temporary folder, on a port of 127.0.0.1 that was free.

    ``with Cluster() as cluster:`` makes, starts and removes one.  Every local user is its superuser ``postgres``
    without a password.  It ends with the process that made it, also when that is killed.

    Args:
        binaries: The server's programs; by default the newest on the machine, or else in the package.
        folder: The path of an `OwnedFolder` whose owner ends the cluster, instead of a folder of its own.
        primary: The running cluster that this one follows as a hot standby.
        settings: Settings of the server, over those in `SETTINGS`.
    """

    def __init__(
        self,
        binaries: Binaries | None = None,
        folder: Path | None = None,
        primary: "Cluster | None" = None,
        **settings: object,
    ) -> None:
        self.binaries = binaries or (primary.binaries if primary else postgres_binaries.find())
        self._primary = primary
        if primary is not None and not (self.binaries.folder / "pg_basebackup").exists():
            pytest.skip(f"a standby needs pg_basebackup, which is not in {self.binaries.folder}")
        self._own = None
        if folder is None:
            self._own = OwnedFolder()
            folder = self._own.path
        self.folder = folder
        self._data = self.folder / "data"
        self._log = self.folder / "log"
        self._settings = SETTINGS | settings

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The URL of the database ``postgres``."""
        return f"postgresql://postgres@127.0.0.1:{self._settings['port']}/postgres"

    @property
    def socket_url(self) -> str:
        """The URL of the same database through the Unix socket."""
        return f"postgresql://postgres@/postgres?host={self.folder}&port={self._settings['port']}"

    @property
    def version(self) -> str:
        """The version, such as ``18.4``."""
        return self.binaries.version

    @property
    def pid(self) -> int | None:
        """The process id of the postmaster; None while it is stopped."""
        said = self._attempt("pg_ctl", "status", "--pgdata", self._data).stdout
        running = re.search(r"PID: (\d+)", said)
        return int(running[1]) if running else None

    def start(self) -> None:
        """Start the server, on the same port each time, and return when it accepts connections.

        Raises:
            ClusterError: It does not start.
        """
        if not self._data.exists():
            self._create()
        self._run("pg_ctl", "start", "--wait", "--timeout=60", "--pgdata", self._data, "--log", self._log)

    def stop(self, mode: Mode = "fast") -> None:
        """Stop the server if it runs, and return when its process has ended.

        Raises:
            ClusterError: It does not stop.
        """
        if self.pid is not None:
            self._run("pg_ctl", "stop", "--wait", "--timeout=60", "--mode", mode, "--pgdata", self._data)

    def restart(self, mode: Mode = "fast") -> None:
        """Stop the server in the given mode, and start it."""
        self.stop(mode)
        self.start()

    def configure(self, **settings: object) -> None:
        """Change settings, restart the server if one requires it, and return when they apply.

        Raises:
            ClusterError: The server refuses them.
        """
        self._settings |= settings
        quoted = {name: str(value).replace("'", "''") for name, value in self._settings.items()}
        (self.folder / "settings.conf").write_text("".join(f"{name} = '{value}'\n" for name, value in quoted.items()))
        if self.pid is not None:
            self._reload()

    def close(self) -> None:
        """Stop the server and remove the folder if the cluster owns it."""
        if self._own is not None:
            self._own.close()

    def _create(self) -> None:
        """Make the cluster's files, after arranging their removal."""
        if os.geteuid() == 0 and not open_to_all(self.binaries.folder):
            self.binaries = self.binaries.copy(self.folder / "server")
        self._start_keeper()
        if self._primary is None:
            flags = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
            self._run("initdb", "--pgdata", self._data, *flags)
        else:
            flags = ("-R", "--checkpoint=fast", "--no-sync")
            self._run("pg_basebackup", "--pgdata", self._data, "--dbname", self._primary.url, *flags)
        self.configure(port=free_port(), unix_socket_directories=self.folder)
        file = self._data / "postgresql.conf"
        file.write_text(
            re.sub("^include .*", "", file.read_text(), flags=re.M) + f"include '{self.folder}/settings.conf'\n"
        )

    def _start_keeper(self) -> None:
        """Start the process that ends the cluster, in a session of its own and as an orphan."""
        keeper = (sys.executable, KEEPER, self.binaries.folder, self.binaries.version, self.folder)
        subprocess.run(
            ("sh", "-c", '"$@" &', "sh", *map(str, keeper)),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        deadline = time.monotonic() + PATIENCE
        while not (self.folder / "kept").exists():
            if time.monotonic() > deadline:
                raise ClusterError(f"the keeper does not start: try {' '.join(map(str, keeper))}")
            time.sleep(0.005)

    def _reload(self) -> None:
        """Make the running server read its settings, or restart it if they require that."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            refused = connection.execute(
                """
                SELECT f.name, f.setting, f.error, coalesce(s.context = 'postmaster', false)
                FROM pg_file_settings f LEFT JOIN pg_settings s USING (name) WHERE f.error IS NOT NULL
                """
            ).fetchall()
            if not refused:
                loaded = connection.execute("SELECT pg_conf_load_time(), pg_reload_conf()").fetchone()
                while connection.execute("SELECT pg_conf_load_time(), true").fetchone() == loaded:
                    time.sleep(0.001)
                return
        # A running server reports a setting that needs a restart and a wrong one with the same words.
        for name, value, error, at_start in refused:
            if not at_start:
                raise ClusterError(f"PostgreSQL {self.version} does not take {name} = {value!r}: {error}")
        self.restart()

    def _run(self, program: str, *arguments: object) -> None:
        """Run a program of the server, which must succeed."""
        done = self._attempt(program, *arguments)
        if done.returncode:
            log = self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""
            raise ClusterError(f"{program} of PostgreSQL {self.version} failed:\n{done.stdout}{done.stderr}{log}")

    def _attempt(self, program: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
        """Run a program of the server as a user that it accepts."""
        as_root = os.geteuid() == 0
        return subprocess.run(
            (self.binaries.folder / program, *map(str, arguments)),
            env=os.environ | {"LC_ALL": "C"},
            cwd=self.folder,
            user=UNPRIVILEGED if as_root else None,
            group=pwd.getpwnam(UNPRIVILEGED).pw_gid if as_root else None,
            extra_groups=() if as_root else None,
            start_new_session=True,  # an interrupt is for the test process, not for the server
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )


def free_port() -> int:
    """Return a free port of 127.0.0.1.

    It lies below those that outgoing connections are given, so that it stays free while the server is stopped.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
