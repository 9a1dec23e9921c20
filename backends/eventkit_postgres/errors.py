"""The server's and the driver's errors, as ours: what happened, and what to do about it."""

from psycopg import Error, OperationalError, errors
from psycopg_pool import PoolTimeout

from eventkit.errors import Busy, Disconnected, EventkitError, Unavailable

from .address import Address, shown


def translated(error: BaseException | None, address: Address) -> EventkitError | None:
    """What *error* is in our terms; None for a mistake in a statement, which is nobody's but ours."""
    place = shown(address.url)
    said = str(error).strip().partition("\n")[0]
    match error:
        case errors.LockNotAvailable() | errors.DeadlockDetected() | errors.SerializationFailure():
            return Busy(f"another transaction on {place} was in the way ({said}): try again, or raise busy_timeout")
        case errors.TooManyConnections() | errors.ConfigurationLimitExceeded():
            return Busy(f"{place} has no connection left ({said}): raise max_connections, or lower max_size")
        case errors.ReadOnlySqlTransaction():
            return Unavailable(f"{place} is read-only, a standby perhaps ({said}): name the primary in the URL")
        case errors.InsufficientPrivilege():
            return Unavailable(
                f"the role may not do this on {place} ({said}): grant it the schema {address.schema}, or let another "
                f"role run python -m eventkit_migrations upgrade {place}"
            )
        case errors.DiskFull() | errors.OutOfMemory():
            return Unavailable(f"{place} has no room left ({said}): nothing was written; make room and try again")
        case errors.InvalidPassword() | errors.InvalidAuthorizationSpecification():
            return Unavailable(f"{place} refuses the user or the password ({said}): check both in the URL")
        case errors.InvalidCatalogName():
            return Unavailable(f"{place} names no database of the server ({said}): create it, or correct the URL")
        case PoolTimeout():
            return Disconnected(
                f"no connection to {place} within {address.busy_timeout:g} s: check that the server is reachable, or "
                f"raise max_size if all of the pool are in use"
            )
        case OperationalError() if error.sqlstate is None or lost(error):
            return _without_connection(said, place)
        case errors.QueryCanceled():
            return Busy(f"{place} cancelled a statement ({said}): try again, or raise statement_timeout")
    return None


def lost(error: Error) -> bool:
    """Whether the server ended the connection, or there was none."""
    return error.sqlstate is None or (error.sqlstate[:2] in ("08", "57") and error.sqlstate != "57014")


def _without_connection(said: str, place: str) -> Unavailable:
    # What a connection attempt failed of has no code, only words.
    if "password" in said or "authentication" in said:
        return Unavailable(f"{place} refuses the user or the password ({said}): check both in the URL")
    if "database" in said and "does not exist" in said:
        return Unavailable(f"{place} names no database of the server ({said}): create it, or correct the URL")
    if "too many clients" in said or "connection slots" in said:
        return Busy(f"{place} has no connection left ({said}): raise max_connections, or lower max_size")
    return Disconnected(f"no connection to {place} ({said}): check that the server is running and reachable")
