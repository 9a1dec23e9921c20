"""eventkit's own connections: how both flavours open, begin and check them."""

import ctypes
import math
import re
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Self, TypeVar

from psycopg import AsyncConnection, Connection, OperationalError, errors
from psycopg.abc import PQGen, PQGenConn
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ConnStatus, PGconn, PollingStatus
from psycopg.types.numeric import Int8Dumper
from psycopg.waiting import Wait

from eventkit.errors import EventkitError, Unavailable
from eventkit.operations import Operation, Plan, Rows
from eventkit.plans import Steps

from .address import Address, shown

_CONNECTING = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "connect_timeout": 5,
}
"""Detects a server that stops answering within a minute.  The URL may override it."""

RECONNECTING = 1.0
"""Seconds for which the pool tries to replace a connection before it reports the error and starts again.  The pauses
between attempts double, so without a limit they would become as long as the outage."""

T = TypeVar("T")

PARTING = 5.0
"""Seconds to wait for an answer after the caller was cancelled or the kit closed."""

IDLE = 5.0
"""Seconds of disuse after which a pool closes a connection; then the next one."""

TAKEN_BACK = (errors.DeadlockDetected, errors.SerializationFailure, errors.AdminShutdown)
"""Errors after which the statement has had no effect, so that any statement can be repeated.

For a COMMIT this holds only for the first two: a server that shuts down or ends the session finishes the
commit; after a crash of the server or the network, the outcome is unknown.
"""


def planned(plan: Plan[T], fetch: Callable[[Operation[Any]], Steps[Rows]]) -> Steps[T]:
    """Take the steps of *plan*, each by those of *fetch*, which execute one statement and return its rows."""
    try:
        step = next(plan)
        while True:
            step = plan.send((yield from fetch(step)))
    except StopIteration as done:
        answer: T = done.value
        return answer


def options(address: Address, conninfo: str) -> dict[str, Any]:
    """Return the arguments of the driver beside the URL."""
    given = conninfo_to_dict(conninfo)
    keywords: dict[str, Any] = {name: value for name, value in _CONNECTING.items() if name not in given}
    keywords["client_encoding"] = "utf8"  # Overrides the URL, the environment, the database and the role.
    keywords.setdefault("application_name", given.get("application_name", "eventkit"))
    if address.pooled:
        # A pooler gives the session to another client after each transaction.
        return keywords | {"prepare_threshold": None}
    settings = " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in address.settings.items())
    return keywords | {"options": f"{given.get('options', '')} {settings}".strip()}


def check_encoding(driver: Connection[Any], address: Address) -> None:
    """Raise and close *driver* if the database's encoding cannot store every text."""
    encoding = driver.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        driver.close()
        raise Unavailable(
            f"{shown(address.url)} is in the encoding {encoding}, and eventkit needs UTF8: create the database again "
            f"with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        )


def adapt(driver: Connection[Any] | AsyncConnection[Any]) -> None:
    """Send every integer as bigint, so that a statement is prepared once and not for each size."""
    driver.adapters.register_dumper(int, Int8Dumper)


def beginning(address: Address) -> bytes:
    """Return the statement that begins a transaction."""
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
    if address.pooled:
        begin += "".join(
            f"; SET LOCAL {name} = '{value}'"
            for name, value in address.settings.items()
            if name != "default_transaction_isolation"
        )
    return begin.encode()


def alive(driver: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Return whether an idle connection is still open, by reading the socket: the server's last message is unread."""
    if driver.closed:
        return False
    poll = select.poll()
    poll.register(driver.pgconn.socket, select.POLLIN)
    while poll.poll(0):  # The last message comes before the end.
        try:
            driver.pgconn.consume_input()
        except OperationalError:
            return False
    return driver.pgconn.status == ConnStatus.OK


class NoAnswer(OperationalError):
    """Raised on a connection whose peer holds it and does not answer; the connection is closed."""


class _Own:
    """The parts of a connection that report the SQLSTATE of a refused connect and bound the wait for an answer."""

    patience = 30.0
    """Seconds to wait for an answer or its continuation."""
    give_up_at = math.inf
    """The time at which every wait ends, because the caller was cancelled or the kit is closing."""
    answered_at = 0.0
    silent_since = 0.0
    """The start of the wait that had no answer."""

    @classmethod
    def _connect_gen(cls, conninfo: str = "", *, timeout: float = 0.0) -> PQGenConn[Self]:
        # The driver's own generator reports only the text of a refusal, which is in the server's language.
        until = monotonic() + timeout
        pgconn = PGconn.connect_start(conninfo.encode())
        _set_verbosity(pgconn, _VERBOSE)
        while (state := pgconn.connect_poll()) != PollingStatus.OK:
            if state == PollingStatus.FAILED:
                raise _refusal(pgconn.get_error_message())
            while not (yield pgconn.socket, Wait.R if state == PollingStatus.READING else Wait.W):
                if timeout and monotonic() >= until:
                    raise errors.ConnectionTimeout("connection timeout expired")
        _set_verbosity(pgconn, _DEFAULT)
        pgconn.nonblocking = 1
        connection = cls(pgconn)  # type: ignore[call-arg]  # of a Connection
        connection.answered_at = monotonic()
        return connection

    def _limited(self, gen: PQGen[T]) -> PQGen[T]:
        """Run *gen*, an exchange with the server, within the limits on its waits."""
        began = monotonic()
        try:
            step = next(gen)
            while True:
                if ready := (yield step):
                    began = monotonic()
                elif monotonic() >= min(began + self.patience, self.give_up_at):
                    self.silent_since = began
                    raise NoAnswer(f"no answer within {monotonic() - began:.1f} s")
                step = gen.send(ready)
        except StopIteration as done:
            self.answered_at = monotonic()
            answer: T = done.value
            return answer


class OwnConnection(_Own, Connection[Any]):
    """eventkit's own connection, for threads."""

    def wait(self, gen: PQGen[T], *arguments: Any, **keywords: Any) -> T:
        """Run *gen*, or close the connection and raise `NoAnswer`."""
        try:
            return super().wait(self._limited(gen), *arguments, **keywords)
        except NoAnswer:
            self.pgconn.finish()
            raise


class AsyncOwnConnection(_Own, AsyncConnection[Any]):
    """eventkit's own connection, for asyncio."""

    async def wait(self, gen: PQGen[T], *arguments: Any, **keywords: Any) -> T:
        """`OwnConnection.wait`, awaited."""
        try:
            return await super().wait(self._limited(gen), *arguments, **keywords)
        except NoAnswer:
            self.pgconn.finish()
            raise


class InUse:
    """The connections of a kit in use; a cancelled caller or `close` shortens their waits.

    After a wait without an answer, connections that have been idle since its start are not used again.
    """

    def __init__(self, address: Address) -> None:
        self._patience = address.answer_timeout + address.busy_timeout
        self._silent_since = 0.0
        self._users: dict[Any, object] = {}
        self._closing = False

    def add(self, driver: Any, user: object = None) -> bool:
        """Mark *driver* as in use by the asyncio task *user*; return False if it cannot be used any more."""
        if driver.answered_at < self._silent_since or not alive(driver):
            return False
        driver.patience = PARTING if self._closing else self._patience
        self._users[driver] = user
        return True

    def remove(self, driver: Any) -> None:
        """Mark *driver* as idle."""
        del self._users[driver]
        driver.give_up_at = math.inf
        driver.patience = PARTING  # For the pool, which may check whether it is alive.
        self._silent_since = max(self._silent_since, driver.silent_since)

    def shorten_wait(self, user: object) -> None:
        """Bound the remaining wait for answers to *user*."""
        for driver, by in list(self._users.items()):
            if by is user:
                driver.give_up_at = monotonic() + PARTING

    def shorten_all(self) -> None:
        """Bound every current and future wait for answers."""
        self._closing = True
        for driver in list(self._users):
            driver.give_up_at = monotonic() + PARTING


def _refusal(said: str) -> errors.Error:
    """Return the error of a failed connect, of the class for the SQLSTATE in *said*."""
    kind: type[errors.Error] = OperationalError
    if states := re.findall(r":  ([0-9A-Z]{5}): ", said):
        with suppress(KeyError):
            kind = errors.lookup(states[-1])
    return kind(f"connection failed: {said}")


def _verbosity_of(implementation: str | None) -> Callable[[Any, int], object]:
    """Return libpq's PQsetErrorVerbosity, which the driver does not offer; it adds the SQLSTATE to messages."""
    try:
        call = ctypes.CDLL(implementation).PQsetErrorVerbosity
    except (OSError, AttributeError):
        return lambda pgconn, verbosity: None  # Messages have no SQLSTATE; `errors` reads their text.
    call.argtypes = (ctypes.c_void_p, ctypes.c_int)
    return lambda pgconn, verbosity: call(pgconn.pgconn_ptr, verbosity)


_DEFAULT, _VERBOSE = 1, 2
_set_verbosity = _verbosity_of(sys.modules[PGconn.__module__].__file__)


def failed() -> EventkitError:
    """Return the error for a commit of a failed transaction, which the server can only roll back."""
    return EventkitError(
        "a statement of the transaction failed, so it was rolled back: let the error leave the block, or keep the "
        "statement in a savepoint"
    )
