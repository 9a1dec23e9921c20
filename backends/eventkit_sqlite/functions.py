"""The operations as SQL functions, on any connection of apsw.

Each runs on the connection that calls it: in the open transaction, or in one of its own.  All of its
statements take effect, or none.
"""

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import ref

import apsw

from eventkit.errors import EventkitError
from eventkit.functions import FUNCTIONS, PREFIX, Functions
from eventkit.operations import Operation, Scope

from .library import Connection as Driver
from .statements import fetch
from .transaction import execute_in, plain

T = TypeVar("T")


def register(connection: apsw.Connection) -> None:
    """Let SQL on *connection* call ``eventkit_publish``, ``eventkit_claim`` and the others of docs/plain-sql.md.

    On an async connection of apsw, call it in its thread: ``await connection.async_run(register, connection)``.
    """
    # The connection holds the functions, so they must not hold the connection.
    executor = ref(connection)

    def execute(operation: Operation[Any]) -> Any:
        driver = executor()
        assert driver is not None
        return _execute(plain(driver), operation)

    functions = Functions(execute)
    for name in FUNCTIONS:
        connection.create_scalar_function(PREFIX + name, _sql_function(getattr(functions, name)))


def _sql_function(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return *call* with its errors raised as those of a statement."""

    def function(*values: Any) -> Any:
        try:
            return call(*values)
        except (EventkitError, ValueError, TypeError) as error:
            raise apsw.SQLError(str(error)) from error

    return function


def _execute(driver: Driver, operation: Operation[T]) -> T:
    if operation.scope is Scope.NONE:
        return operation.decode(fetch(driver, operation))
    # The statements take effect together, which a savepoint cannot ensure inside a statement that writes.
    begun = driver.in_transaction
    try:
        driver.execute("SAVEPOINT eventkit_function").close()
    except apsw.BusyError as error:
        raise apsw.SQLError(
            "this call takes more than one step, and cannot be made within a statement that writes, nor in a trigger: "
            "call it in a SELECT of its own, in the same transaction"
        ) from error
    driver.execute("RELEASE eventkit_function").close()
    if begun or not operation.writes:
        return execute_in(driver, operation)
    driver.execute("BEGIN IMMEDIATE").close()
    try:
        answer = execute_in(driver, operation)
        driver.execute("COMMIT").close()
    finally:
        if driver.in_transaction:
            driver.execute("ROLLBACK").close()
    return answer
