"""The server's and the driver's errors, as ours: what happened, and what to do about it."""

from psycopg import Error, OperationalError, errors
from psycopg_pool import PoolTimeout

from eventkit.errors import Busy, DatabaseError, Disconnected, EventkitError, Unavailable

from .address import Address, shown
from .session import NoAnswer


def translated(error: BaseException | None, address: Address, *, writing: bool = False) -> EventkitError | None:
    """Return the error of ours for *error*; None if it is not an error of the driver.

    *writing*: it came while something was being written, of which nobody knows whether it was.
    """
    place = shown(address.url)
    said = str(error).strip().partition("\n")[0]
    match error:
        case errors.LockNotAvailable() | errors.DeadlockDetected() | errors.SerializationFailure():
            return Busy(f"another transaction on {place} was in the way ({said}): try again, or raise busy_timeout")
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
        case errors.IdleInTransactionSessionTimeout():
            return Disconnected(
                f"{place} ended a transaction in which nothing happened for too long ({said}), and nothing of it is "
                f"left: do less in it, or raise idle_in_transaction_session_timeout"
            )
        case NoAnswer():
            unknown = ": it was carried out or it was not, so look before you repeat it" if writing else ""
            return Disconnected(
                f"{place} holds the connection and does not answer ({said}){unknown}; check the server and a pooler "
                f"in front of it, or raise answer_timeout for statements that take longer"
            )
        case OperationalError() if writing and lost(error):
            return Disconnected(
                f"the connection to {place} broke during the call ({said}): it was carried out or it was not, so look "
                f"before you repeat it; dedup= and key= make it safe to repeat"
            )
        case OperationalError() if lost(error):
            return _without_connection(said, place)
        case errors.QueryCanceled():
            return Busy(f"{place} cancelled a statement ({said}): try again, or raise statement_timeout")
        case Error():
            state = f" with SQLSTATE {error.sqlstate}" if error.sqlstate else ""
            return DatabaseError(
                f"{place} refused a statement{state} ({said}): look for a constraint, trigger or extension that "
                f"refuses it, and into the server's log",
                error.sqlstate,
            )
    return None


def lost(error: Error) -> bool:
    """Whether the server ended the connection, or there was none."""
    return error.sqlstate is None or (error.sqlstate[:2] in ("08", "57") and error.sqlstate != "57014")


def _without_connection(said: str, place: str) -> Unavailable:
    # These have no SQLSTATE of their own: what libpq finds out by itself, and most of what a pooler refuses.
    if any(words in said for words in ("too many", "connection slots", "no more connections")):
        return _full(said, place)
    if any(word in said for word in ("password", "authentication", "pg_hba.conf", "role ")):
        return Unavailable(f"{place} refuses the user or the password ({said}): check both in the URL")
    if "database" in said and "does not exist" in said:
        return Unavailable(f"{place} names no database of the server ({said}): create it, or correct the URL")
    if "hot standby" in said or "read-only" in said:
        # Perhaps only until somebody promotes it.
        return Disconnected(f"{place} is a standby ({said}): name the primary in the URL, or all hosts of the cluster")
    if "startup parameter" in said:
        return Unavailable(
            f"{place} leads to a pooler ({said}): say ?pooler=transaction in the URL, and name the server itself in "
            f"&listen_url="
        )
    return Disconnected(f"no connection to {place} ({said}): check that the server is running and reachable")


def _full(said: str, place: str) -> Busy:
    return Busy(
        f"{place} has no connection left ({said}): raise max_connections, or the CONNECTION LIMIT of the role or the "
        f"database, or lower max_size"
    )
