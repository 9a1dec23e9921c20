"""The command line: ``eventkit``, for whoever looks after a database.

Each group of commands is a module of plain functions.  `opening` is where a kit is opened, `show` where anything is
printed, `root` where the commands are put together.  What a command needs of the library it imports when it runs, so
that ``eventkit --help`` is there at once.

It comes with ``pip install 'eventkit-db[cli]'``; without that, there is a line that says so.
"""

import sys
from collections.abc import Sequence

_EXTRA = ("typer", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it is done, 1 when it failed or the answer is no, 2 when it was not understood."""
    try:
        from .root import run
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        print("eventkit: the command line is not installed: pip install 'eventkit-db[cli]'", file=sys.stderr)
        return 1
    return run(arguments)
