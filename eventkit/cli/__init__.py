"""The command line ``eventkit``, for operators.

A command is a function: `settings.command` declares its options, opens its database and prints the result that it
returns, a value of `output`.  Commands import what is slow to load when they run, so that ``eventkit --help`` is fast.
"""

import sys
from collections.abc import Sequence

_EXTRA = ("typer", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0 for success, 1 for failure or a negative answer, 2 for a usage error."""
    try:
        from .commands import run
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        print("eventkit: the command line is not installed: pip install 'eventkit-db[cli]'", file=sys.stderr)
        return 1
    return run(arguments)
