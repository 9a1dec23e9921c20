"""Reading beside the writer: pooled connections, and operations that change nothing."""

from typing import TypeVar

from eventkit.operations import Operation, Scope
from eventkit.plans import run

from .address import Address
from .file import File
from .library import Connection, Error, open_connection
from .statements import fetch

T = TypeVar("T")


class Spares:
    """Idle connections."""

    def __init__(self, address: Address, file: File, busy_timeout: float) -> None:
        self._address = address
        self._file = file
        self._busy_timeout = busy_timeout
        self._spares: list[Connection] = []
        self._closed = False

    def take(self) -> Connection:
        """Return a connection for the caller alone, until `give_back`."""
        try:
            return self._spares.pop()
        except IndexError:
            address = self._address
            try:
                return open_connection(address.library, address.path, address.synchronous, self._busy_timeout)
            except Error as error:
                raise self._file.explain(error) from error

    def give_back(self, connection: Connection) -> None:
        """Return *connection*, which has no transaction open, to the pool."""
        if self._closed:
            connection.close()
        else:
            self._spares.append(connection)

    def close(self) -> None:
        """Close the idle connections now, and the others in `give_back`."""
        self._closed = True
        while self._spares:
            self._spares.pop().close()


def read(connection: Connection, operation: Operation[T]) -> T:
    """Return the result of *operation*, read from one snapshot."""
    if operation.scope is Scope.NONE:
        return operation.decode(fetch(connection, operation))
    connection.execute("BEGIN")
    try:
        return run(operation.plan(), lambda step: fetch(connection, step))
    finally:
        connection.execute("COMMIT")
