"""SQLAlchemy's own suite for dialects, run on `sqlite+apsw://`.

    cd "$(mktemp -d)" && pytest -c <this directory>/setup.cfg <this directory>/suite.py

Add `--dburi sqlite+pysqlite:///suite.db` to run it on the standard library's driver instead. The name of the
file keeps it out of an ordinary run: SQLAlchemy's plugin takes over the whole pytest session. The working
directory is a scratch one because the plugin attaches a second database there.
"""

from sqlalchemy.testing.suite import *  # noqa: F403
