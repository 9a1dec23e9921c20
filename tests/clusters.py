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
from owned_folder import NOBODY, PATIENCE, OwnedFolder, open_to_all
from postgres_binaries import Binaries

KEEPER = Path(__file__).parent / "keeper.py"

SETTINGS: dict[str, object] = {
    "listen_addresses": "127.0.0.1",
    "max_connections": 200,
    "max_prepared_transactions": 20,
    "shared_buffers": "32MB",  # dropping a table looks through all of them
    "fsync": "off",
    "full_page_writes": "off",
}
"""What every cluster starts with.  Without fsync a crash of the server loses nothing; only one of the machine does."""

Mode = Literal["fast", "immediate"]
"""How to stop: ``fast`` rolls back and disconnects, ``immediate`` is a crash."""


class ClusterError(Exception):
    """A program of the server failed; the message holds what it and the server's log said."""


class Cluster:
    """A PostgreSQL server with data of its own in a temporary folder, on a port of 127.0.0.1 that was free.

    ``with Cluster() as cluster:`` makes, starts and removes one.  Every local user is its superuser ``postgres``
    without a password.  It ends with the process that made it, also when that is killed.

    Args:
        binaries: Of which server; by default the newest on the machine, or else in the package.
        folder: The path of an `OwnedFolder` with whose owner the cluster ends, instead of one of its own.
        primary: The running cluster of which this one is a hot standby.
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
        """Leads to the database ``postgres``."""
        return f"postgresql://postgres@127.0.0.1:{self._settings['port']}/postgres"

    @property
    def socket_url(self) -> str:
        """Leads there through the Unix socket."""
        return f"postgresql://postgres@/postgres?host={self.folder}&port={self._settings['port']}"

    @property
    def version(self) -> str:
        """Such as ``18.4``."""
        return self.binaries.version

    @property
    def pid(self) -> int | None:
        """The process that all others of the server are children of; None while it is stopped."""
        said = self._attempt("pg_ctl", "status", "--pgdata", self._data).stdout
        running = re.search(r"PID: (\d+)", said)
        return int(running[1]) if running else None

    def start(self) -> None:
        """Start the server, on the same port each time, and return when it takes connections.

        Raises:
            ClusterError: It does not start.
        """
        if not self._data.exists():
            self._create()
        self._run("pg_ctl", "start", "--wait", "--timeout=60", "--pgdata", self._data, "--log", self._log)

    def stop(self, mode: Mode = "fast") -> None:
        """Stop the server if it runs, and return when it is gone.

        Raises:
            ClusterError: It does not stop.
        """
        if self.pid is not None:
            self._run("pg_ctl", "stop", "--wait", "--timeout=60", "--mode", mode, "--pgdata", self._data)

    def restart(self, mode: Mode = "fast") -> None:
        """Stop the server in one way or the other, and start it."""
        self.stop(mode)
        self.start()

    def configure(self, **settings: object) -> None:
        """Change settings; when this returns they count, even if the server had to be restarted for them.

        Raises:
            ClusterError: The server does not take them.
        """
        self._settings |= settings
        quoted = {name: str(value).replace("'", "''") for name, value in self._settings.items()}
        (self.folder / "settings.conf").write_text("".join(f"{name} = '{value}'\n" for name, value in quoted.items()))
        if self.pid is not None:
            self._reload()

    def close(self) -> None:
        """Stop the server and remove the folder, if it is the cluster's own."""
        if self._own is not None:
            self._own.close()

    def _create(self) -> None:
        """Make the cluster's files, and see to their end first."""
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
        """Start the process that ends the cluster, in a session of its own and as nobody's child."""
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
        """Have the running server read its settings, or restart it if they ask for that."""
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
        # A running server refuses what needs a restart and what is wrong in the same words.
        for name, value, error, at_start in refused:
            if not at_start:
                raise ClusterError(f"PostgreSQL {self.version} does not take {name} = {value!r}: {error}")
        self.restart()

    def _run(self, program: str, *arguments: object) -> None:
        """Run one of the server's programs, which must succeed."""
        done = self._attempt(program, *arguments)
        if done.returncode:
            log = self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""
            raise ClusterError(f"{program} of PostgreSQL {self.version} failed:\n{done.stdout}{done.stderr}{log}")

    def _attempt(self, program: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
        """Run one of the server's programs, as somebody it agrees to run as."""
        as_root = os.geteuid() == 0
        return subprocess.run(
            (self.binaries.folder / program, *map(str, arguments)),
            env=os.environ | {"LC_ALL": "C"},
            cwd=self.folder,
            user=NOBODY if as_root else None,
            group=pwd.getpwnam(NOBODY).pw_gid if as_root else None,
            extra_groups=() if as_root else None,
            start_new_session=True,  # an interrupt is meant for us, not for the server
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on.

    It lies below those that outgoing connections are given, so that it stays free while the server is stopped.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
