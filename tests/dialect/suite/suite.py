"""SQLAlchemy's own suite for dialects, run on `sqlite+apsw://` or `sqlite+apsw_async://`.

    cd "$(mktemp -d)" && pytest -c <this directory>/setup.cfg <this directory>/suite.py

Add `--dburi sqlite+apsw_async:///suite.db` to run it on the asyncio dialect, or `sqlite+pysqlite` or
`sqlite+aiosqlite` on the standard library's driver. The name of the file keeps it out of an ordinary run:
SQLAlchemy's plugin takes over the whole pytest session. The working directory is a scratch one because the
plugin attaches a second database there.
"""

from sqlalchemy.testing.suite import *  # noqa: F403
from sqlalchemy.testing.suite import ServerSideCursorsTest as _ServerSideCursorsTest


class ServerSideCursorsTest(_ServerSideCursorsTest):
    def _is_server_side(self, cursor):
        # SQLAlchemy's asks the drivers that it knows by name.
        return getattr(cursor, "server_side", False)
