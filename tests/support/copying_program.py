"""A copy, an export, an import or a backup that may be killed at one of its steps."""

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from itertools import count
from math import inf
from pathlib import Path

import eventkit_sqlite

import eventkit
from eventkit import transfer
from eventkit.cli import data


def main(what: str, source: str, target: str, last: float = inf) -> None:
    """Copy, export, import or back up, and print a dot for each step; the process is killed at the *last* one."""
    steps = count()

    def step(*_: object) -> None:
        if next(steps) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(1, b".")

    def stepping(lines: Iterable[bytes]) -> Iterator[bytes]:
        for number, line in enumerate(lines):
            if number % 500 == 0:
                step()
            yield line

    if what == "copy":
        eventkit.copy(source, target, progress=step)
    elif what == "import":
        transfer.write(target, stepping(Path(source).read_bytes().splitlines()))
    elif what == "export":
        read = transfer.read
        transfer.read = lambda url: stepping(read(url))
        data.export(source, target)
    else:
        eventkit_sqlite.backup(source, target, step)
    os.write(1, b"finished\n")


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:]))
