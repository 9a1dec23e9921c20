"""The tables of a database, described once: for copying their rows, and for moving their times.

Rows pass between databases as plain values: integers, texts and floats, times as milliseconds, JSON as text.  The first
columns are the key, ordered by bytes.  Data that only one backend keeps is created when the rows are written there.

Each backend makes the statements from this description; where it needs another one, its ``.sql`` files have it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import msgspec

from . import Operation, Plan, Rows, all_rows, nothing

_LOWEST = -(2**63)


class Column(NamedTuple):
    """A column: *kind* is integer, float, flag, json, moment, or empty for text."""

    name: str
    kind: str


class _Export(Operation[Rows], frozen=True):
    """Read the rows after a key, at most *limit*."""

    writes: ClassVar[bool] = False
    decode = all_rows


class _Import(Operation[None], frozen=True):
    """Write rows; rows whose key exists stay as they are."""

    rows: Rows
    decode = nothing


class _Advance(Operation[None], frozen=True):
    """Move the times of a table back."""

    milliseconds: int


class Table:
    """A table, and the operations that read its rows, write them, and move their times."""

    def __init__(self, name: str, columns: str, *, key: int = 1, copied: bool = True) -> None:
        self.name = name
        self.noun = "".join(part.title() for part in name.removeprefix("eventkit_").split("_"))
        self.columns = [Column(*text.partition(":")[::2]) for text in columns.split()]
        self.key = self.columns[:key]
        self.before = tuple(_LOWEST if column.kind == "integer" else "" for column in self.key)
        """A key that sorts before all rows."""
        self.moments = [column.name for column in self.columns if column.kind == "moment"]
        self.operations: dict[str, type[Operation[Any]]] = {}
        """The operations by the names under which backends have their statements."""
        if copied:
            fields = [(column.name, Any) for column in self.key]
            self.export: Callable[..., Operation[Rows]] = self._add("Export", _Export, [*fields, ("limit", int)])
            self.write: Callable[[Rows], Operation[None]] = self._add("Import", _Import, [])
        if self.moments:
            self.advance: Callable[[int], Operation[None]] = self._add("Advance", _Advance, [])

    def _add(self, verb: str, base: type[Operation[Any]], fields: list[Any]) -> Any:
        name = f"{verb}{self.noun}"
        operation: Any = msgspec.defstruct(name, fields, bases=(base,), frozen=True, module=__name__)
        self.operations[name] = operation
        return operation


ALL_TABLES = (
    Table("eventkit_topic", "name pruned_to:integer retain:integer max_keep:integer keep_unconsumed:flag"),
    Table("eventkit_channel", "name retain:integer max_keep:integer"),
    Table("eventkit_inbox_settings", "name retain:integer"),
    Table(
        "eventkit_queue",
        "name paused:flag max_attempts:integer lease:integer retry max_size:integer rate:float burst:float "
        "max_running:integer keep_done:integer keep_dead:integer key_ttl:integer dead_letter_to history:flag "
        "tokens:float refilled_at:moment",
    ),
    Table("eventkit_event", "id:integer topic key payload:json headers:json dedup created_at:moment"),
    Table("eventkit_notification", "id:integer channel payload:json headers:json created_at:moment"),
    Table("eventkit_consumer", "topic name position:integer updated_at:moment", key=2),
    Table(
        "eventkit_task",
        "id:integer queue state priority:integer run_at:moment wake_at:moment expires_at:moment attempt:integer "
        "max_attempts:integer token:integer key lane payload:json headers:json enqueued_at:moment worker "
        "claimed_at:moment finished_at:moment reason error result:json lapsed:flag",
    ),
    # After the tasks, whose keys are copied with them.
    Table("eventkit_key", "queue key task_id:integer reserved_until:moment", key=2),
    Table("eventkit_inbox", "consumer message_id seen_at:moment", key=2),
    Table("eventkit_lock", "name fence:integer token:integer holder ttl:integer expires_at:moment"),
    Table("eventkit_rate", "name per:integer amount:float counted_at:moment until:moment", key=2),
    Table("eventkit_result", "id value:json expires_at:moment"),
    Table("eventkit_written_batch", "writer batch:integer written_at:moment expires_at:moment"),
    Table("eventkit_lake", "topic location format epoch:integer covered:integer updated_at:moment"),
    Table(
        "eventkit_lake_file",
        "topic path date first:integer last:integer rows:integer bytes:integer oldest:integer newest:integer "
        "retired_at:moment",
        key=2,
    ),
    Table(
        "eventkit_pipeline",
        "name source sink state batch:integer rows:integer lag:integer error started_at:moment updated_at:moment",
    ),
    Table("eventkit_rollup", "subject name hour:integer measure amount:integer", key=4),
    Table(
        "eventkit_api_key",
        "id name hash scopes rate:float burst:float quota:integer created_at:moment expires_at:moment "
        "revoked_at:moment former former_until:moment",
    ),
    Table(
        "eventkit_schedule",
        "name timing zone queue payload:json headers:json priority:integer expires:integer max_attempts:integer "
        "catch_up next_at:moment last_at:moment fired:integer skipped:integer timed_at:moment",
    ),
    Table("eventkit_consumer_lease", "until:moment", copied=False),
    Table("eventkit_staged_rows", "staged_at:moment", copied=False),
    Table("eventkit_session", "expires_at:moment", copied=False),
    Table("eventkit_worker", "started_at:moment seen_at:moment", copied=False),
)
"""All tables, in the order of writing: schedules come last, because their fires add tasks."""

TABLES = tuple(table for table in ALL_TABLES if f"Export{table.noun}" in table.operations)
"""The tables that are copied."""


class Advance(Operation[None], frozen=True):
    """Move every stored time back, as if *milliseconds* had passed.  For tests."""

    milliseconds: int

    def plan(self) -> Plan[None]:
        for table in ALL_TABLES:
            if table.moments:
                yield table.advance(self.milliseconds)


class Numbers(NamedTuple):
    """The last numbers drawn."""

    event: int
    notification: int
    task: int


class ExportNumbers(Operation[Numbers], frozen=True):
    """Read the last number drawn of each kind, whose row may be gone from its table."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> Numbers:
        return Numbers(*rows[0])


class ImportNumbers(Operation[None], frozen=True):
    """Make the next numbers higher than these, and than those already drawn."""

    event: int
    notification: int
    task: int
    decode = nothing


class MarkIncomplete(Operation[None], frozen=True):
    """Record that ``copy`` or ``import`` is in progress; None when it is done."""

    what: str | None
    decode = nothing
