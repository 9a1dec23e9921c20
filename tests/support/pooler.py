"""PgBouncer in transaction mode, in front of a server of the tests."""

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from clusters import Cluster, free_port
from owned_folder import PATIENCE, UNPRIVILEGED

MISSING = "PgBouncer is not on this machine: install it (Debian: apt-get install pgbouncer) to test behind it"
"""The reason for which tests are skipped."""

_CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
"""
_DIE_WITH_THE_PARENT = 1
_libc = ctypes.CDLL(None)


def find() -> str | None:
    """Return the path of the program; None if it is missing."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


class Pooler:
    """A PgBouncer in front of *cluster*, which ends with this process."""

    def __init__(self, cluster: Cluster) -> None:
        self._port = free_port()
        self._cluster = cluster
        server = int(cluster.url.rpartition(":")[2].partition("/")[0])
        folder = Path(cluster.folder)
        self._configuration = folder / f"pgbouncer-{self._port}.ini"
        users = folder / f"pgbouncer-{self._port}.users"
        users.write_text('"postgres" ""\n')
        self._configuration.write_text(_CONFIGURATION.format(server=server, port=self._port, users=users))
        self._log = folder / f"pgbouncer-{self._port}.log"

    def __enter__(self) -> Self:
        user = pwd.getpwnam(UNPRIVILEGED) if os.geteuid() == 0 else None  # PgBouncer refuses to run as root.
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [find() or "", str(self._configuration)],
                user=user and user.pw_uid,
                group=user and user.pw_gid,
                extra_groups=() if user else None,
                preexec_fn=lambda: _libc.prctl(_DIE_WITH_THE_PARENT, signal.SIGKILL),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + PATIENCE
        while True:
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", self._port)):
                    return self
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.01)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def url(self) -> str:
        """The URL of the database ``postgres`` through the pooler."""
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres"
