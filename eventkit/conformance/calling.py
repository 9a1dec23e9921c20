"""Calls of the SQL functions, and of plain SQL, through a plain driver or a SQLAlchemy session."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .orders import opened

WAYS = ("driver", "session")


class Caller:
    """A connection that calls SQL functions; `call` returns the JSON answer as Python values."""

    def __init__(self, way: str, prefix: str, run: Callable[[str], Any], engine: Any) -> None:
        self.prefix = prefix
        self._way = way
        self._run = run
        self._engine = engine
        self._session: Any = None

    def call(self, name: str, *arguments: Any) -> Any:
        """Return the answer of the function, called in the open transaction or in one of its own."""
        values = ", ".join(map(_literal, arguments))
        text = self.ask(f"SELECT CAST({self.prefix}eventkit_{name}({values}) AS text)")
        return None if text is None else json.loads(text)

    def ask(self, sql: str) -> Any:
        """Return the first value of the first row of *sql*."""
        if self._way == "driver":
            return self._run(sql)
        if self._session is not None:
            return _scalar(self._session.connection().exec_driver_sql(sql))
        with opened(self._engine, "Session") as session:
            answer = _scalar(session.connection().exec_driver_sql(sql))
            session.commit()
            return answer

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[None]:
        """Run the calls of the body in one transaction."""
        if self._way == "driver":
            self._run("BEGIN")
            yield
            self._run("COMMIT" if commit else "ROLLBACK")
            return
        with opened(self._engine, "Session") as session:
            self._session = session
            yield
            self._session = None
            session.commit() if commit else session.rollback()


class Plain:
    """The same calls in plain SQL, with the answers of the functions: calls of functions, or INSERTs into views."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._seen: set[tuple[int, str]] = set()

    def do(self, call: str, /, **arguments: Any) -> Any:
        """Make a call; return the answer of a function, as JSON if it is a table, and nothing of a view."""
        prefix, ask = self._caller.prefix, self._caller.ask
        values = ", ".join(map(_literal, arguments.values()))
        names = ", ".join(f'"{argument}"' for argument in arguments)
        if not prefix:
            return ask(f"INSERT INTO eventkit_do_{call} ({names}) VALUES ({values})")
        named = ", ".join(f'"{argument}" => {_literal(value)}' for argument, value in arguments.items())
        if call in ("claim", "lock"):
            rows = f"{prefix}eventkit_do_{call}({named})"
            return ask(f"SELECT coalesce(json_agg(row_to_json(c)), '[]')::text FROM {rows} AS c")
        return ask(f"SELECT {prefix}eventkit_do_{call}({named})")

    def call(self, name: str, *arguments: Any) -> Any:
        """Make the call of `Caller.call`, if plain SQL has it."""
        return getattr(self, name, lambda *given: self._caller.call(name, *given))(*arguments)

    def enqueue(self, queue: str, payload: str, *further: Any) -> Any:
        """Enqueue a task; return its id, or that of the task which holds the key."""
        names = ("priority", "delay", "run_at", "max_attempts", "expires", "expires_at", "key", "headers")
        given = dict(zip(names, further, strict=False))
        added = self.do("enqueue", queue=queue, payload=payload, **given)
        if added is not None:
            return added
        if (key := given.get("key")) is None:
            return self._caller.ask("SELECT max(id) FROM eventkit_task")
        where = f"WHERE queue = {_literal(queue)} AND key = {_literal(key)}"
        reserved = f"SELECT task_id FROM eventkit_key {where}"
        return self._caller.ask(f"SELECT id FROM eventkit_task {where} AND state <> 'done' UNION ALL {reserved}")

    def claim(self, queue: str, worker: str, batch: int = 1, lease: float | None = None) -> list[dict[str, Any]]:
        """Claim tasks, and return those that the worker did not hold before."""
        text = self.do("claim", queue=queue, worker=worker, batch=batch, lease=lease)
        if text is None:
            names = ("id", "payload", "token", "key", "attempt", "max_attempts", "lease_ms", "lapsed")
            members = ", ".join(f"'{name}', {name}" for name in names).replace("', payload", "', json(payload)")
            text = self._caller.ask(
                f"SELECT json_group_array(json_object({members})) FROM eventkit_claimed "
                f"WHERE queue = {_literal(queue)} AND worker = {_literal(worker)}"
            )
        found = [task for task in json.loads(text) if (task["id"], task["token"]) not in self._seen]
        self._seen |= {(task["id"], task["token"]) for task in found}
        return found

    def ack(self, task: str, result: str | None = None) -> bool:
        """Finish a task."""
        return self._end("ack", task, result=result)

    def retry(self, task: str, delay: float | None = None, error: str | None = None) -> bool:
        """Put a task back."""
        return self._end("retry", task, delay=delay, error=error)

    def fail(self, task: str, error: str | None) -> bool:
        """Mark a task dead."""
        return self._end("fail", task, error=error)

    def extend(self, task: str, seconds: float) -> bool:
        """Set the end of a lease."""
        return self._end("extend", task, seconds=seconds)

    def lock(self, name: str, ttl: float) -> dict[str, Any] | None:
        """Acquire a lock; return its token and its fence, or None if it is held."""
        try:
            text = self.do("lock", name=name, ttl=ttl)
        except Exception as error:
            if "the lock is held" not in str(error):
                raise
            return None
        if text is None:
            read = "SELECT json_array(json_object('token', token, 'fence', fence)) FROM eventkit_locked WHERE name = "
            text = self._caller.ask(read + _literal(name))
        locks: list[dict[str, Any]] = json.loads(text)
        return locks[0] if locks else None

    def _end(self, name: str, task: str, **further: Any) -> bool:
        held = json.loads(task)
        try:
            self.do(name, id=held["id"], token=held["token"], **further)
        except Exception as error:
            if "the lease of the task was lost" not in str(error):
                raise
            return False
        return True


def fields(record: Any) -> dict[str, Any]:
    """Return the fields of a record as JSON represents them."""
    return {name: getattr(record, name) for name in record.__struct_fields__}


def _scalar(result: Any) -> Any:
    return result.scalar() if result.returns_rows else None


def _literal(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).upper().replace("NONE", "NULL")
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)
