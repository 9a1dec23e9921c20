"""The tables of a database, described once: for copying their rows, for moving their times, and their maintenance.

Rows pass between databases as plain values: integers, texts and floats, times as milliseconds, JSON as text.  The first
columns are the key, ordered by bytes.  Data that only one backend keeps is created when the rows are written there.

Each backend makes the statements from this description; where it needs another one, its ``.sql`` files have it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar, NamedTuple

from ..values import Maintained
from . import Operation, Plan, Read, ReadStep, Rows, Step, all_rows, column, first, nothing, one, step
from .channel import FindPrunableNotifications
from .claim import MOVED_AT_ONCE, Promote
from .coordination import DropResults
from .finish import Remove
from .stream import FindPrunable, drop_events

_LOWEST = -(2**63)


class Column(NamedTuple):
    """A column: *kind* is integer, float, flag, json, moment, or empty for text."""

    name: str
    kind: str


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
        self.copied = copied

    def export(self, *after: Any) -> Step:
        """Return the operation that reads the rows after a key, at most as many as the last argument says."""
        names = [*[column.name for column in self.key], "limit"]
        return ReadStep(f"Export{self.noun}", dict(zip(names, after, strict=True)))

    def write(self, rows: Rows) -> Step:
        """Return the operation that writes rows; rows whose key exists stay as they are."""
        return Step(f"Import{self.noun}", {"rows": rows})

    def advance(self, milliseconds: int) -> Step:
        """Return the operation that moves the times of the table back."""
        return Step(f"Advance{self.noun}", {"milliseconds": milliseconds})

    @property
    def headings(self) -> list[str]:
        """Return the headings of the statements that exist for the table."""
        verbs = [*(("Export", "Import") if self.copied else ()), *(("Advance",) if self.moments else ())]
        return [f"{verb}{self.noun}" for verb in verbs]


ALL_TABLES = (
    Table("eventkit_topic", "name pruned_to:integer keep:integer keep_count:integer keep_unconsumed:flag"),
    Table("eventkit_channel", "name keep:integer keep_count:integer"),
    Table("eventkit_inbox_settings", "name keep:integer"),
    Table(
        "eventkit_queue",
        "name paused:flag max_attempts:integer lease:integer retry max_size:integer rate:float burst:float "
        "max_running:integer keep_done:integer keep_dead:integer key_ttl:integer dead_letter_to history:flag "
        "tokens:float refilled_at:moment max_bytes:integer strict_keys:flag enqueue_rate:float enqueue_burst:float "
        "enqueue_tokens:float enqueue_refilled_at:moment ordered:flag on_dead fair:flag group_max_running:integer "
        "group_rate:float weights",
    ),
    Table("eventkit_cluster_limit", "name queue max_running:integer", key=2),
    Table("eventkit_group_rate", "queue group_key tokens:float reserved:float refilled_at:moment until:moment", key=2),
    Table("eventkit_event", "id:integer topic key payload:json headers:json dedup created_at:moment"),
    Table("eventkit_notification", "id:integer channel payload:json headers:json created_at:moment"),
    Table("eventkit_consumer", "topic name position:integer updated_at:moment", key=2),
    Table(
        "eventkit_consumer_group",
        "topic name partitions:integer max_parked:integer paused:flag generation:integer",
        key=2,
    ),
    # In a copy no member has the token: leases are not copied.
    Table(
        "eventkit_consumer_partition", "topic name partition:integer position:integer token:integer stopped:flag", key=3
    ),
    Table(
        "eventkit_consumer_parked", "topic name event:integer partition:integer key attempt:integer due:moment", key=3
    ),
    Table(
        "eventkit_task",
        "id:integer queue state priority:integer run_at:moment wake_at:moment expires_at:moment attempt:integer "
        "max_attempts:integer token:integer key group_key payload:json headers:json enqueued_at:moment worker "
        "claimed_at:moment finished_at:moment reason error code result:json lapsed:flag "
        "turn:integer held:flag blocks:flag",
    ),
    # After the tasks, whose keys are copied with them.
    Table("eventkit_key", "queue key task_id:integer reserved_until:moment payload:json", key=2),
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

TABLES = tuple(table for table in ALL_TABLES if table.copied)
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


class ExportNumbers(Read[Numbers], frozen=True):
    """Read the last number drawn of each kind, whose row may be gone from its table."""

    decode = one(Numbers)


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


# Maintenance moves due tasks and deletes expired rows.  `upkeep` yields all of its operations, to execute one after the
# other, each in a transaction of its own.  Those that change rows are chores: each takes a bounded number of rows, so
# that its transaction is short, and answers how many it found, or their rows.


class DropDead(Operation[Rows], frozen=True):
    """Delete dead tasks whose retention by their queue has ended."""

    limit: int = MOVED_AT_ONCE

    def plan(self) -> Plan[Rows]:
        """Find them, and delete them; their keys may still be reserved afterwards."""
        found = yield self
        if found:
            yield from Remove([id for (id,) in found]).plan()
        return found


class FindDueQueues(Read[list[str]], frozen=True):
    """Find the queues that have due, lapsed or expired tasks which were not moved yet."""

    decode = column


class FindStaleTopics(Read[Rows], frozen=True):
    """Find the topics that may have events to prune: ``topic, keep, keep_count, keep_unconsumed``."""

    decode = all_rows


class PruneTopic(Operation[int], frozen=True):
    """Delete the topic's first events up to an offset, while its settings are unchanged."""

    topic: str
    keep: int | None
    keep_count: int | None
    keep_unconsumed: bool
    last: int
    limit: int = MOVED_AT_ONCE

    def plan(self) -> Plan[int]:
        """Lock the range of this step against other processes, and delete it."""
        [(last,)] = yield self
        return (yield from drop_events(self.topic, last))


class FindStaleChannels(Read[Rows], frozen=True):
    """Find the channels that may have notifications to prune: ``channel, keep, keep_count``."""

    decode = all_rows


def upkeep() -> Generator[Operation[Any], Any, Maintained]:
    """Yield all operations of maintenance, and return what was found."""
    found = dict.fromkeys(Maintained.__struct_fields__, 0)
    # Shorten leases that a clock ahead of the present one has granted to at most their length from now.
    yield from _exhaust(found, "moved", step("BoundLeases", limit=MOVED_AT_ONCE))
    for queue in (yield FindDueQueues()):
        yield from _exhaust(found, "moved", Promote(queue, MOVED_AT_ONCE))
    # Expired keys go before dead tasks, whose deletion removes some uncounted.
    yield from _exhaust(found, "keys", step("ForgetKeys", limit=MOVED_AT_ONCE))
    yield from _exhaust(found, "done", step("DropDone", limit=MOVED_AT_ONCE))
    yield from _exhaust(found, "dead", DropDead())
    yield from _exhaust(found, "results", DropResults(MOVED_AT_ONCE))
    yield from _exhaust(found, "limits", step("DropRates", limit=MOVED_AT_ONCE))
    yield from _exhaust(found, "limits", step("DropFullGroupRates", limit=MOVED_AT_ONCE))
    yield from _exhaust(found, "inbox", step("DropSeen", limit=MOVED_AT_ONCE))
    yield from _exhaust(found, "staged", step("DropLeftStaged", limit=MOVED_AT_ONCE))
    yield from _exhaust(found, "written", step("DropWritten", limit=MOVED_AT_ONCE))
    for topic, keep, keep_count, unconsumed in (yield FindStaleTopics()):
        last = yield FindPrunable(topic, keep, keep_count, unconsumed)
        if last is not None:
            yield from _exhaust(found, "events", PruneTopic(topic, keep, keep_count, unconsumed, last))
    for channel, keep, keep_count in (yield FindStaleChannels()):
        last = yield FindPrunableNotifications(channel, keep, keep_count)
        if last is not None:
            prune = step(
                "PruneChannel", channel=channel, keep=keep, keep_count=keep_count, last=last, limit=MOVED_AT_ONCE
            )
            yield from _exhaust(found, "notifications", prune)
    return Maintained(**found)


def _exhaust(
    found: dict[str, int], kind: str, chore: Operation[int] | Operation[Rows]
) -> Generator[Operation[Any], Any, None]:
    number = MOVED_AT_ONCE
    while number >= MOVED_AT_ONCE:
        answer = yield chore
        number = answer if isinstance(answer, int) else len(answer)
        found[kind] += number


# Extracts: reads of many rows.


class Extent(NamedTuple):
    """The extent of a topic: events up to *pruned_to* are pruned, and events up to *head* have settled."""

    known: bool
    pruned_to: int
    head: int


class ReadIdentity(Read[str], frozen=True):
    """Read the database's identity; a copy has that of its original, and a new database has its own."""

    decode = first


class ListTopics(Read[list[str]], frozen=True):
    """List the names of all topics that have events, settings or consumers."""

    decode = column


class ReadExtent(Read[Extent], frozen=True):
    """Read the extent of a topic, and whether the topic has ever been used."""

    topic: str
    decode = one(lambda known, pruned_to, head: Extent(bool(known), pruned_to, head))


def _end(self: Any, rows: Rows) -> tuple[int, int]:
    """Answer the last number and the count; if there are fewer than asked for, the end of the range."""
    [(number, count)] = rows
    return (self.last if count < self.most else number), count


class FindEnd(Read[tuple[int, int]], frozen=True):
    """Find the last of the *most* events of a topic after *after*, up to *last*, and their number."""

    topic: str
    after: int
    last: int
    most: int
    decode = _end


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


class Fetching(Read[Rows], frozen=True):
    """A read whose caller wants columns, so that a backend may answer with columns instead of rows."""

    columns: ClassVar[tuple[str, ...]]
    decode = all_rows


class FetchEvents(Fetching, frozen=True):
    """Read the events after *after* up to *last*, in order, of some keys if any are given, and within a time span.

    Times are in milliseconds.
    """

    columns: ClassVar[tuple[str, ...]] = ("offset", "key", "payload", "headers", "created_at")
    topic: str
    after: int
    last: int
    keys: list[str]
    since: int | None
    before: int | None
    limit: int


class FetchStanding(Fetching, frozen=True):
    """Read the database's identity, and the offset up to which the topic is pruned."""

    columns: ClassVar[tuple[str, ...]] = ("identity", "pruned_to")
    topic: str


class ReadTaskNumbers(Read[tuple[int, int]], frozen=True):
    """Read a number below those of all tasks, and the highest of them."""

    decode = one(lambda below, last: (below, last))


class FindTaskEnd(Read[tuple[int, int]], frozen=True):
    """Find the last of the *most* tasks after a number, up to *last*, and their count."""

    after: int
    last: int
    most: int
    decode = _end


class FetchTasks(Fetching, frozen=True):
    """Read the tasks after a number up to another, in their state by the clock, all or those in one state."""

    columns: ClassVar[tuple[str, ...]] = _names(
        "id queue state payload key headers priority attempt max_attempts run_at enqueued_at expires_at "
        "lease_expires_at worker claimed_at finished_at reason error result"
    )
    after: int
    last: int
    state: str | None
    limit: int


class FetchResults(Fetching, frozen=True):
    """Read the unexpired results after an id."""

    columns: ClassVar[tuple[str, ...]] = ("id", "value", "expires_at")
    after: str
    limit: int


class FetchSchedules(Fetching, frozen=True):
    """Read all schedules."""

    columns: ClassVar[tuple[str, ...]] = _names(
        "name when tz queue payload headers priority max_attempts catch_up paused next_at last_at fired skipped"
    )


class FetchConsumers(Fetching, frozen=True):
    """Read the consumers of all topics, with the number of events after each one's offset."""

    columns: ClassVar[tuple[str, ...]] = ("topic", "name", "offset", "lag", "updated_at")
