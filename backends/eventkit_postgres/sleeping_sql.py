"""What a listener asks of the table of sleepers.  These are no operations: nobody above the backend knows of them."""

from eventkit_migrations import schemas

_ALIVE = "clock_timestamp() + interval '60 s'"


class SleepingSQL:
    """The statements, for the tables of *schema*."""

    def __init__(self, schema: str) -> None:
        def qualified(sql: str) -> bytes:
            return schemas.qualified(sql, schema).encode()

        self.bell = qualified("SELECT eventkit_bell()")
        self.call = qualified("SELECT pg_notify(eventkit_bell(), %s)")
        self.register = qualified(
            f"INSERT INTO eventkit_sleeper (name, listener, registration, until) "
            f"SELECT name, %s, %s, {_ALIVE} FROM unnest(%s::text[]) AS name ORDER BY name "
            f"ON CONFLICT (name, listener) DO UPDATE SET registration = excluded.registration, until = excluded.until "
            f"RETURNING name",
        )
        self.under_way = qualified("SELECT eventkit_under_way(%s::text[])")
        # What has expired may have been passed over already, or is just being.
        self.refresh = qualified(
            f"UPDATE eventkit_sleeper SET until = {_ALIVE} "
            f"WHERE listener = %s AND until > clock_timestamp() + interval '10 s' RETURNING name"
        )
        self.bury = qualified(
            "DELETE FROM eventkit_sleeper WHERE (name, listener) IN ("
            "SELECT name, listener FROM eventkit_sleeper WHERE until < clock_timestamp() LIMIT 1000 "
            "FOR UPDATE SKIP LOCKED)",
        )
        self.unregister = qualified(
            "DELETE FROM eventkit_sleeper WHERE name = %s AND listener = %s AND registration <= %s"
        )
        self.leave = qualified("DELETE FROM eventkit_sleeper WHERE listener = %s")
