"""Connections of our own: how they are opened, begun and checked, the same for both flavours."""

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

from .address import Address, shown

_CONNECTING = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "connect_timeout": 5,
}
"""A server that stops answering is noticed within a minute.  The URL may say otherwise."""

RECONNECTING = 1.0
"""Seconds for which the pool tries to replace a connection before it reports why it cannot, and begins anew.  The
pauses in between double, so without an end they would become as long as the server has been away."""

T = TypeVar("T")

PARTING = 5.0
"""Seconds to wait for an answer when the caller was cancelled, or the kit is being closed."""

IDLE = 5.0
"""Seconds after which a pool closes one of the connections that it had no use for in that time, and then the next."""

TAKEN_BACK = (errors.DeadlockDetected, errors.SerializationFailure, errors.AdminShutdown)
"""After these nothing of the statement has happened, so that it can be repeated whatever it was.

Of a COMMIT only the first two say that much.  A server that is told to stop, or to end our session, finishes the
commit it is at; one that crashes, or a network that does, tells nothing.
"""


def options(address: Address, conninfo: str) -> dict[str, Any]:
    """What the driver is told beside the URL."""
    given = conninfo_to_dict(conninfo)
    keywords: dict[str, Any] = {name: value for name, value in _CONNECTING.items() if name not in given}
    keywords["client_encoding"] = "utf8"  # Over that of the URL, the environment, the database and the role.
    keywords.setdefault("application_name", given.get("application_name", "eventkit"))
    if address.pooled:
        # A pooler hands the server's session to somebody else after each transaction.
        return keywords | {"prepare_threshold": None}
    settings = " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in address.settings.items())
    return keywords | {"options": f"{given.get('options', '')} {settings}".strip()}


def check_encoding(driver: Connection[Any], address: Address) -> None:
    """Refuse a database in which not every text can be stored as it is, and close *driver*."""
    encoding = driver.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        driver.close()
        raise Unavailable(
            f"{shown(address.url)} is in the encoding {encoding}, and eventkit needs UTF8: make the database again "
            f"with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        )


def adapt(driver: Connection[Any] | AsyncConnection[Any]) -> None:
    """Let every whole number be a bigint, so that a statement is prepared once and not for each size."""
    driver.adapters.register_dumper(int, Int8Dumper)


def beginning(address: Address) -> bytes:
    """What begins a transaction of ours."""
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
    if address.pooled:
        begin += "".join(
            f"; SET LOCAL {name} = '{value}'"
            for name, value in address.settings.items()
            if name != "default_transaction_isolation"
        )
    return begin.encode()


def alive(driver: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether an idle connection is still one.  Asks the socket, not the server: a goodbye lies there unread."""
    if driver.closed:
        return False
    poll = select.poll()
    poll.register(driver.pgconn.socket, select.POLLIN)
    while poll.poll(0):  # First the last words, then the end.
        try:
            driver.pgconn.consume_input()
        except OperationalError:
            return False
    return driver.pgconn.status == ConnStatus.OK


class NoAnswer(OperationalError):
    """Raised on a connection whose peer holds it and does not answer; the connection is closed."""


class _Own:
    """Names the SQLSTATE of a refused connect, and ends a wait for which no answer comes."""

    patience = 30.0
    """Seconds to wait for an answer, or for more of it."""
    give_up_at = math.inf
    """The moment at which waiting ends in any case, because the caller was cancelled or the kit is closing."""
    answered_at = 0.0
    silent_since = 0.0
    """When the wait began that had no answer."""

    @classmethod
    def _connect_gen(cls, conninfo: str = "", *, timeout: float = 0.0) -> PQGenConn[Self]:
        # The driver's own generator knows only the words of a refusal, which are in the server's language.
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
        """*gen*, a conversation with the server, for as long as there is patience."""
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
    """A connection of our own, for threads."""

    def wait(self, gen: PQGen[T], *arguments: Any, **keywords: Any) -> T:
        """Carry out *gen*, or close the connection and raise `NoAnswer`."""
        try:
            return super().wait(self._limited(gen), *arguments, **keywords)
        except NoAnswer:
            self.pgconn.finish()
            raise


class AsyncOwnConnection(_Own, AsyncConnection[Any]):
    """A connection of our own, for asyncio."""

    async def wait(self, gen: PQGen[T], *arguments: Any, **keywords: Any) -> T:
        """`OwnConnection.wait`, awaited."""
        try:
            return await super().wait(self._limited(gen), *arguments, **keywords)
        except NoAnswer:
            self.pgconn.finish()
            raise


class InUse:
    """The connections of a kit that are in use: their waits end soon when a caller is cancelled or the kit closes.

    After a wait without an answer, connections that have been idle since it began are not used again.
    """

    def __init__(self, address: Address) -> None:
        self._patience = address.answer_timeout + address.busy_timeout
        self._silent_since = 0.0
        self._users: dict[Any, object] = {}
        self._parting = False

    def usable(self, driver: Any) -> bool:
        """Whether an idle connection may be used."""
        return alive(driver) and driver.answered_at >= self._silent_since

    def add(self, driver: Any, user: object = None) -> None:
        """*driver* is in use, by the asyncio task *user*."""
        driver.patience = PARTING if self._parting else self._patience
        self._users[driver] = user

    def remove(self, driver: Any) -> None:
        """*driver* is not in use any more."""
        del self._users[driver]
        driver.give_up_at = math.inf
        driver.patience = PARTING  # For the pool, which may look whether it is alive.
        self._silent_since = max(self._silent_since, driver.silent_since)

    def hurry(self, user: object) -> None:
        """Wait for answers to *user* only a little longer."""
        for driver, by in list(self._users.items()):
            if by is user:
                driver.give_up_at = monotonic() + PARTING

    def part(self) -> None:
        """Wait for any answer only a little, now and from now on."""
        self._parting = True
        for driver in list(self._users):
            driver.give_up_at = monotonic() + PARTING


def _refusal(said: str) -> errors.Error:
    """The error of a failed attempt to connect, of the class that belongs to the SQLSTATE in *said*."""
    kind: type[errors.Error] = OperationalError
    if states := re.findall(r":  ([0-9A-Z]{5}): ", said):
        with suppress(KeyError):
            kind = errors.lookup(states[-1])
    return kind(f"connection failed: {said}")


def _verbosity_of(implementation: str | None) -> Callable[[Any, int], object]:
    """A call of libpq that the driver does not offer: whether a connection's messages contain the SQLSTATE."""
    try:
        call = ctypes.CDLL(implementation).PQsetErrorVerbosity
    except (OSError, AttributeError):
        return lambda pgconn, verbosity: None  # Messages then have no SQLSTATE, and `errors` reads their words.
    call.argtypes = (ctypes.c_void_p, ctypes.c_int)
    return lambda pgconn, verbosity: call(pgconn.pgconn_ptr, verbosity)


_DEFAULT, _VERBOSE = 1, 2
_set_verbosity = _verbosity_of(sys.modules[PGconn.__module__].__file__)


def failed() -> EventkitError:
    """The error for a transaction that its user wants to commit and the server can only roll back."""
    return EventkitError(
        "a statement of the transaction failed, so it was rolled back: let the error leave the block, or keep the "
        "statement in a savepoint"
    )
