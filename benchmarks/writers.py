"""Processes that write to one file without pauses: the share of each."""

import random
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple

import apsw
import sqlalchemy as sa

import eventkit

from .processes import Remote
from .report import Table, milliseconds, verdict
from .settings import Settings

_SECONDS = 12.0
_LEAST, _MOST = 0.002, 0.02
_INSERT = "INSERT INTO eventkit_event (topic, payload) VALUES ('t', '1')"


class Share(NamedTuple):
    """The transactions and waits of one of several writers."""

    transactions: int
    refused: int
    longest_wait: float
    held: float


def measure(settings: Settings) -> Iterator[Table]:
    """Measure transactions of 2 to 20 ms without pauses, from 4 and from 16 processes."""
    seconds = settings.seconds(_SECONDS)
    table = Table(
        f"Processes that write to one file back to back for {seconds:g} s",
        (
            "processes",
            "through",
            "transactions",
            "of one process",
            "database is locked",
            "longest wait",
            "10 × processes × mean hold",
            "bar",
            "reached",
        ),
        note=(
            f"Each transaction inserts a row and sleeps for {_LEAST * 1000:g} to {_MOST * 1000:g} ms. "
            "*Bare SQLite* waits by SQLite's own busy handler, for as long as the others: 5 s."
        ),
    )
    for processes in (4, 16):
        for through, writer in _WRITERS.items():
            path = f"{settings.folder('writers')}/kit.db"
            eventkit.connect(f"sqlite:///{path}").close()
            with ExitStack() as stack:
                remotes = [stack.enter_context(Remote(writer, path)) for _ in range(processes)]
                for remote in remotes:
                    remote.ready()
                start = time.monotonic() + 0.2
                for remote in remotes:
                    remote.begin("write", start, seconds)
                shares = [Share(*remote.result()) for remote in remotes]
            counts = [share.transactions for share in shares]
            bound = 10 * processes * sum(share.held for share in shares) / sum(counts)
            refused = sum(share.refused for share in shares)
            longest = max(share.longest_wait for share in shares)
            good = max(counts) <= 3 * min(counts) and not refused and longest <= bound
            judged = writer is not Bare
            table.add(
                [
                    str(processes),
                    through,
                    f"{sum(counts):,}",
                    f"{min(counts)}–{max(counts)}",
                    str(refused),
                    milliseconds(longest),
                    milliseconds(bound),
                    "shares within 3, no error, the wait within the product" if judged else "–",
                    verdict(good) if judged else "–",
                ]
            )
    yield table


class Writer:
    """A process that writes."""

    def transaction(self) -> AbstractContextManager[object]:
        """Return a transaction with the write lock."""
        raise NotImplementedError

    def write(self, start: float, seconds: float) -> Share:
        """Write without pauses, from the time *start* on."""
        time.sleep(max(0.0, start - time.monotonic()))
        count, refused, longest, held = 0, 0, 0.0, 0.0
        while (asked := time.monotonic()) < start + seconds:
            begun = None
            try:
                with self.transaction():
                    begun = time.monotonic()
                    time.sleep(random.uniform(_LEAST, _MOST))
                held += time.monotonic() - begun
                count += 1
            except (apsw.BusyError, eventkit.Busy, sa.exc.OperationalError):
                refused += 1
            longest = max(longest, (begun or time.monotonic()) - asked)
        return Share(count, refused, longest, held)


class Bare(Writer):
    """SQLite with its busy handler."""

    def __init__(self, path: str) -> None:
        self._connection = apsw.Connection(path)
        self._connection.set_busy_timeout(5000)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `Writer`."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(_INSERT)
        yield
        self._connection.execute("COMMIT")


class Kit(Writer):
    """`kit.transaction()`."""

    def __init__(self, path: str) -> None:
        self._kit = eventkit.connect(f"sqlite:///{path}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `Writer`."""
        with self._kit.transaction() as tx:
            tx.execute(_INSERT)
            yield

    def close(self) -> None:
        """Close the kit."""
        self._kit.close()


class Engine(Writer):
    """An engine whose transactions begin deferred."""

    def __init__(self, path: str) -> None:
        self._engine = sa.create_engine(f"sqlite+apsw:///{path}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `Writer`."""
        with self._engine.begin() as connection:
            connection.exec_driver_sql(_INSERT)
            yield


_WRITERS: dict[str, Any] = {"bare SQLite": Bare, "`kit.transaction()`": Kit, "`sqlite+apsw`, deferred": Engine}
