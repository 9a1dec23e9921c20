"""Translation of the server's and the driver's errors into eventkit's, with the remedy."""

from psycopg import Error, OperationalError, errors
from psycopg_pool import PoolTimeout

from eventkit.errors import Busy, DatabaseError, Disconnected, EventkitError, Unavailable

from .address import Address, shown
from .session import NoAnswer


def translated(error: BaseException | None, address: Address, *, writing: bool = False) -> EventkitError | None:
    """Return the eventkit error for *error*; None if it is not an error of the driver.

    *writing*: the error occurred during a write, whose outcome is unknown.
    """
    place = shown(address.url)
    said = str(error).strip().partition("\n")[0]
    match error:
        case errors.LockNotAvailable() | errors.DeadlockDetected() | errors.SerializationFailure():
            return Busy(f"conflict with another transaction on {place} ({said}): try again, or raise busy_timeout")
        case errors.TooManyConnections() | errors.ConfigurationLimitExceeded():
            return _full(said, place)
        case errors.ReadOnlySqlTransaction():
            return Unavailable(
                f"{place} is read-only ({said}): name the primary in the URL, or turn default_transaction_read_only off"
            )
        case errors.InsufficientPrivilege():
            return Unavailable(
                f"the role may not do this on {place} ({said}): if the tables are there, GRANT it USAGE ON SCHEMA "
                f"{address.schema}, SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {address.schema} and USAGE "
                f"ON ALL SEQUENCES IN SCHEMA {address.schema}; if not, GRANT it CREATE ON DATABASE, or let another "
                f"role run python -m eventkit_migrations upgrade {place}"
            )
        case errors.DiskFull() | errors.OutOfMemory():
            return Unavailable(f"{place} is out of disk or memory ({said}): nothing was written; free some, try again")
        case errors.InvalidPassword() | errors.InvalidAuthorizationSpecification():
            return Unavailable(f"{place} refuses the user or the password ({said}): check both in the URL")
        case errors.InvalidCatalogName():
            return Unavailable(f"{place} names no database of the server ({said}): create it, or correct the URL")
        case PoolTimeout():
            return Disconnected(
                f"no connection to {place} within {address.busy_timeout:g} s: check that the server is reachable, or "
                f"raise max_size if all connections of the pool are in use"
            )
        case errors.IdleInTransactionSessionTimeout():
            return Disconnected(
                f"{place} ended a transaction that was idle for too long ({said}) and rolled it back: "
                f"shorten the pauses in it, or raise idle_in_transaction_session_timeout"
            )
        case NoAnswer():
            unknown = ": the call may or may not have taken effect, so check before repeating it" if writing else ""
            return Disconnected(
                f"{place} keeps the connection open but does not answer ({said}){unknown}; check the server and any "
                f"pooler in front of it, or raise answer_timeout for statements that take longer"
            )
        case OperationalError() if writing and lost(error):
            return Disconnected(
                f"the connection to {place} broke during the call ({said}): it may or may not have taken effect, so "
                f"check before repeating it; dedup= and key= make it safe to repeat"
            )
        case OperationalError() if lost(error):
            return _without_connection(said, place)
        case errors.QueryCanceled():
            return Busy(f"{place} cancelled a statement ({said}): try again, or raise statement_timeout")
        case Error():
            state = f" with SQLSTATE {error.sqlstate}" if error.sqlstate else ""
            return DatabaseError(
                f"{place} refused a statement{state} ({said}): look for a constraint, trigger or extension that "
                f"refuses it, and read the server's log",
                error.sqlstate,
            )
    return None


def lost(error: Error) -> bool:
    """Return whether the server ended the connection, or none could be made."""
    return error.sqlstate is None or (error.sqlstate[:2] in ("08", "57") and error.sqlstate != "57014")


def _without_connection(said: str, place: str) -> Unavailable:
    # libpq's own errors and most refusals of a pooler have no SQLSTATE.
    if any(words in said for words in ("too many", "connection slots", "no more connections")):
        return _full(said, place)
    if any(word in said for word in ("password", "authentication", "pg_hba.conf", "role ")):
        return Unavailable(f"{place} refuses the user or the password ({said}): check both in the URL")
    if "database" in said and "does not exist" in said:
        return Unavailable(f"{place} names no database of the server ({said}): create it, or correct the URL")
    if "hot standby" in said or "read-only" in said:
        # This may change by a promotion.
        return Disconnected(f"{place} is a standby ({said}): name the primary in the URL, or all hosts of the cluster")
    if "startup parameter" in said:
        return Unavailable(
            f"{place} leads to a pooler ({said}): add ?pooler=transaction to the URL, and name the server itself in "
            f"&listen_url="
        )
    return Disconnected(f"no connection to {place} ({said}): check that the server is running and reachable")


def _full(said: str, place: str) -> Busy:
    return Busy(
        f"{place} has no connection left ({said}): raise max_connections, or the CONNECTION LIMIT of the role or the "
        f"database, or lower max_size"
    )
